//! Jobs from `.rad` files.

use std::path::{Path, PathBuf};

use radrm_base::batch;
use radrm_need::ModelSummary;
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::rad_file::{Form, RadError, RadFile, Run};

use super::asks::Asks;
use super::text;
use crate::Failure;
use crate::error::FileProblem;

/// Job that a file describes.
#[derive(Debug)]
pub(super) struct Rad {
    pub(super) spec: Spec,
    /// Options that its lines ask for.
    pub(super) asks: Asks,
    /// Steps of a dry run.
    pub(super) dry_run: Option<u64>,
    /// The file with its model's summary.
    pub(super) model: Option<PathBuf>,
    /// Line by which it would give a batch size.
    pub(super) batch_line: &'static str,
}

/// The job of a file.
pub(super) fn parse(text: &str) -> Result<Rad, RadError> {
    let file = RadFile::parse(text)?;
    let mut batch = file.batch;
    let command = match file.run {
        Run::Line { setup, command } => {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            batch = batch.or_else(|| batch::of_command(&words));
            vec!["/bin/bash".to_owned(), "-c".to_owned(), line(setup.as_deref(), &command)]
        }
        // The word behind the script's text is $0 of it.
        Run::Script { text } => {
            let mut words = interpreter(&text)?;
            words.extend(["-c".to_owned(), text, "job".to_owned()]);
            words
        }
    };
    let mut asks = Asks::of_file(&file.options)?;
    let model = asks.model_summary.take().or(file.model.map(PathBuf::from));
    let spec = Spec {
        command,
        gpus: file.gpus,
        mem: file.measured.map(|bytes| bytes.0),
        file_estimates: file.estimates,
        exclusive: file.exclusive,
        batch,
        ..Spec::default()
    };
    let batch_line = match file.form {
        Form::Ours | Form::Plain => "`#RADRM --batch-size=N`",
        Form::Printed => "`batch_size: N`",
        Form::Positional => "its sixth line",
    };
    Ok(Rad { spec, dry_run: asks.dry_run, asks, model, batch_line })
}

/// A shell that does a command.
pub(super) fn shell(command: &str) -> Vec<String> {
    vec!["/bin/bash".to_owned(), "-c".to_owned(), line(None, command)]
}

/// Defines `conda activate`, which is a function of the shell: conda's own words, from where the submitter has it.
const CONDA: &str = r#"hook="$("${CONDA_EXE:-conda}" shell.bash hook)" && eval "$hook" && "#;

/// Script of a shell for a set-up line and a command.
fn line(setup: Option<&str>, command: &str) -> String {
    // Each has its line, so that a comment behind the set-up ends with it. Where the set-up is not a whole command the
    // braces are an error, and nothing is run.
    let setup = setup.map_or_else(String::new, |setup| {
        let conda = if setup.split_whitespace().next() == Some("conda") { CONDA } else { "" };
        format!("{{ {conda}{setup}\n}} || exit\n")
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
pub(crate) fn summary(path: &Path) -> Result<ModelSummary, Failure> {
    /// Summaries have some hundred bytes for each layer.
    const MAX_SUMMARY: u64 = 64 << 20;
    let text = text::of_file(path, MAX_SUMMARY)?;
    let summary = ModelSummary::parse(&text).map_err(|error| FileProblem::Summary(error).of(path))?;
    Ok(ModelSummary { layers: Vec::new(), ..summary })
}

const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// The shell that a script names in its first line, with its options; bash where it names none.
fn interpreter(text: &str) -> Result<Vec<String>, RadError> {
    let Some(named) = text.lines().next().and_then(|line| line.strip_prefix("#!")) else {
        return Ok(vec!["/bin/bash".to_owned()]);
    };
    let words = || named.split_whitespace();
    let file_name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let program =
        words().find(|word| !word.starts_with('-') && file_name(word) != "env").unwrap_or("nothing");
    if !SHELLS.contains(&file_name(program).as_str()) {
        let what = format!(
            "a script of {program} is no shell script: submit it by `radrm submit -- {} FILE`",
            file_name(program)
        );
        return Err(RadError { line: 1, what });
    }
    // A dash by itself ends the options, and more follow.
    Ok(words().filter(|word| !["-", "--"].contains(word)).map(str::to_owned).collect())
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
        assert!(
            printed.command[2].ends_with("&& conda activate e\n} || exit\nexec env python t.py"),
            "{printed:?}"
        );
        assert_eq!((printed.gpus, printed.batch, printed.exclusive), (1, Some(32), true));
        let ours = parse("#!/bin/sh\n#RADRM --gpus=2 --gpu-mem=3GiB\nset -e\n./a\n").unwrap();
        let mut spec = ours.spec.clone();
        ours.asks.apply(&mut spec, Path::new("/"));
        assert_eq!((spec.gpus, spec.mem), (2, Some(3 << 30)));
        let ours = ours.spec;
        assert_eq!(ours.command[..2], ["/bin/sh", "-c"]);
        assert!(parse("").is_err());
    }

    #[test]
    fn a_files_peak_and_estimates_are_taken_over() {
        let of = |measured: &str, horus: &str, fake: &str, learned: &str| {
            let text = format!("#\n\nrun\nm\nd\n8\ncollocation\n1\n{measured}\n{horus}\n{fake}\n{learned}\n");
            let spec = parse(&text).unwrap().spec;
            let figures = spec.file_estimates.iter().map(|(name, bytes)| format!("{name} {}", bytes.mib()));
            (spec.mem.map(|bytes| bytes >> 20), figures.collect::<Vec<_>>().join(", "))
        };
        let none = "40000";
        assert_eq!(of("0", "100", "7000", none), (None, "faketensor 7000, horus 100".to_owned()));
        assert_eq!(of("0", none, none, "8000"), (None, "gpumemnet 8000".to_owned()));
        assert_eq!(of("5000", "9000", none, none), (Some(5000), "horus 9000".to_owned()), "measured");
        assert_eq!(of("0", none, none, none), (None, String::new()));
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
            ("cd /nowhere &&\necho never", ""),
            ("if true; then\necho never", ""),
            ("export A=4  # set it up\nsh -c 'echo $A'  # and run", "4\n"),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
        // A program takes the shell's place, so that it gets the job's signals itself.
        let two = said("echo $$\nsh -c 'echo $$' 2>&1");
        let [shell, program] = two.lines().collect::<Vec<_>>()[..] else { panic!("{two}") };
        assert_eq!(shell, program);
    }

    #[test]
    fn all_of_a_script_is_run_by_the_shell_that_it_names() {
        let command = |text: &str| parse(text).map(|rad| rad.spec.command);
        for (first, shell) in [
            ("#!/bin/bash", &["/bin/bash"][..]),
            ("#!/bin/bash -eu", &["/bin/bash", "-eu"]),
            ("#! /usr/bin/env -S bash -e", &["/usr/bin/env", "-S", "bash", "-e"]),
            ("#!/bin/sh -", &["/bin/sh"]),
            ("#!/bin/sh\n#RADRM --gpus=0", &["/bin/sh"]),
        ] {
            let text = format!("{first}\n# train\necho prepare\necho train\n");
            let words = command(&text).unwrap();
            assert_eq!(words, [shell, &["-c", &text, "job"]].concat(), "{first}");
            let out = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), "prepare\ntrain\n", "{first}");
        }
        for more in ["", "#RADRM --gpus=1\n"] {
            let error =
                command(&format!("#!/usr/bin/env python3\n{more}import train\n")).unwrap_err().to_string();
            assert!(
                error.contains("`radrm submit -- python3 FILE`") && error.lines().count() == 1,
                "{error}"
            );
        }
    }
}
