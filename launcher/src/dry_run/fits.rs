//! `--fits CARD,...`: a dry run on each card, and what it says of the program there.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use radrm_analyzer::{Summary, TrainingSummary, fits_text};
use radrm_emulator_machine::Models;
use radrm_profile::model::Fit;
use radrm_profile::model::dry_run::Verdict;
use radrm_profile::model::step::StepTime;
use radrm_profile::{Profile, Record};
use radrm_text::output;
use serde_json::Value;

use super::answer;
use super::flags::DryRun;
use super::kept;
use super::stored;
use super::trial::{Signals, Started, Trial};
use super::verdict::Judged;
use crate::NAME;
use crate::cli::{Plan, ReportTo};
use crate::ending::FAILED;
use crate::error::LaunchError;
use crate::leftovers;
use crate::place::{self, Place};
use crate::recording;

/// Optimizer steps of each run where `--steps` names none: memory is what it is after the second.
const STEPS: u64 = 3;

/// Host memory that must be free for a run, as a multiple of what the first one took: runs differ by card.
const MARGIN: f64 = 1.25;

/// A card, and its run's profile if it wrote one.
struct Tried {
    fit: Fit,
    profile: PathBuf,
    /// Figures of its report, null if it wrote none.
    figures: Value,
}

/// Runs the program on each card, prints the verdicts, and gives the exit code: 0 if every card has one.
///
/// The profile and the dataset's row are those of the run on the largest card that holds the program, with all verdicts.
///
/// # Errors
/// The profile cannot go where it was asked for, or signals cannot be held.
pub fn run(plan: &Plan, wanted: &DryRun) -> Result<i32, LaunchError> {
    let place = place::prepare(&plan.profile)?;
    let signals = Signals::hold().map_err(LaunchError::Signals)?;
    let all = match tempfile::Builder::new().prefix(&leftovers::prefix(leftovers::TRIALS)).tempdir() {
        Ok(folder) => {
            let all = try_all(plan, wanted, folder.path(), &signals);
            for sentence in keep(plan, place, &all) {
                output::say(NAME, &sentence);
            }
            all
        }
        Err(error) => {
            output::say(NAME, &format!("no folder for profiles: {}", radrm_base::reason(&error)));
            return Ok(FAILED);
        }
    };
    let fits: Vec<Fit> = all.iter().map(|tried| tried.fit.clone()).collect();
    let code = i32::from(fits.iter().any(|fit| fit.verdict == Verdict::Unknown));
    let steps: Vec<StepTime> = all.iter().filter_map(step_on_it).collect();
    let training = wanted.training.as_ref();
    let training = training.map(|training| TrainingSummary::on(training, gpus(&all), &steps));
    let text = format!("\n{}", fits_text(&fits, &steps, training.as_ref()));
    let figures = largest(&all).map(|tried| &tried.figures);
    Ok(match answer::deliver(plan, &text, ("fits", with_steps(&fits, &steps, training.as_ref())), figures) {
        Ok(()) => code,
        Err(error) => {
            output::say(NAME, &error.to_string());
            FAILED
        }
    })
}

/// Predicted time of a step on the card of a run, by its report.
fn step_on_it(tried: &Tried) -> Option<StepTime> {
    let times = tried.figures["step"]["cards"].as_array()?;
    let time = times.iter().find(|time| time["card"] == tried.fit.card.as_str())?;
    serde_json::from_value(time.clone()).ok()
}

/// GPUs that held memory in the run on the largest card.
fn gpus(all: &[Tried]) -> u64 {
    let gpus = largest(all).and_then(|tried| tried.figures["gpus"].as_array());
    let held = gpus.map(|gpus| gpus.iter().filter(|gpu| gpu["held_peak"].as_u64() > Some(0)).count());
    held.unwrap_or(1).max(1) as u64
}

/// The cards as JSON, each with the predicted time of a step and of the whole training if it has one.
fn with_steps(fits: &[Fit], steps: &[StepTime], training: Option<&TrainingSummary>) -> Value {
    let of = |fit: &Fit| {
        let mut value = serde_json::json!(fit);
        if let Some(step) = steps.iter().find(|step| step.card == fit.card) {
            value["step"] = serde_json::json!(step);
        }
        if let Some(training) = training.and_then(|training| training.on_card(&fit.card)) {
            value["training"] = serde_json::json!(training);
        }
        value
    };
    fits.iter().map(of).collect()
}

/// Runs the program on each card; in the order in which they were named.
fn try_all(plan: &Plan, wanted: &DryRun, folder: &Path, signals: &Signals) -> Vec<Tried> {
    let memory = memory_of_cards();
    let memory_of = |card: &str| memory.get(card).copied().unwrap_or_default();
    let mut waiting: Vec<&String> = wanted.fits.iter().collect();
    // The first run shows how much host memory one takes: on the largest card it comes furthest.
    waiting.sort_by_key(|card| std::cmp::Reverse(memory_of(card).0));
    let mut waiting = VecDeque::from(waiting);
    let mut running: VecDeque<(&String, PathBuf, Instant, Started)> = VecDeque::new();
    let mut done: BTreeMap<&String, Tried> = BTreeMap::new();
    let mut at_a_time = 1;
    let finish =
        |card: &String, profile: PathBuf, began: Instant, judged: Judged, need: u64, figures: Value| {
            let Judged { verdict, why } = judged;
            let seconds = Some(began.elapsed().as_secs_f64());
            let fit = Fit { card: card.clone(), verdict, why, need, memory: memory_of(card).0, seconds };
            if !plan.quiet {
                output::say(NAME, &words(&fit));
            }
            Tried { fit, profile, figures }
        };
    loop {
        while running.len() < at_a_time
            && let Some(card) = waiting.pop_front()
        {
            let profile = folder.join(format!("{card}.radrm"));
            let began = Instant::now();
            match start(plan, wanted, card, &profile, signals) {
                Ok(started) => running.push_back((card, profile, began, started)),
                Err(error) => {
                    let why = format!("no dry run was made: {}", radrm_base::reason(&error));
                    let judged = Judged { verdict: Verdict::Unknown, why: Some(why) };
                    done.insert(card, finish(card, profile, began, judged, 0, Value::Null));
                }
            }
        }
        let Some((card, profile, began, started)) = running.pop_front() else { break };
        let mut ended = started.wait(running.iter().map(|(.., beside)| beside));
        if done.is_empty() {
            let took = ended.report["host"]["resident_peak_bytes"].as_u64();
            at_a_time = runs_at_a_time(took, radrm_os::host::available_memory(), processors());
        }
        let evidence = ended.evidence();
        let judged = evidence.judge(memory_of(card).1);
        if !plan.quiet && evidence.failed.is_some() && judged.verdict == Verdict::Unknown {
            ended.last_lines.iter().for_each(|line| output::say(NAME, &format!("{card}: | {line}")));
        }
        let figures = ended.report["dry_run"].take();
        done.insert(card, finish(card, profile, began, judged, evidence.held, figures));
    }
    wanted.fits.iter().filter_map(|card| done.remove(card)).collect()
}

fn start(plan: &Plan, wanted: &DryRun, card: &str, profile: &Path, signals: &Signals) -> io::Result<Started> {
    let mut trial = Trial::like(plan, wanted, Some(card), STEPS, signals.clone())?;
    trial.profile(plan, profile);
    trial.command.arg("--").args(&plan.command);
    trial.start()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Number of runs that there may be at a time, of which each takes so many bytes of the host's memory. One where
/// either figure is unknown.
fn runs_at_a_time(took: Option<u64>, available: Option<u64>, processors: usize) -> usize {
    let (Some(took @ 1..), Some(available)) = (took, available) else { return 1 };
    ((available as f64 / (took as f64 * MARGIN)) as usize).clamp(1, processors.max(1))
}

/// Memory of each model, and what of it CUDA shows programs.
fn memory_of_cards() -> BTreeMap<String, (u64, u64)> {
    let models = Models::known().map(|models| models.gpu).unwrap_or_default();
    models
        .into_iter()
        .map(|model| (model.id.clone(), (model.memory_bytes(), model.cuda_memory_bytes())))
        .collect()
}

/// The run on the largest card that holds the program. The figures of a run that memory cut short are not the program's.
fn largest(all: &[Tried]) -> Option<&Tried> {
    all.iter()
        .max_by_key(|tried| (matches!(tried.fit.verdict, Verdict::Yes | Verdict::Partly), tried.fit.memory))
}

/// Keeps the profile of one run, with all verdicts, and adds its row to the dataset. What went wrong, in sentences.
fn keep(plan: &Plan, place: Place, all: &[Tried]) -> Vec<String> {
    let Some(tried) = largest(all) else { return Vec::new() };
    let Ok(mut profile) = Profile::open(&tried.profile) else {
        return vec!["no profile was kept: the run wrote none".to_owned()];
    };
    let fits = all.iter().map(|tried| tried.fit.clone()).collect();
    let mut wrong = Vec::new();
    wrong.extend(stored::add(&mut profile, Some(&tried.profile), stored::FIGURES, vec![Record::Fits(fits)]));
    // The trial read no dataset.
    wrong.extend(stored::add_expected(&mut profile, Some(&tried.profile), plan));
    let path = match kept::keep(plan, &place, &profile, &tried.profile) {
        Ok(path) => path,
        Err(error) => {
            wrong.push(error.to_string());
            None
        }
    };
    let summary = Summary::from_profile(&profile);
    wrong.extend(recording::add_row(plan, (&profile, &summary), path.as_deref()));
    if let (Some(path), ReportTo::Text { .. }) = (&path, &plan.report) {
        output::say(NAME, &format!("the profile is {}", path.display()));
    }
    wrong
}

fn words(fit: &Fit) -> String {
    let why = fit.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    format!("{}: {}{why}", fit.card, fit.verdict.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_beside_each_other_have_room_on_the_host() {
        assert_eq!(runs_at_a_time(Some(1 << 30), Some(64 << 30), 8), 8);
        assert_eq!(runs_at_a_time(Some(10 << 30), Some(40 << 30), 8), 3);
        assert_eq!(runs_at_a_time(Some(30 << 30), Some(20 << 30), 8), 1);
        for (took, available) in [(None, Some(1 << 40)), (Some(1), None), (Some(0), Some(1 << 40))] {
            assert_eq!(runs_at_a_time(took, available, 8), 1, "{took:?} {available:?}");
        }
    }
}
