//! Jobs from `.rad` files.

use std::fs;
use std::path::{Path, PathBuf};

use radrm_scheduler_core::estimator::ModelSummary;
use radrm_scheduler_core::rad_file::{Form, RadFile, Run};

use crate::daemon::needs;
use crate::daemon::spec::Spec;

/// The estimate that is believed where a file has several: measured or learned ones before formulas.
const ESTIMATORS: [&str; 3] = ["gpumemnet", "faketensor", "horus"];

/// What a file says.
#[derive(Debug)]
pub(super) struct Rad {
    pub(super) spec: Spec,
    /// The file with its model's summary.
    pub(super) model: Option<PathBuf>,
    /// How it would give a batch size.
    pub(super) batch_line: &'static str,
}

/// The job of a file.
pub(super) fn parse(text: &str) -> Result<Rad, String> {
    let file = RadFile::parse(text).map_err(|error| error.to_string())?;
    let mut batch = file.batch;
    let command = match file.run {
        Run::Line { setup, command } => {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            batch = batch.or_else(|| needs::named_batch(&words));
            vec!["/bin/bash".to_owned(), "-c".to_owned(), line(setup.as_deref(), &command)]
        }
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
    let model = file.model.map(PathBuf::from);
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
        batch,
        ..Spec::default()
    };
    let batch_line = match file.form {
        Form::Ours => "`#RADRM --batch-size=N`",
        Form::Printed => "`batch_size: N`",
        Form::Positional => "its sixth line",
    };
    Ok(Rad { spec, model, batch_line })
}

/// Defines `conda activate`, which is a function of the shell: conda's own words, from where the submitter has it.
const CONDA: &str = r#"hook="$("${CONDA_EXE:-conda}" shell.bash hook)" && eval "$hook" && "#;

/// What a shell does for a set-up line and a command.
fn line(setup: Option<&str>, command: &str) -> String {
    let setup = setup.map_or_else(String::new, |setup| {
        let conda = if setup.split_whitespace().next() == Some("conda") { CONDA } else { "" };
        format!("{conda}{setup} && ")
    });
    // A job's signals are its program's: a shell that waited for it would die of them first. Of several commands
    // only a shell knows the order.
    let without_redirections =
        [">&", "<&", "&>"].iter().fold(command.to_owned(), |text, word| text.replace(word, ""));
    if without_redirections.contains([';', '&', '|']) {
        format!("{setup}{command}")
    } else {
        // It takes NAME=VALUE words before the program, as a shell's line may have them.
        format!("{setup}exec env {command}")
    }
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
        let Rad { spec: printed, model, .. } = printed.unwrap();
        assert_eq!(model, Some("m.txt".into()));
        assert_eq!(printed.command[..2], ["/bin/bash", "-c"]);
        assert!(printed.command[2].ends_with("&& conda activate e && exec env python t.py"), "{printed:?}");
        assert_eq!((printed.gpus, printed.batch, printed.exclusive), (1, Some(32), true));
        let ours = parse("#!/bin/sh\n#RADRM --gpus=2 --gpu-mem=3GiB\nset -e\n./a\n").unwrap().spec;
        assert_eq!((ours.gpus, ours.mem), (2, Some(3 << 30)));
        assert_eq!(ours.command[..2], ["/bin/sh", "-c"]);
        assert!(parse("").is_err());
    }

    #[test]
    fn a_line_is_what_a_shell_would_make_of_it() {
        let said = |text: &str| {
            let command = parse(&format!("{text}\npolicy: collocation\n")).unwrap().spec.command;
            let out = std::process::Command::new(&command[0])
                .args(&command[1..])
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .output()
                .unwrap();
            String::from_utf8(out.stdout).unwrap()
        };
        for (text, expected) in [
            ("echo 'a  b'", "a  b\n"),
            ("A=1 B='2 3' sh -c 'echo $A $B'", "1 2 3\n"),
            ("cd / && pwd", "/\n"),
            ("echo a | tr a b", "b\n"),
            ("A=4\nsh -c 'echo $A'", "\n"),
            ("export A=4\nsh -c 'echo $A'", "4\n"),
            ("false\necho never", ""),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
        // A program takes the shell's place, so that it gets the job's signals itself.
        let two = said("echo $$\nsh -c 'echo $$' 2>&1");
        let [shell, program] = two.lines().collect::<Vec<_>>()[..] else { panic!("{two}") };
        assert_eq!(shell, program);
    }
}
