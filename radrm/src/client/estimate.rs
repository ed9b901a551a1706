//! `radrm estimate`: what a job needs, by the daemon that would run it, or without one by the user's own runs; or by
//! what a file states of it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use radrm_base::{Millis, Permille, SeenActivity};
use radrm_collector::dataset::Origin;
use radrm_need::{Bound, Known, Need, Needs};
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::Connection;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{EstimateRow, NodeRow};
use radrm_text::clean;
use serde_json::{Value, json};

use super::asks::Asks;
use super::features::Stated;
use super::own_runs::OwnRuns;
use super::{dry_run, node_need, queue, submit};
use crate::{Failure, NAME, print, print_json};

/// The flags as written.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    asks: Asks,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Read this database, and ask no daemon
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Estimate from the features in this TOML file: batch, dry_run_mib, [network], [estimates_mib], [[runs]]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Asks", "dataset", "file", "command"])]
    features: Option<PathBuf>,
    /// A file that describes the job
    #[arg(value_name = "FILE.rad")]
    file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<std::ffi::OsString>,
    /// The daemon that resolves the needs, and whose GPU model a dry run emulates.
    #[arg(skip)]
    pub(crate) socket: Option<PathBuf>,
}

/// Needs of a job, and the runs that they come from.
struct Estimated {
    needs: Needs,
    /// Answer of each estimator on the memory: the first is resolved.
    answers: Vec<(String, Need)>,
    history: History,
}

/// Source of the known runs of the program.
enum History {
    /// The user's, in a dataset.
    Own(Box<OwnRuns>),
    /// The daemon's.
    Daemon(Box<EstimateRow>),
    /// Runs that a file states.
    Stated(PathBuf, usize),
}

impl Estimated {
    fn own(spec: &Spec, dataset: Option<&Path>) -> Result<Self, Failure> {
        let own = OwnRuns::of(spec, dataset)?;
        Ok(Self::by(own, spec))
    }

    fn by(own: OwnRuns, spec: &Spec) -> Self {
        Self { needs: own.needs(spec), answers: own.answers(spec), history: History::Own(Box::new(own)) }
    }

    fn stated(path: PathBuf) -> Result<(Spec, Self), Failure> {
        let stated = Stated::of_file(&path)?;
        let spec = Spec { gpus: 1, batch: stated.batch, ..Spec::default() };
        let (needs, answers) = stated.resolve();
        Ok((spec, Self { needs, answers, history: History::Stated(path, stated.runs()) }))
    }

    /// As a submission of the job would be given; `None` where no daemon answers.
    fn by_daemon(spec: &Spec, socket: Option<&Path>) -> Option<Result<Self, ProtocolError>> {
        let found = node_need::with_own_runs(spec, socket)?;
        Some(found.map(|row| {
            let (needs, answers) = (row.needs.clone(), row.answers.clone());
            Self { needs, answers, history: History::Daemon(Box::new(row)) }
        }))
    }
}

/// Resolves the needs and prints them.
///
/// # Errors
/// [`Failure`]: the job is not described, or the dataset cannot be read.
pub(crate) fn run(flags: Flags) -> Result<(), Failure> {
    let Flags { asks, json, dataset, features, file, command, socket } = flags;
    if let Some(path) = features {
        let (spec, found) = Estimated::stated(path)?;
        return show(&spec, &found, json);
    }
    let (mut spec, steps, mut remarks) =
        submit::spec(submit::Flags { asks, file, command, ..submit::Flags::default() })?;
    if let Some(steps) = steps {
        // Without a daemon the usual GPU is emulated.
        let node = Connection::open(socket.as_deref()).map_err(Failure::from);
        let node =
            node.and_then(|mut daemon| queue::node(&mut daemon)).unwrap_or_else(|_| NodeRow::default());
        match dry_run::estimate(&spec, steps, &node, json) {
            Ok(held) => spec.dry_run = Some(held),
            Err(why) => remarks.push(format!("nothing is estimated by a dry run: {why}")),
        }
    }
    // A dataset that is named is read, whatever a daemon knows.
    let by_daemon = match &dataset {
        Some(_) => None,
        None => Estimated::by_daemon(&spec, socket.as_deref()),
    };
    let found = match by_daemon {
        Some(Ok(found)) => found,
        Some(Err(why)) => {
            remarks.push(format!("radrmd gives no estimate, so your own dataset is used: {why}"));
            Estimated::own(&spec, None)?
        }
        None => Estimated::own(&spec, dataset.as_deref())?,
    };
    remarks.iter().for_each(|sentence| radrm_text::output::say(NAME, sentence));
    show(&spec, &found, json)
}

fn show(spec: &Spec, found: &Estimated, json: bool) -> Result<(), Failure> {
    if json { print_json(&as_json(spec, found)) } else { print(&text(spec, found)) }
}

const UNKNOWN: &str = "n/a";

/// Advice where no memory is known; `None` for a job without GPUs, which needs none.
fn advice(spec: &Spec, needs: &Needs) -> Option<String> {
    let is_unknown = needs.memory.is_none() && spec.gpus > 0;
    is_unknown.then(|| {
        "run it once under `radrm-run` to measure it, or under `radrm-run --dry-run` to estimate it without a GPU"
            .to_owned()
    })
}

impl History {
    /// The runs that are known: how many, and on what; then where they are recorded.
    fn words(&self) -> String {
        let (runs, of) = match self {
            Self::Own(own) => {
                let origin = if own.origin() == Origin::Emulated { "on emulated GPUs" } else { "measured" };
                let file =
                    own.dataset.as_ref().map(|path| format!(" in {}", clean(&path.display().to_string())));
                (format!("{} {origin}", own.runs().len()), file.unwrap_or_default())
            }
            Self::Daemon(row) => {
                let origin = if row.emulated.is_some() { "on emulated " } else { "measured on " };
                let model =
                    row.model.as_deref().map_or_else(|| "GPUs".to_owned(), |model| clean(model).into_owned());
                (format!("{} {origin}{model}", row.runs), " in radrmd's history".to_owned())
            }
            Self::Stated(path, runs) => return format!("{runs} in {}", clean(&path.display().to_string())),
        };
        let none = match self {
            Self::Own(own) if own.is_edited() => "the script was changed after all of its runs and dry runs",
            _ => "no runs of this program yet",
        };
        let runs = if self.count() == 0 { none.to_owned() } else { runs };
        format!("{runs}{of}")
    }

    fn count(&self) -> usize {
        match self {
            Self::Own(own) => own.runs().len(),
            Self::Daemon(row) => row.runs as usize,
            Self::Stated(_, runs) => *runs,
        }
    }

    /// Origin of the runs, as the dataset names it.
    fn origin(&self) -> Origin {
        match self {
            Self::Own(own) => own.origin(),
            Self::Daemon(row) if row.emulated.is_some() => Origin::Emulated,
            Self::Daemon(_) | Self::Stated(..) => Origin::Measured,
        }
    }
}

fn enforcement(need: &Need) -> &'static str {
    if need.enforce { "enforced as the job's limit" } else { "reserved, not enforced" }
}

fn text(spec: &Spec, Estimated { needs, answers, history }: &Estimated) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| _ = writeln!(text, "{name:<12}{value}");
    if !spec.command.is_empty() {
        line("program", &clean(&spec.command.join(" ")));
        line("directory", &clean(&spec.cwd.display().to_string()));
        line("GPUs", &spec.gpus.to_string());
    }
    line("batch size", &spec.batch_size().map_or_else(|| UNKNOWN.to_owned(), |size| size.to_string()));
    line("runs", &history.words());
    match &needs.memory {
        Some(need) => {
            let bound = match need.no_bound() {
                Some(_) => ", without a bound".to_owned(),
                None if need.upper > need.bytes => format!(", at most {}", need.upper),
                None => String::new(),
            };
            let confidence =
                need.shown_confidence().map(|part| format!(" ({part} confidence)")).unwrap_or_default();
            line("memory", &format!("{} on each GPU{bound}{confidence}", need.bytes));
            line("", &format!("{}; {}", clean(&need.source.to_string()), enforcement(need)));
            if let Some(why) = need.no_bound() {
                line("", &clean(&format!("no bound: {why}")));
            }
        }
        None => line("memory", UNKNOWN),
    }
    for (_, need) in answers.iter().skip(1) {
        let upper = match need.no_bound() {
            Some(_) => "an unknown bound".to_owned(),
            None => need.upper.to_string(),
        };
        line("not used", &clean(&format!("{} to {upper}: {}", need.bytes, need.source)));
    }
    line("activity", &needs.activity.as_ref().map_or_else(|| UNKNOWN.to_owned(), activity));
    line("run time", &needs.run_time.as_ref().map_or_else(|| UNKNOWN.to_owned(), run_time));
    if let Some(advice) = advice(spec, needs) {
        let _ = writeln!(text, "\n{advice}");
    }
    text
}

/// An activity with its source. A prediction has ends, and no occupancy.
pub(super) fn activity(found: &Known<SeenActivity>) -> String {
    let SeenActivity { smact, smocc, drama } = found.value;
    let part = |part: Option<Permille>| part.map_or_else(|| "n/a".to_owned(), |part| part.to_string());
    let known = |part: Option<Permille>| match part {
        Some(part) => part.to_string(),
        None => "n/a (not measured)".to_owned(),
    };
    let figures = match &found.bound {
        Some(Bound { low, high, .. }) => format!(
            "SM activity {smact} ({} to {}), DRAM activity {} ({} to {})",
            low.smact,
            high.smact,
            part(drama),
            part(low.drama),
            part(high.drama)
        ),
        None => format!("SM activity {smact}, SM occupancy {}, DRAM activity {}", known(smocc), known(drama)),
    };
    clean(&format!("{figures}: {}", found.source)).into_owned()
}

/// A run time with its source.
pub(super) fn run_time(found: &Known<Millis>) -> String {
    let bound = found.bound.as_ref().map_or_else(String::new, |Bound { low, high, confidence }| {
        let confidence = confidence.map_or_else(String::new, |part| format!(", {part} confidence"));
        format!(" ({low} to {high}{confidence})")
    });
    clean(&format!("{}{bound}: {}", found.value, found.source)).into_owned()
}

fn as_json(spec: &Spec, Estimated { needs, answers, history }: &Estimated) -> Value {
    let fraction = |part: Permille| f64::from(part.0) / 1000.0;
    let upper = |need: &Need| need.no_bound().is_none().then_some(need.upper.0);
    json!({
        "command": spec.command,
        "cwd": spec.cwd,
        "gpus": spec.gpus,
        "batch_size": spec.batch_size(),
        "history": match history {
            History::Own(_) => "dataset",
            History::Daemon(_) => "radrmd",
            History::Stated(..) => "features",
        },
        "dataset": match history {
            History::Own(own) => own.dataset.as_deref(),
            History::Daemon(_) | History::Stated(..) => None,
        },
        "runs": history.count(),
        "runs_origin": (history.count() > 0).then(|| history.origin()),
        "memory": needs.memory.as_ref().map(|need| json!({
            "bytes": need.bytes.0,
            "upper_bytes": upper(need),
            "confidence": need.confidence.filter(|_| need.no_bound().is_none()).map(fraction),
            "no_bound": need.no_bound(),
            "source": need.source,
            "source_text": need.source.to_string(),
            "enforced": need.enforce,
        })),
        "answers": answers.iter().map(|(name, need)| json!({
            "estimator": name,
            "bytes": need.bytes.0,
            "upper_bytes": upper(need),
            "confidence": need.confidence.filter(|_| need.no_bound().is_none()).map(fraction),
            "source": need.source,
        })).collect::<Vec<_>>(),
        "activity": needs.activity.as_ref().map(|known| json!({
            "smact": fraction(known.value.smact),
            // Launches show no DRAM activity; occupancy is not predicted.
            "smocc": known.value.smocc.map(fraction),
            "drama": known.value.drama.map(fraction),
            "bound": known.bound.map(|Bound { low, high, .. }| json!({
                "smact": [fraction(low.smact), fraction(high.smact)],
                "drama": low.drama.zip(high.drama).map(|(low, high)| [fraction(low), fraction(high)]),
            })),
            "predicted": known.source.is_predicted(),
            "source": known.source,
            "source_text": known.source.to_string(),
        })),
        "run_time": needs.run_time.as_ref().map(|known| json!({
            "seconds": known.value.as_secs_f64(),
            "bound_seconds": known.bound.map(|bound| [bound.low, bound.high].map(Millis::as_secs_f64)),
            "confidence": known.bound.and_then(|bound| bound.confidence).map(fraction),
            "predicted": known.source.is_predicted(),
            "source": known.source,
            "source_text": known.source.to_string(),
        })),
        "advice": advice(spec, needs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_collector::dataset::{Dataset, Row};
    use radrm_need::Source;

    fn spec(line: &str) -> Spec {
        let command = line.split(' ').map(str::to_owned).collect();
        Spec { command, cwd: "/work".into(), gpus: 1, ..Spec::default() }
    }

    fn row(line: &str, peak: u64, origin: Origin) -> Row {
        let Spec { command, cwd, .. } = spec(line);
        Row {
            origin,
            uid: rustix::process::getuid().as_raw(),
            emulated: (origin != Origin::Measured).then(|| "1xT4".to_owned()),
            run_time_ns: 90_000_000_000,
            footprint_bytes: Some(peak),
            complete: true,
            smact_permille: Some(455),
            ..Row::of_command(&command, &cwd, 1)
        }
    }

    fn resolved(line: &str, path: &Path) -> (String, Value) {
        let spec = spec(line);
        let found = Estimated::own(&spec, Some(path)).unwrap();
        (text(&spec, &found), as_json(&spec, &found))
    }

    #[test]
    fn equal_runs_give_the_peak_and_other_batch_sizes_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let mut dataset = Dataset::open(&path).unwrap();
        for (line, peak) in [("t --bs 8", 4 << 30), ("t --bs 8", 5 << 30), ("t --bs 16", 7 << 30)] {
            dataset.add(&row(line, peak, Origin::Measured), None).unwrap();
        }
        let (text, json) = resolved("t --bs 8", &path);
        for part in [
            "5.00 GiB on each GPU",
            "2 equal runs; enforced",
            "SM activity 45.5 %, SM occupancy n/a (not measured), DRAM activity n/a (not measured)",
            "run time    ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            (&json["memory"]["bytes"], &json["memory"]["enforced"]),
            (&json!(5_u64 << 30), &json!(true))
        );
        assert_eq!((&json["run_time"]["seconds"], &json["runs"]), (&json!(90.0), &json!(3)));
        let (text, json) = resolved("t --bs 12", &path);
        assert!(text.contains("at most") && text.contains("2 other batch sizes"), "{text}");
        let upper = json["memory"]["upper_bytes"].as_u64().unwrap();
        assert!((6 << 30..=(7 << 30) / 100 * 101).contains(&upper), "{upper}");
        // The user's word comes first, and what it stands beside is shown.
        let spec = Spec { mem: Some(9 << 30), ..spec("t --bs 12") };
        let found = Estimated::own(&spec, Some(&path)).unwrap();
        let shown = super::text(&spec, &found);
        assert!(shown.contains("9.00 GiB on each GPU") && shown.contains("not used    "), "{shown}");
        let json = as_json(&spec, &found);
        let names = json["answers"].as_array().unwrap().iter().map(|one| one["estimator"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["declared", "combined"]);
    }

    #[test]
    fn a_dry_run_without_a_bound_gets_none_here_as_in_its_report() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let why = "the lengths of its batches vary";
        let dry_run = radrm_need::DryRun {
            held: radrm_base::Bytes(3 << 30),
            gpu: "T4".into(),
            no_bound: Some(why.to_owned()),
            ..Default::default()
        };
        let row = Row { dry_run: Some(dry_run), ..row("t", 3 << 30, Origin::DryRun) };
        Dataset::open(&path).unwrap().add(&row, None).unwrap();
        let (text, json) = resolved("t", &path);
        assert!(text.contains(", without a bound\n") && text.contains(&format!("no bound: {why}")), "{text}");
        assert!(!text.contains("at most") && !text.contains("confidence"), "{text}");
        let memory = &json["memory"];
        assert_eq!((&memory["upper_bytes"], &memory["confidence"]), (&Value::Null, &Value::Null));
        assert_eq!(memory["no_bound"], why);
    }

    #[test]
    fn a_program_that_never_ran_gets_predicted_time_and_activity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let ns = [80_000_000, 100_000_000, 125_000_000];
        let step =
            json!({"gpu": ns, "low": ns[0], "time": ns, "confidence": 900, "smact": 600, "drama": 300});
        let dry_run = radrm_need::DryRun {
            held: radrm_base::Bytes(3 << 30),
            step: serde_json::from_value(step).unwrap(),
            ..Default::default()
        };
        let row = Row { dry_run: Some(dry_run), ..row("t", 3 << 30, Origin::DryRun) };
        Dataset::open(&path).unwrap().add(&row, None).unwrap();
        let spec = Spec { total_steps: Some(36_000), ..spec("t") };
        let found = Estimated::own(&spec, Some(&path)).unwrap();
        let shown = text(&spec, &found);
        for part in [
            "SM activity 60 % (48 % to 75 %), DRAM activity 30 % (24 % to 37.5 %): predicted from a dry run's step",
            ", 90 % confidence): predicted from a dry run's step on an emulated GPU, 36000 times",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let json = as_json(&spec, &found);
        assert_eq!(json["run_time"]["bound_seconds"], json!([2880.0, 4500.0]));
        let activity = &json["activity"];
        assert_eq!((&activity["smocc"], &activity["predicted"]), (&Value::Null, &json!(true)));
    }

    #[test]
    fn emulated_runs_count_only_without_measured_ones_and_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let mut dataset = Dataset::open(&path).unwrap();
        dataset.add(&row("t", 3 << 30, Origin::DryRun), None).unwrap();
        let (text, json) = resolved("t", &path);
        let memory = &json["memory"];
        let [bytes, upper] = ["bytes", "upper_bytes"].map(|name| memory[name].as_u64().unwrap());
        assert!(bytes > 3 << 30 && upper > bytes && upper < 5 << 30, "{memory}");
        assert_eq!(
            (&memory["enforced"], &memory["source"]["combined"]["stretch"]),
            (&json!(false), &json!(1000))
        );
        assert!(text.contains("dry run") && text.contains("not enforced"), "{text}");
        dataset.add(&row("t", 2 << 30, Origin::Emulated), None).unwrap();
        let (text, json) = resolved("t", &path);
        assert_eq!(json["memory"]["bytes"], json!(2_u64 << 30));
        assert!(text.contains("1 on emulated GPUs"), "{text}");
        assert_eq!(OwnRuns::of(&spec("t"), Some(&path)).unwrap().estimate(&spec("t")), None);
        dataset.add(&row("t", 1 << 30, Origin::Measured), None).unwrap();
        assert_eq!(resolved("t", &path).1["memory"]["bytes"], json!(1_u64 << 30));
        let estimate = OwnRuns::of(&spec("t"), Some(&path)).unwrap().estimate(&spec("t")).unwrap();
        assert_eq!((estimate.bytes.0, estimate.source), (1 << 30, Some(Source::EqualRuns { runs: 1 })));
    }

    #[test]
    fn an_edited_script_is_another_program() {
        let dir = tempfile::tempdir().unwrap();
        let (path, script) = (dir.path().join("d.db"), dir.path().join("train.py"));
        let line = format!("python3 {}", script.display());
        let changed_at = |seconds| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            std::fs::File::create(&script).unwrap().set_modified(time).unwrap();
        };
        let at = |seconds: u64, peak, origin| Row {
            start_unix_ns: seconds * 1_000_000_000,
            ..row(&line, peak, origin)
        };
        let mut dataset = Dataset::open(&path).unwrap();
        dataset.add(&at(1000, 6 << 30, Origin::Measured), None).unwrap();
        dataset.add(&at(1001, 6 << 30, Origin::DryRun), None).unwrap();
        changed_at(999);
        assert_eq!(resolved(&line, &path).1["memory"]["bytes"], json!(6_u64 << 30));
        changed_at(2000);
        let (text, json) = resolved(&line, &path);
        assert!(json["memory"].is_null(), "{json}");
        assert!(text.contains("the script was changed after all of its runs and dry runs"), "{text}");
        dataset.add(&at(2001, 4 << 30, Origin::Measured), None).unwrap();
        let (text, json) = resolved(&line, &path);
        assert_eq!((&json["memory"]["bytes"], &json["runs"]), (&json!(4_u64 << 30), &json!(1)), "{text}");
    }

    #[test]
    fn without_runs_the_answer_says_what_to_do() {
        let spec = spec("t");
        let found = Estimated::by(OwnRuns::default(), &spec);
        let text = text(&spec, &found);
        assert!(
            text.contains("no runs of this program yet") && text.contains("radrm-run --dry-run"),
            "{text}"
        );
        let json = as_json(&spec, &found);
        assert!(json["memory"].is_null() && json["advice"].is_string(), "{json}");
    }
}
