//! `radrm submit --dry-run`: what the driver would hold for the job, found out here and as its user before it is
//! submitted.

use std::io;
use std::os::fd::AsFd;
use std::process::Stdio;

use radrm_console::output::reason;
use radrm_emulator_machine::Models;
use radrm_launcher::dry_run::flags::USUAL_MACHINE;
use radrm_launcher::dry_run::trial::Trial;
use radrm_launcher::ending::Ending;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{GpuRow, NodeRow};
use radrm_protocol::words;
use radrm_scheduler_core::Bytes;
use radrm_scheduler_core::need::DryRun;
use serde::Deserialize;
use thiserror::Error;

/// The part of the report that counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    withheld: Option<String>,
    out_of_memory: u64,
    gpus: Vec<Held>,
}

#[derive(Debug, Deserialize)]
struct Held {
    held_peak: u64,
}

#[derive(Debug, Deserialize)]
struct Report {
    dry_run: Option<Summary>,
}

/// Why a dry run shows no need, as the end of a sentence.
#[derive(Debug, Error)]
pub(crate) enum TrialError {
    #[error("{what}: {}", reason(source))]
    Io { what: &'static str, source: io::Error },
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

/// Runs it for so many steps.
pub(crate) fn estimate(spec: &Spec, steps: u64, node: &NodeRow, quiet: bool) -> Result<DryRun, TrialError> {
    let cannot = |what| move |source| TrialError::Io { what, source };
    let (machine, model) = machine(spec, &node.gpus);
    let launcher = std::env::current_exe().map_err(cannot("radrm-run is not found"))?;
    let mut trial =
        Trial::new(&launcher.with_file_name("radrm-run"), steps).map_err(cannot("no room for its report"))?;
    // What it prints is not what the command says.
    let other = || match quiet {
        true => Ok(Stdio::null()),
        false => io::stderr().as_fd().try_clone_to_owned().map(Stdio::from),
    };
    let stream = |stream: io::Result<Stdio>| stream.map_err(cannot("no output"));
    trial
        .command
        .args(["--emulate", &machine, "--"])
        .args(spec.command.iter().filter_map(|word| words::decode(word)))
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(stream(other())?)
        .stderr(stream(other())?);
    let (ending, report) = trial.run().map_err(cannot("radrm-run cannot be started"))?;
    let summary = serde_json::from_value(report).ok().and_then(|report: Report| report.dry_run);
    let code = match ending {
        Ending::Exited(code) => Some(code),
        Ending::Killed { .. } => None,
    };
    Ok(DryRun { held: figure(summary, code)?, steps, gpu: model })
}

/// What the report comes to.
fn figure(report: Option<Summary>, code: Option<i32>) -> Result<Bytes, TrialError> {
    let ending = || code.map_or(TrialError::Killed, TrialError::Exited);
    let report = report.ok_or_else(ending)?;
    if let Some(why) = report.withheld {
        return Err(TrialError::Withheld(why));
    }
    if report.out_of_memory > 0 {
        return Err(TrialError::OutOfMemory);
    }
    // A run that fails early has not shown what it needs.
    if code != Some(0) {
        return Err(ending());
    }
    let bytes = report.gpus.iter().map(|gpu| gpu.held_peak).max().filter(|bytes| *bytes > 0);
    bytes.map(Bytes).ok_or(TrialError::NoGpuMemory)
}

/// The machine to emulate, and what it is called: the node's model, of several the largest.
fn machine(spec: &Spec, gpus: &[GpuRow]) -> (String, String) {
    let wanted = |gpu: &&GpuRow| spec.model.as_ref().is_none_or(|model| *model == gpu.model);
    let name = gpus.iter().filter(wanted).max_by_key(|gpu| gpu.total).map(|gpu| gpu.model.clone());
    let models = Models::known().ok();
    let id = name.as_ref().zip(models.as_ref()).and_then(|(name, models)| {
        models.gpu.iter().find(|model| model.name == *name).map(|model| model.id.clone())
    });
    let count = spec.gpus.max(1);
    match (id, name) {
        (Some(id), Some(name)) => (format!("{count}x{id}"), name),
        _ => {
            let usual = USUAL_MACHINE.trim_start_matches("1x");
            (format!("{count}x{usual}"), format!("{usual}, as this node's GPUs are not known"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(text: &str, code: Option<i32>) -> Result<Bytes, String> {
        let report: Report = serde_json::from_str(text).unwrap();
        super::figure(report.dry_run, code).map_err(|why| why.to_string())
    }

    #[test]
    fn a_figure_is_read_or_the_reason_why_there_is_none() {
        let text = r#"{"dry_run": {"withheld": null, "out_of_memory": 0, "gpus": [{"held_peak": 100}, {"held_peak": 400}]}}"#;
        assert_eq!(figure(text, Some(0)), Ok(Bytes(400)));
        for (text, code, part) in [
            (text, Some(3), "exit code 3"),
            (text, None, "killed"),
            ("{}", Some(127), "exit code 127"),
            (r#"{"dry_run": {"withheld": "cuX has no stand-in"}}"#, Some(0), "cuX"),
            (r#"{"dry_run": {"out_of_memory": 2, "gpus": [{"held_peak": 1}]}}"#, Some(1), "ran out of"),
            (r#"{"dry_run": {"gpus": []}}"#, Some(0), "took no GPU memory"),
        ] {
            let why = figure(text, code).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn the_nodes_own_model_is_emulated() {
        let gpu = |model: &str, total| GpuRow { model: model.to_owned(), total, ..GpuRow::default() };
        let gpus = [gpu("NVIDIA A100-SXM4-40GB", 40), gpu("NVIDIA H200", 141)];
        let spec = |model: Option<&str>| Spec { gpus: 2, model: model.map(str::to_owned), ..Spec::default() };
        assert_eq!(machine(&spec(None), &gpus).0, "2xH200");
        let (machine_, name) = machine(&spec(Some("NVIDIA A100-SXM4-40GB")), &gpus);
        assert_eq!((machine_.as_str(), name.as_str()), ("2xA100-40GB", "NVIDIA A100-SXM4-40GB"));
        assert!(machine(&spec(None), &[gpu("Some GPU", 1)]).1.contains("not known"));
    }
}
