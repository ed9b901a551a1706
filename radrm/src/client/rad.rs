//! Jobs from `.rad` files.

use std::fs;
use std::path::{Path, PathBuf};

use radrm_scheduler_core::estimator::ModelSummary;
use radrm_scheduler_core::rad_file::{RadFile, Run};

use crate::daemon::spec::Spec;

/// The estimate that is believed where a file has several: measured or learned ones before formulas.
const ESTIMATORS: [&str; 3] = ["gpumemnet", "faketensor", "horus"];

/// The job of a file, and the file with its model's summary if it names one.
pub(super) fn parse(text: &str) -> Result<(Spec, Option<PathBuf>), String> {
    let file = RadFile::parse(text).map_err(|error| error.to_string())?;
    let shell = |line: String| {
        // Conda's command is a shell function: only a login or interactive shell has it.
        vec!["/bin/bash".to_owned(), "-lc".to_owned(), line]
    };
    let command = match file.run {
        Run::Line { setup: None, command } => shell(format!("exec {command}")),
        Run::Line { setup: Some(setup), command } => shell(format!("{setup} && exec {command}")),
        // The words behind the script's text are $0 of it.
        Run::Script { text } => match interpreter(&text) {
            Some(mut words) => {
                words.extend(["-c".to_owned(), text, "job".to_owned()]);
                words
            }
            None => vec!["/bin/bash".to_owned(), "-c".to_owned(), text, "job".to_owned()],
        },
    };
    let estimate = ESTIMATORS
        .iter()
        .find_map(|name| file.estimates.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)));
    let mem = file.measured.or(estimate.map(|(_, bytes)| *bytes)).map(|bytes| bytes.0);
    let summary = file.model.map(PathBuf::from);
    let spec = Spec {
        name: file.name.unwrap_or_default(),
        command,
        gpus: file.gpus,
        mem,
        share: file.share.map(|share| share.0),
        exclusive: file.exclusive,
        model: file.gpu_model,
        priority: file.priority,
        time_limit_ms: file.time_limit.map(|time| time.0),
        slot_ms: file.slot.map(|time| time.0),
        cpu_milli: file.host.cpu_milli,
        host_memory: file.host.memory.0,
        preemptible: file.preemptible,
        checkpoint_signal: file.checkpoint_signal,
        grace_ms: file.grace.map(|time| time.0),
        batch: file.batch,
        ..Spec::default()
    };
    Ok((spec, summary))
}

/// Reads a model's summary; its layers are not needed.
pub(super) fn summary(path: &Path) -> Result<ModelSummary, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: {}", path.display(), crate::output::reason(&error)))?;
    let summary = ModelSummary::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(ModelSummary { layers: Vec::new(), ..summary })
}

/// The shell that a script names in its first line.
fn interpreter(text: &str) -> Option<Vec<String>> {
    let words: Vec<String> =
        text.lines().next()?.strip_prefix("#!")?.split_whitespace().map(str::to_owned).collect();
    let shell = words.last()?.rsplit('/').next()?;
    ["sh", "bash", "dash", "zsh", "ksh"].contains(&shell).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_become_jobs() {
        let printed =
            parse("# mlp\nconda activate e\npython t.py\nmodel: m.txt\nbatch_size: 32\npolicy: exclusive\n");
        let (printed, model) = printed.unwrap();
        assert_eq!(model, Some("m.txt".into()));
        assert_eq!(printed.command, ["/bin/bash", "-lc", "conda activate e && exec python t.py"]);
        assert_eq!((printed.gpus, printed.batch, printed.exclusive), (1, Some(32), true));
        let (ours, _) = parse("#!/bin/sh\n#RADRM --gpus=2 --gpu-mem=3GiB\nset -e\n./a\n").unwrap();
        assert_eq!((ours.gpus, ours.mem), (2, Some(3 << 30)));
        assert_eq!(ours.command[..2], ["/bin/sh", "-c"]);
        assert!(parse("").is_err());
    }
}
