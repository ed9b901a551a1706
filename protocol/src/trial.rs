//! Result of a dry run, from its report.

use radrm_base::ProgramKind;
use radrm_need::{DryRun, StepFigures, StepPrediction};
use radrm_scheduler_core::Bytes;
use serde::Deserialize;
use thiserror::Error;

use crate::bounds::MAX_NAME;

/// A report of `radrm-run`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Report {
    /// `None`: it is not of a dry run.
    dry_run: Option<Summary>,
    #[serde(default)]
    gpus: Vec<Gpu>,
    #[serde(default)]
    processes: Vec<Process>,
}

/// The part of the report that counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Summary {
    withheld: Option<String>,
    out_of_memory: u64,
    kind: Option<String>,
    gpus: Vec<Held>,
    remarks: Vec<String>,
    step: Option<Step>,
}

/// Predicted step, on each card that could hold it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Step {
    card: String,
    host_seconds: Option<f64>,
    incomplete: Vec<String>,
    cards: Vec<OnCard>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct OnCard {
    card: String,
    #[serde(flatten)]
    figures: StepFigures,
}

impl Step {
    /// The prediction for the emulated card.
    fn prediction(&self) -> Option<StepPrediction> {
        let own = self.cards.iter().find(|own| own.card == self.card)?;
        StepPrediction::of(&own.figures, self.host_seconds, self.incomplete.is_empty())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Held {
    held_peak: u64,
    #[serde(default)]
    name: String,
}

/// A GPU of the emulated machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Gpu {
    name: String,
    total_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Process {
    frameworks: Vec<Framework>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Framework {
    name: String,
    #[serde(default)]
    version: Option<String>,
}

/// Result of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// Memory that the driver held on the GPU where that was most.
    pub held: Bytes,
    /// The kind of program; `None`: not known.
    pub kind: Option<ProgramKind>,
    /// Product name of that GPU; empty: not known.
    pub gpu: String,
    /// Its memory, if the report shows it.
    pub card: Option<Bytes>,
    /// Frameworks with their versions, as rows of the dataset name them.
    pub framework: Option<String>,
    /// Why the figure has no upper bound; `None`: it has one.
    pub no_bound: Option<String>,
    /// Predicted step on that GPU.
    pub step: Option<StepPrediction>,
}

impl Figure {
    /// The dry run that found it out, after so many steps on a GPU that is called so where the report names none.
    #[must_use]
    pub fn dry_run(self, steps: u64, gpu: String) -> DryRun {
        let Self { held, kind, gpu: shown, card, framework, no_bound, step } = self;
        let gpu = if shown.is_empty() { gpu } else { shown };
        DryRun {
            held,
            kind,
            steps,
            gpu,
            framework,
            card,
            no_bound,
            step: step.map(Box::new),
            background: false,
        }
    }
}

/// Reason that a dry run shows no need, as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum NoFigure {
    #[error("it ended with exit code {0}")]
    Exited(i32),
    #[error("it was killed")]
    Killed,
    #[error("it ran out of the memory of the GPU that was emulated")]
    OutOfMemory,
    #[error("the program took no GPU memory")]
    NoGpuMemory,
    /// The dry run's own reason.
    #[error("{0}")]
    Withheld(String),
}

/// Reads the result of a dry run from the report and the exit code.
/// `report` is `None` if there is none, `code` is `None` after a signal.
///
/// # Errors
/// Why there is no figure.
pub fn figure(report: Option<Report>, code: Option<i32>) -> Result<Figure, NoFigure> {
    let ending = || code.map_or(NoFigure::Killed, NoFigure::Exited);
    let Report { dry_run, gpus, processes } = report.ok_or_else(ending)?;
    let report = dry_run.ok_or_else(ending)?;
    if let Some(why) = report.withheld {
        return Err(NoFigure::Withheld(why));
    }
    if report.out_of_memory > 0 {
        return Err(NoFigure::OutOfMemory);
    }
    // A run that fails early has not shown what it needs.
    if code != Some(0) {
        return Err(ending());
    }
    let largest = report.gpus.iter().max_by_key(|gpu| gpu.held_peak).filter(|gpu| gpu.held_peak > 0);
    let largest = largest.ok_or(NoFigure::NoGpuMemory)?;
    let of_card = gpus.iter().find(|gpu| gpu.name == largest.name).map(|gpu| Bytes(gpu.total_bytes));
    Ok(Figure {
        held: Bytes(largest.held_peak),
        kind: report.kind.as_deref().and_then(ProgramKind::parse),
        gpu: largest.name.clone(),
        card: of_card.filter(|total| *total > Bytes::ZERO),
        framework: framework_list(&processes),
        no_bound: report.remarks.iter().find_map(|remark| remark.strip_prefix(NO_BOUND)).map(shortened),
        step: report.step.as_ref().and_then(Step::prediction),
    })
}

/// A reason, as long as a specification may have it.
fn shortened(why: &str) -> String {
    why[..why.floor_char_boundary(MAX_NAME)].to_owned()
}

/// Beginning of a remark that names why there is no upper bound.
const NO_BOUND: &str = "no bound: ";

/// Frameworks of all processes as a row of the dataset has them, each once with its versions.
fn framework_list(processes: &[Process]) -> Option<String> {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for Framework { name, version } in processes.iter().flat_map(|process| &process.frameworks) {
        let at = seen.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            seen.push((name, Vec::new()));
            seen.len() - 1
        });
        let version = version.as_deref().filter(|version| !seen[at].1.contains(version));
        seen[at].1.extend(version);
    }
    let words = |(name, versions): &(&str, Vec<&str>)| {
        format!("{name} {}", versions.join(", ")).trim_end().to_owned()
    };
    (!seen.is_empty()).then(|| seen.iter().map(words).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predicted_step_is_that_of_the_emulated_card() {
        let of = |incomplete: &str| {
            let text = format!(
                r#"{{"dry_run": {{"gpus": [{{"held_peak": 5, "name": "B"}}], "step": {{"number": 2, "card": "B", "host_seconds": 0.01,
                "incomplete": [{incomplete}], "cards": [
                {{"card": "A", "seconds": 0.2, "low": 0.1, "high": 0.3, "coverage": 0.9, "limit": "gpu",
                  "gpu_seconds": [0.2, 0.1, 0.3], "assumed": 0, "without_time": 0, "activity": [0.9, 0.9]}},
                {{"card": "B", "seconds": 0.1, "low": 0.08, "high": 0.125, "coverage": 0.9, "limit": "gpu",
                  "gpu_seconds": [0.1, 0.08, 0.125], "assumed": 0.1, "without_time": 0, "activity": [0.6, 0.3]}}]}}}}}}"#
            );
            figure(serde_json::from_str(&text).ok(), Some(0)).unwrap().dry_run(3, String::new()).step
        };
        let step = of("").unwrap();
        assert_eq!(step.time, Some([80_000_000, 100_000_000, 125_000_000]));
        assert_eq!((step.gpu[1], step.host), (100_000_000, Some(10_000_000)));
        assert_eq!((step.smact.0, step.drama.0, step.confidence.unwrap().0), (600, 300, 900));
        assert_eq!(of("\"functions were compiled\""), None, "the operators are not all that the step does");
    }

    #[test]
    fn a_figure_is_read_or_the_reason_why_there_is_none() {
        let of = |text: &str, code| figure(serde_json::from_str(text).ok(), code);
        let report = |kind: &str| {
            let figures =
                r#""withheld": null, "out_of_memory": 0, "gpus": [{"held_peak": 100}, {"held_peak": 400}]"#;
            format!(r#"{{"dry_run": {{{kind}{figures}}}}}"#)
        };
        for (kind, expected) in [
            ("", None),
            (r#""kind": "cudnn", "#, Some(ProgramKind::Cudnn)),
            (r#""kind": "of a later version", "#, None),
        ] {
            let figure = Figure { held: Bytes(400), kind: expected, ..Figure::default() };
            assert_eq!(of(&report(kind), Some(0)), Ok(figure));
        }
        let shown = r#"{"gpus": [{"name": "A", "total_bytes": 7}, {"name": "B", "total_bytes": 9, "uuid": "u"}],
            "processes": [{"pid": 3, "frameworks": [{"name": "PyTorch", "version": null}]},
                {"frameworks": [{"name": "PyTorch", "version": "2.15"}, {"name": "cuBLAS", "version": null}]}],
            "dry_run": {"remarks": ["slow", "no bound: shapes vary"], "gpus": [{"held_peak": 5, "name": "B"}]}}"#;
        let found = of(shown, Some(0)).unwrap().dry_run(3, "unknown".to_owned());
        let expected = DryRun {
            held: Bytes(5),
            steps: 3,
            gpu: "B".to_owned(),
            card: Some(Bytes(9)),
            framework: Some("PyTorch 2.15, cuBLAS".to_owned()),
            no_bound: Some("shapes vary".to_owned()),
            ..DryRun::default()
        };
        assert_eq!(found, expected);
        let long = shown.replace("shapes vary", &"\u{e9}".repeat(300));
        assert_eq!(
            of(&long, Some(0)).unwrap().no_bound,
            Some("\u{e9}".repeat(128)),
            "as much as a job may have"
        );
        let text = &report("")[..];
        for (text, code, part) in [
            (text, Some(3), "exit code 3"),
            (text, None, "killed"),
            ("{}", Some(127), "exit code 127"),
            ("cut off {", Some(1), "exit code 1"),
            (r#"{"dry_run": {"withheld": "cuX has no stand-in"}}"#, Some(0), "cuX"),
            (r#"{"dry_run": {"out_of_memory": 2, "gpus": [{"held_peak": 1}]}}"#, Some(1), "ran out of"),
            (r#"{"dry_run": {"gpus": []}}"#, Some(0), "took no GPU memory"),
        ] {
            let why = of(text, code).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }
}
