//! `radrm submit --dry-run`: what the driver would hold for the job, found out here and as its user before it is
//! submitted.

use std::io;
use std::os::fd::AsFd;
use std::process::Stdio;

use radrm_base::reason;
use radrm_emulator_machine::Models;
use radrm_launcher::dry_run::trial::Trial;
use radrm_launcher::ending::Ending;
use radrm_need::DryRun;
use radrm_protocol::spec::Spec;
use radrm_protocol::trial::{self, NoFigure};
use radrm_protocol::wire::{GpuRow, NodeRow};
use radrm_protocol::words;
use thiserror::Error;

/// Reason that a dry run shows no need, as the end of a sentence.
#[derive(Debug, Error)]
pub(crate) enum TrialError {
    #[error("{what}: {}", reason(source))]
    Io { what: &'static str, source: io::Error },
    #[error(transparent)]
    NoFigure(#[from] NoFigure),
}

impl crate::error::CommandError for TrialError {}

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
    let code = match ending {
        Ending::Exited(code) => Some(code),
        Ending::Killed { .. } => None,
    };
    // Pairs are found by what the dry run itself shows of its GPU and its frameworks.
    Ok(trial::figure(serde_json::from_value(report).ok(), code)?.dry_run(steps, model))
}

/// The machine to emulate, and what it is called: the node's model, of several the largest.
fn machine(spec: &Spec, gpus: &[GpuRow]) -> (String, String) {
    let wanted = |gpu: &&GpuRow| spec.model.as_ref().is_none_or(|model| *model == gpu.model);
    let name = gpus.iter().filter(wanted).max_by_key(|gpu| gpu.total).map(|gpu| gpu.model.clone());
    Models::machine_for(spec.gpus.max(1), name)
}

#[cfg(test)]
mod tests {
    use super::*;

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
