//! `radrm sweep report`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Args;
use radrm_analyzer::sheet::sheet_html;
use radrm_launcher::report_file;
use radrm_scheduler_core::{Bytes, Permille};
use radrm_sweep::company::{Together, own, together};
use radrm_sweep::folder::Folder;
use radrm_sweep::report::{self, Company, Configuration, Metric};
use radrm_sweep::statistics::Mean;
use radrm_sweep::store::{Recorded, Store};
use radrm_sweep::{Source, SweepError};
use radrm_text::{Table, clean, left, right};

use super::page;
use crate::error::UsageError;
use crate::{Failure, print};

/// The flags as written.
#[derive(Args, Debug)]
pub(super) struct Flags {
    /// The sweep [default: the only one of the current directory]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print every run with its figures as CSV
    #[arg(long)]
    csv: bool,
    /// Write one self-contained page to OUT, with the configurations that no other beats as pictures; `-` is standard output
    #[arg(long, value_name = "OUT", require_equals = true, conflicts_with = "csv")]
    html: Option<PathBuf>,
    /// The figure by which the best configuration is chosen: run-time, peak-memory, sm-activity, steps or energy; NAME:min or NAME:max
    /// for the last value of a figure that the program logs by radrm.log_metric
    #[arg(long, value_name = "FIGURE", default_value = "run-time", hide_default_value = true, value_parser = metric)]
    best: Metric,
}

fn metric(text: &str) -> Result<Metric, UsageError> {
    match text {
        "run-time" => Ok(Metric::RunTime),
        "peak-memory" => Ok(Metric::PeakMemory),
        "sm-activity" => Ok(Metric::SmActivity),
        "steps" => Ok(Metric::Steps),
        "energy" => Ok(Metric::Energy),
        other => Metric::logged(other).ok_or_else(|| UsageError::NoFigure(other.to_owned())),
    }
}

/// Prints the report.
pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let file = match &flags.file {
        Some(file) => file.clone(),
        None => only()?,
    };
    let out = flags.html.as_deref().filter(|out| out.as_os_str() != "-");
    if let Some(out) = out {
        report_file::spares_profile(out).map_err(UsageError::Overwrites)?;
    }
    let runs = recorded(&file)?;
    if flags.html.is_some() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let page = sheet_html(&page::sheet(&name, &runs, &flags.best));
        let Some(out) = out else { return print(&page) };
        report_file::write(out, page)?;
        return print(&format!("{}\n", out.display()));
    }
    if flags.csv { print(&as_csv(&runs)?) } else { print(&text(&runs, &flags.best)) }
}

/// The runs of a sweep that was started.
pub(crate) fn recorded(file: &Path) -> Result<Vec<Recorded>, Failure> {
    let folder = Folder::of(file)?;
    folder.check()?;
    let here = env::current_dir().map_err(Failure::NoDirectory)?;
    Ok(runs(&mut radrm_sweep::read(file, &here)?)?)
}

/// The report at the end of a sweep.
pub(super) fn after(source: &Source) -> Result<(), Failure> {
    print(&text(&runs(&mut source.clone())?, &Metric::default()))
}

/// The runs of a file as it is now, on the machine of the last call: with others, means would be of different things.
fn runs(source: &mut Source) -> Result<Vec<Recorded>, SweepError> {
    let folder = Folder::of(&source.path)?;
    folder.check()?;
    let store = Store::open_existing(&folder.database())?;
    if let Some(machine) = store.machine()? {
        source.plan.run_on(machine.as_deref());
    }
    store.runs_of(&source.plan)
}

/// The only sweep of the current directory that was started.
fn only() -> Result<PathBuf, UsageError> {
    let entries = fs::read_dir(".").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut files: Vec<PathBuf> =
        names.filter_map(|name| name.strip_suffix(".sweep").map(PathBuf::from)).collect();
    match (files.pop(), files.is_empty()) {
        (Some(file), true) => Ok(file),
        _ => Err(UsageError::NoSweep),
    }
}

const UNKNOWN: &str = "n/a";

/// Configurations that are named where they cannot be told from the best.
const MAX_ALIKE: usize = 3;

/// Logged metrics that have a column.
const MAX_METRICS: usize = 4;

/// The GPU is shared with whatever jobs radrmd placed there.
const BY_RADRMD: &str = "by radrmd";

/// A mean with its interval in a form.
pub(super) fn mean(mean: Option<Mean>, form: impl Fn(f64) -> String) -> String {
    let Some(mean) = mean else { return UNKNOWN.to_owned() };
    let half = mean.half.map(|half| format!(" ± {}", form(half))).unwrap_or_default();
    format!("{}{half}", form(mean.mean))
}

pub(super) fn seconds(value: f64) -> String {
    format!("{value:.2} s")
}

pub(super) fn bytes(value: f64) -> String {
    Bytes(value.max(0.0) as u64).to_string()
}

pub(super) fn rate(value: f64) -> String {
    format!("{value:.2}")
}

pub(super) fn joules(value: f64) -> String {
    if value < 10_000.0 { format!("{value:.1} J") } else { format!("{:.1} kJ", value / 1000.0) }
}

pub(super) fn share(value: f64) -> String {
    Permille::from_fraction(value).to_string()
}

pub(super) fn factor(value: f64) -> String {
    format!("{value:.2}x")
}

pub(super) fn slowdown(one: &Configuration) -> String {
    if one.company.is_none() { "-".to_owned() } else { mean(one.slowdown, factor) }
}

/// Time in company.
pub(super) fn overlap(one: &Configuration) -> String {
    if one.company.is_none() { "-".to_owned() } else { mean(one.overlap_s, seconds) }
}

pub(crate) fn company(company: Option<&Company>) -> String {
    let Some(company) = company else { return "alone".to_owned() };
    let by = if company.collocation == "-" { String::new() } else { format!(" ({})", company.collocation) };
    format!("with {}{by}", company.others.join(" + "))
}

pub(super) fn sharing(one: &Configuration) -> String {
    if one.shares { BY_RADRMD.to_owned() } else { company(one.company.as_ref()) }
}

fn text(runs: &[Recorded], by: &Metric) -> String {
    let all = report::configurations(runs);
    let has_steps = all.iter().any(|one| one.steps_per_s.is_some());
    let has_energy = all.iter().any(|one| one.energy_j.is_some());
    let has_company = all.iter().any(|one| one.company.is_some());
    let has_stopped = all.iter().any(|one| one.stopped > 0);
    let logged = logged(&all, by);
    let mut titles = vec![left("CONFIGURATION"), left("SHARING"), right("RUNS"), right("FAILED")];
    titles.extend(has_stopped.then(|| right("STOPPED")));
    titles.extend([right("RUN TIME"), right("PEAK MEMORY"), right("SM ACTIVITY")]);
    titles.extend(has_steps.then(|| right("STEPS/S")));
    titles.extend(has_energy.then(|| right("ENERGY")));
    titles.extend(logged.iter().map(|name| right(clean(name).into_owned())));
    titles.extend(has_company.then(|| right("OVERLAP")));
    titles.extend([right("SLOWDOWN"), left("")]);
    let mut table = Table::new(titles);
    for one in &all {
        let marks = [
            (one.on_front, "*"),
            (one.on_energy_front, "+"),
            (one.profiled, "profiled"),
            (one.left > 0, "not over"),
        ];
        let marks: Vec<_> = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
        let mut cells =
            vec![one.name.clone(), sharing(one), one.finished.to_string(), one.failed.to_string()];
        cells.extend(has_stopped.then(|| one.stopped.to_string()));
        cells.extend([
            mean(one.run_time_s, seconds),
            mean(one.peak_bytes, bytes),
            mean(one.sm_activity, share),
        ]);
        cells.extend(has_steps.then(|| mean(one.steps_per_s, rate)));
        cells.extend(has_energy.then(|| mean(one.energy_j, joules)));
        cells.extend(logged.iter().map(|name| mean(one.metrics.get(*name).copied(), number)));
        cells.extend(has_company.then(|| overlap(one)));
        cells.push(slowdown(one));
        cells.push(marks.join(" "));
        table.row(cells);
    }
    let mut lines = table.lines();
    if all.iter().any(|one| one.on_front) {
        lines.extend([
            String::new(),
            "* no other configuration has a shorter run time and less memory, beyond the intervals"
                .to_owned(),
        ]);
    }
    if all.iter().any(|one| one.on_energy_front) {
        lines.push(
            "+ no other configuration has a shorter run time and takes less energy, beyond the intervals"
                .to_owned(),
        );
    }
    lines.extend(winner(&all, by));
    lines.extend(groups(runs, &all));
    lines.extend(matrix(&all));
    lines.extend(notes(&all));
    lines.join("\n") + "\n"
}

/// The best configuration by a figure.
pub(super) fn winner(all: &[Configuration], by: &Metric) -> Option<String> {
    let Some(found) = report::best(all, by) else { return not_logged(all, by) };
    let best = found.first;
    let figure = match by {
        Metric::RunTime => format!("run time {}", mean(best.run_time_s, seconds)),
        Metric::PeakMemory => format!("peak memory {}", mean(best.peak_bytes, bytes)),
        Metric::SmActivity => format!("SM activity {}", mean(best.sm_activity, share)),
        Metric::Steps => format!("{} steps/s", mean(best.steps_per_s, rate)),
        Metric::Energy => format!("energy {}", mean(best.energy_j, joules)),
        Metric::Logged { name, .. } => {
            format!("{} {}", clean(name), mean(best.metrics.get(name).copied(), number))
        }
    };
    let named = |one: &Configuration| format!("{}, {}", clean(&one.name), clean(&sharing(one)));
    let alike: Vec<String> = found.alike.iter().take(MAX_ALIKE).map(|one| named(one)).collect();
    let more = match found.alike.len().saturating_sub(MAX_ALIKE) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(match alike.is_empty() {
        true => format!("best: {}: {figure}", named(best)),
        false => format!(
            "best: not distinguishable: {}: {figure}; its interval overlaps with {}{more}",
            named(best),
            alike.join("; ")
        ),
    })
}

/// Reason that no configuration is best by a logged metric.
fn not_logged(all: &[Configuration], by: &Metric) -> Option<String> {
    let Metric::Logged { name, .. } = by else { return None };
    let known = names(all);
    let hint = match known.is_empty() {
        true => "; the programs logged none by radrm.log_metric".to_owned(),
        false => {
            let known: Vec<_> = known.iter().map(|name| clean(name)).collect();
            format!("; logged are {}", known.join(", "))
        }
    };
    Some(format!("best: n/a, all runs of no configuration have a finite {}{hint}", clean(name)))
}

/// Names of all logged metrics.
fn names(all: &[Configuration]) -> BTreeSet<&str> {
    all.iter().flat_map(|one| one.metrics.keys()).map(String::as_str).collect()
}

/// Logged metrics that have a column: the one that decides, and the first of the others by name.
pub(super) fn logged<'c>(all: &'c [Configuration], by: &'c Metric) -> Vec<&'c str> {
    let known = names(all);
    let decides = match by {
        Metric::Logged { name, .. } => known.get(name.as_str()).copied(),
        _ => None,
    };
    let others = known.into_iter().filter(|name| Some(*name) != decides);
    decides.into_iter().chain(others).take(MAX_METRICS).collect()
}

/// A logged value, to four digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e5).contains(&size) => {
            let decimals = (3.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{value:.decimals$}")
        }
        _ => format!("{value:.3e}"),
    }
}

/// Notes for the reader of the figures.
pub(super) fn notes(all: &[Configuration]) -> Vec<String> {
    let has = |is: fn(&Configuration) -> bool| all.iter().any(is);
    let is_part = |one: &Configuration| one.company.is_some() || one.shares;
    let parts = has(|one| one.energy_j.is_some() || one.sm_activity.is_some()) && all.iter().any(is_part);
    let slower = has(|one| one.slowdown.is_some());
    let single = has(|one| one.run_time_s.is_some_and(|time| time.half.is_none()));
    let notes = [
        (slower, SLOWDOWN),
        (
            parts,
            "SM activity and energy of runs that shared a GPU: their part of the GPU's, by the times and shapes of the launches of each; n/a \
             where that is not known",
        ),
        (
            single && all.len() > 1,
            "figures of single runs have no interval: whether they differ by more than chance is not known (repetitions = 3)",
        ),
        (
            has(|one| one.stopped > 0),
            "early stopping ended some runs before their end: their figures are in no mean",
        ),
        (has(|one| one.profiled), "figures of runs under a profiler are not comparable with others"),
        (
            has(|one| one.emulated),
            "some runs were on emulated GPUs: their run times are not those of a real GPU",
        ),
    ];
    notes.iter().filter(|(is, _)| *is).map(|(_, note)| (*note).to_owned()).collect()
}

/// Meaning of a slowdown.
pub(super) const SLOWDOWN: &str =
    "slowdown: the time in which others were on the GPU, by that of the same work alone";

/// Meaning of a gain.
pub(super) const GAIN: &str =
    "gain: the run times of the members alone, one after another, by the time of all together";

/// The groups against their members one after another, if there are any.
fn groups(runs: &[Recorded], all: &[Configuration]) -> Vec<String> {
    let found = together(runs, &report::alone(all));
    if found.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new([
        left("GROUP"),
        left("MEMBERS"),
        right("TOGETHER"),
        right("ONE AFTER ANOTHER"),
        right("GAIN"),
    ]);
    for group in &found {
        table.row([
            group.group.clone(),
            members(group),
            mean(Some(group.time_s), seconds),
            mean(Some(group.in_turn_s), seconds),
            mean(Some(group.gain), factor),
        ]);
    }
    let lines = std::iter::once(String::new()).chain(table.lines());
    lines.chain([GAIN.to_owned()]).collect()
}

/// Members of a group and their way to share.
pub(super) fn members(group: &Together) -> String {
    let by = if group.collocation == "-" { String::new() } else { format!(" ({})", group.collocation) };
    format!("{}{by}", group.members.join(" + "))
}

/// The matrix of slowdowns, if there are any.
fn matrix(all: &[Configuration]) -> Vec<String> {
    let found = report::slowdowns(all);
    if found.rows.is_empty() {
        return Vec::new();
    }
    let titles = found.columns.iter().map(|column| right(clean(&company(Some(column))).into_owned()));
    let mut table = Table::new(std::iter::once(left("SLOWDOWN OF")).chain(titles));
    for (row, cells) in found.rows.iter().zip(&found.cells) {
        let cells =
            cells.iter().map(|cell| cell.map_or_else(|| "-".to_owned(), |cell| mean(Some(cell), factor)));
        table.row(std::iter::once(row.clone()).chain(cells));
    }
    std::iter::once(String::new()).chain(table.lines()).collect()
}

/// Every run with its parameters, and its figures without units in their values.
fn as_csv(runs: &[Recorded]) -> Result<String, Failure> {
    const FIRST: [&str; 6] = ["run", "group", "configuration", "repetition", "collocation", "profiled"];
    const LAST: [&str; 20] = [
        "state",
        "attempt",
        "start_unix_ms",
        "run_time_s",
        "exit_code",
        "signal",
        "reason",
        "peak_bytes",
        "sm_activity",
        "sm_activity_origin",
        "gpu_sm_activity",
        "launch_sm_activity",
        "emulated",
        "steps_per_s",
        "gpu_energy_j",
        "energy_part",
        "energy_j",
        "energy_origin",
        "overlap_s",
        "profile",
    ];
    let parameters: BTreeSet<&String> = runs.iter().flat_map(|run| run.parameters.keys()).collect();
    let metrics: BTreeSet<&String> = runs.iter().flat_map(|run| run.outcome.metrics.keys()).collect();
    let some = |value: Option<String>| value.unwrap_or_default();
    let mut rows = Vec::new();
    let titles = FIRST.iter().map(|title| (*title).to_owned());
    let titles = titles.chain(parameters.iter().map(|name| format!("param.{name}")));
    let titles = titles.chain(LAST.iter().map(|title| (*title).to_owned()));
    rows.push(titles.chain(metrics.iter().map(|name| format!("metric.{name}"))).collect::<Vec<_>>());
    for (run, own) in runs.iter().zip(own(runs)) {
        let end = &run.outcome;
        let first = [
            run.number.to_string(),
            run.group.clone(),
            run.configuration.clone(),
            run.repetition.to_string(),
            run.collocation.clone(),
            run.profiled.to_string(),
        ];
        let is_over = end.state.is_over();
        let last = [
            end.state.key().to_owned(),
            run.attempt.to_string(),
            some(is_over.then(|| end.started_ms.to_string())),
            some(is_over.then(|| format!("{}", end.duration_ms as f64 / 1000.0))),
            some(end.exit_code.map(|code| code.to_string())),
            some(end.signal.map(|signal| signal.to_string())),
            some(end.reason.clone()),
            some(end.peak_bytes.map(|bytes| bytes.to_string())),
            some(own.sm_activity.map(|share| format!("{share}"))),
            some(own.sm_origin),
            some(end.gpu_sm_activity.map(|share| format!("{share}"))),
            some(end.launch_sm_activity.map(|share| format!("{share}"))),
            some(is_over.then(|| end.emulated.to_string())),
            some(end.steps_per_s.map(|rate| format!("{rate}"))),
            some(end.gpu_energy_j.map(|energy| format!("{energy}"))),
            some(own.energy_part.filter(|_| end.gpu_energy_j.is_some()).map(|part| format!("{part}"))),
            some(own.energy_j.map(|joules| format!("{joules}"))),
            some(own.energy_origin),
            some(own.beside.map(|beside| format!("{}", beside.overlap_s))),
            some(end.profile.as_ref().map(|path| path.display().to_string())),
        ];
        let values = parameters.iter().map(|name| run.parameters.get(*name).cloned().unwrap_or_default());
        let logged =
            metrics.iter().map(|name| some(end.metrics.get(*name).map(|logged| format!("{}", logged.last))));
        rows.push(first.into_iter().chain(values).chain(last).chain(logged).collect());
    }
    Ok(report::csv_text(&rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_sweep::metrics::Logged;
    use radrm_sweep::store::{Outcome, State};

    fn run(number: u64, group: &str, configuration: &str, ms: u64) -> Recorded {
        Recorded {
            key: number.to_string(),
            number,
            group: group.into(),
            configuration: configuration.into(),
            parameters: [("batch".to_owned(), number.to_string())].into(),
            repetition: number as u32,
            collocation: "-".into(),
            attempt: 1,
            outcome: Outcome {
                state: State::Finished,
                duration_ms: ms,
                exit_code: Some(0),
                peak_bytes: Some(3 << 30),
                gpu_sm_activity: Some(0.5),
                gpu_sm_origin: Some("gpm".into()),
                ..Outcome::default()
            },
            ..Recorded::default()
        }
    }

    #[test]
    fn what_programs_log_of_themselves_is_shown_and_chosen_by() {
        let with = |last: f64, mut of: Recorded| {
            let logged = Logged { last, min: last, max: last, step: Some(3), count: 4 };
            of.outcome.metrics = [("val loss".to_owned(), logged)].into();
            of
        };
        let runs = [with(0.125, run(1, "a", "a", 9000)), with(0.0625, run(2, "b", "b", 11_000))];
        let by = metric("val loss:min").unwrap();
        let shown = text(&runs, &by);
        for part in ["val loss", "0.1250", "best: b, alone: val loss 0.06250"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let missing = text(&runs, &metric("accuracy:max").unwrap());
        assert!(missing.contains("best: n/a") && missing.contains("logged are val loss"), "{missing}");
        let csv = as_csv(&runs).unwrap();
        let lines: Vec<_> = csv.lines().collect();
        assert!(lines[0].ends_with(",profile,metric.val loss") && lines[1].ends_with(",,0.125"), "{csv}");
        let wrong = metric("runtime").unwrap_err().to_string();
        assert!(wrong.ends_with("; did you mean run-time?"), "{wrong}");
        assert_eq!(number(1234.5), "1234");
        assert_eq!(number(-1e-7), "-1.000e-7");
    }

    #[test]
    fn a_report_shows_means_with_intervals_and_the_best() {
        let runs = [run(1, "a", "a", 9000), run(2, "a", "a", 11_000), run(3, "b", "b, x", 20_000)];
        let shown = text(&runs, &Metric::RunTime);
        for part in [
            "10.00 s ± 12.71 s",
            "3.00 GiB ± 0 B",
            "50 % ± 0 %",
            "best: not distinguishable: a, alone: run time 10.00 s",
            "its interval overlaps with b, x, alone",
            "20.00 s  ",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let csv = as_csv(&runs).unwrap();
        let lines: Vec<_> = csv.lines().collect();
        assert!(
            lines[0]
                .starts_with("run,group,configuration,repetition,collocation,profiled,param.batch,state,")
        );
        assert!(
            lines[3]
                .starts_with("3,b,\"b, x\",3,-,false,3,finished,1,0,20,0,,,3221225472,0.5,gpm,0.5,,false,"),
            "{csv}"
        );
    }
}
