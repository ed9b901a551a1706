//! Display of a sweep while it runs: on a terminal a line for each run and one for all, else a line for each end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use radrm_scheduler_core::{Bytes, Millis};
use radrm_sweep::Plan;
use radrm_sweep::execute::Event;
use radrm_sweep::folder::Folder;
use radrm_sweep::plan::Run;
use radrm_sweep::store::{Outcome, Recorded, State};
use radrm_text::output::say;
use radrm_text::{clean, fit};

use crate::NAME;

/// Columns of a run's name.
const NAME_WIDTH: usize = 48;

/// Between two changes of the last line.
const INTERVAL: Duration = Duration::from_millis(500);

/// The display of a sweep.
pub(super) struct Progress {
    /// Runs of the sweep.
    all: usize,
    over: usize,
    failed: usize,
    groups_left: usize,
    /// Groups that ended under this display.
    ended: u32,
    begun: Instant,
    /// Time of the last group's end.
    last: Instant,
    shown: Instant,
    folder: Folder,
    /// Output files of the programs of runs under way, by the runs' keys.
    outputs: BTreeMap<String, PathBuf>,
    bars: Option<Bars>,
}

/// On a terminal.
struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    /// Of runs under way, by their keys.
    runs: BTreeMap<String, ProgressBar>,
}

impl Progress {
    pub(super) fn new(plan: &Plan, folder: Folder, is_terminal: bool) -> Self {
        let all = plan.groups.iter().map(|group| group.runs.len()).sum();
        let bars = is_terminal.then(|| {
            let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let total = bars.add(ProgressBar::new(all as u64));
            total.set_style(style("{pos}/{len} runs {wide_bar} {msg}"));
            Bars { all: bars, total, runs: BTreeMap::new() }
        });
        let now = Instant::now();
        let groups_left = plan.groups.len();
        let outputs = BTreeMap::new();
        Self {
            all,
            over: 0,
            failed: 0,
            groups_left,
            ended: 0,
            begun: now,
            last: now,
            shown: now,
            folder,
            outputs,
            bars,
        }
    }

    /// Shows what happened.
    pub(super) fn on(&mut self, event: &Event<'_>) {
        match event {
            Event::Skipped { group } => {
                self.over += group.runs.len();
                self.groups_left -= 1;
            }
            Event::Started { group, runs } => self.begin(&group.runs, runs),
            Event::Adopted { group, runs } => {
                self.line(&format!("{}: still runs, waiting for its end", clean(&group.name)));
                self.begin(&group.runs, runs);
            }
            Event::Ended { group, outcomes } => {
                self.ended += 1;
                self.last = Instant::now();
                self.groups_left -= 1;
                if let Some(bars) = &mut self.bars {
                    let ended = group.keys().into_iter().filter_map(|key| bars.runs.remove(&key));
                    ended.for_each(|bar| bar.finish_and_clear());
                }
                for ((run, key), outcome) in group.runs.iter().zip(group.keys()).zip(*outcomes) {
                    let has_failed = !matches!(outcome.state, State::Finished | State::Stopped);
                    let output = self.outputs.remove(&key).filter(|_| has_failed);
                    let output = output.map(|path| format!("; output: {}", clean(&path.to_string_lossy())));
                    self.over += 1;
                    self.failed += usize::from(has_failed);
                    self.line(&format!(
                        "{}/{} {}: {}{}",
                        self.over,
                        self.all,
                        clean(&run.name),
                        ended(outcome),
                        output.unwrap_or_default()
                    ));
                }
            }
            Event::Remark(sentence) => self.line(&clean(sentence)),
            Event::Tick if self.shown.elapsed() < INTERVAL => return,
            Event::Tick => {}
        }
        self.shown = Instant::now();
        let left = self.left();
        if let Some(bars) = &self.bars {
            let failed = if self.failed > 0 { format!("{} failed ", self.failed) } else { String::new() };
            bars.total.set_position(self.over as u64);
            bars.total.set_message(format!("{failed}{left}"));
            bars.runs.values().for_each(ProgressBar::tick);
        }
    }

    fn begin(&mut self, planned: &[Run], runs: &[Recorded]) {
        for recorded in runs {
            let output = self.folder.output(recorded.number, recorded.attempt);
            self.outputs.insert(recorded.key.clone(), output);
        }
        if let Some(bars) = &mut self.bars {
            for (run, recorded) in planned.iter().zip(runs) {
                let bar = bars.all.insert_before(&bars.total, ProgressBar::new_spinner());
                bar.set_style(style("  {prefix} {elapsed} {msg}"));
                bar.set_prefix(fit(&clean(&run.name), NAME_WIDTH));
                bar.set_message(if recorded.attempt > 1 {
                    format!("attempt {}", recorded.attempt)
                } else {
                    String::new()
                });
                if let Some(earlier) = bars.runs.insert(recorded.key.clone(), bar) {
                    earlier.finish_and_clear();
                }
            }
        }
    }

    /// Time that the rest takes, by the mean of the groups so far, of which several may run at once.
    fn left(&self) -> String {
        let Some(mean) = (self.last - self.begun).checked_div(self.ended) else { return String::new() };
        let left = mean * u32::try_from(self.groups_left).unwrap_or(u32::MAX);
        let left = left.saturating_sub(self.last.elapsed().min(mean));
        if self.groups_left == 0 {
            String::new()
        } else {
            format!("about {} left", Millis(left.as_millis() as u64))
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            // The bars stay below it.
            Some(bars) => bars.all.suspend(|| say(NAME, text)),
            None => say(NAME, text),
        }
    }

    /// Takes the bars from the terminal.
    pub(super) fn close(&mut self) {
        if let Some(bars) = self.bars.take() {
            bars.runs.values().for_each(ProgressBar::finish_and_clear);
            bars.total.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// End of a run, and what it took, in words.
pub(super) fn ended(outcome: &Outcome) -> String {
    let time = Millis(outcome.duration_ms);
    let mut text = match (outcome.state, outcome.exit_code, outcome.signal) {
        (State::Finished, ..) => format!("finished in {time}"),
        (State::TimedOut, ..) => format!("ended by its timeout after {time}"),
        (State::Stopped, ..) => format!("stopped early after {time}"),
        (_, Some(code), _) => format!("failed with exit code {code} after {time}"),
        (_, None, Some(signal)) => {
            format!("killed by {} after {time}", radrm_analyzer::signal_name(signal).unwrap_or("a signal"))
        }
        _ => "did not finish".to_owned(),
    };
    if let Some(reason) = &outcome.reason {
        text.push_str(": ");
        text.push_str(&clean(reason));
    }
    if let Some(bytes) = outcome.peak_bytes {
        text.push_str(&format!(", peak {}", Bytes(bytes)));
    }
    text
}
