//! What the report of a dry run comes to.

use radrm_base::ProgramKind;
use radrm_scheduler_core::Bytes;
use serde::Deserialize;
use thiserror::Error;

/// A report of `radrm-run`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Report {
    /// `None`: it is not of a dry run.
    dry_run: Option<Summary>,
}

/// The part of the report that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Summary {
    withheld: Option<String>,
    out_of_memory: u64,
    kind: Option<String>,
    gpus: Vec<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Held {
    held_peak: u64,
}

/// What a dry run found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What the driver held on the GPU where that was most.
    pub held: Bytes,
    /// The kind of program; `None` in reports of older versions.
    pub kind: Option<ProgramKind>,
}

/// Why a dry run shows no need, as the end of a sentence.
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

/// What a dry run found out, by the report (`None`: there is none) and the exit code (`None`: a signal).
///
/// # Errors
/// Why there is no figure.
pub fn figure(report: Option<Report>, code: Option<i32>) -> Result<Figure, NoFigure> {
    let ending = || code.map_or(NoFigure::Killed, NoFigure::Exited);
    let report = report.and_then(|report| report.dry_run).ok_or_else(ending)?;
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
    let bytes = report.gpus.iter().map(|gpu| gpu.held_peak).max().filter(|bytes| *bytes > 0);
    let kind = report.kind.as_deref().and_then(ProgramKind::parse);
    bytes.map(|bytes| Figure { held: Bytes(bytes), kind }).ok_or(NoFigure::NoGpuMemory)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(of(&report(kind), Some(0)), Ok(Figure { held: Bytes(400), kind: expected }));
        }
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
