//! One dry run of a program of bench/published.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::reading::DryRun;
use super::table::{FOLDER, Row, STACKS};
use xtask::{shell, venv};

/// Seconds that a run has to end by itself after its time is up.
const GRACE: u64 = 30;

/// Builds what a dry run needs; gives its folder.
///
/// # Errors
/// It does not compile.
pub(super) fn build() -> Result<PathBuf> {
    let packages =
        ["radrm", "radrm-shim", "radrm-emulator-driver", "radrm-emulator-nvml", "radrm-emulator-toolkit"];
    let mut build = shell::cargo();
    build.args(["build", "--quiet"]).args(packages.iter().flat_map(|package| ["-p", package]));
    shell::run(&mut build)?;
    Ok(shell::target_dir().join("debug"))
}

/// Words of a program: environment variables, options of `radrm-run`, script, arguments.
struct Words<'a> {
    variables: Vec<(&'a str, &'a str)>,
    options: Vec<&'a str>,
    script: &'a str,
    arguments: Vec<&'a str>,
}

fn words(row: &Row) -> Result<Words<'_>> {
    let script = row.script()?;
    let all: Vec<&str> = row.program.split_whitespace().collect();
    let (before, rest) = all.split_at(all.iter().position(|word| *word == script).unwrap_or(0));
    let first_option = before.iter().position(|word| word.starts_with("--")).unwrap_or(before.len());
    Ok(Words {
        variables: before[..first_option].iter().filter_map(|word| word.split_once('=')).collect(),
        options: before[first_option..].to_vec(),
        script,
        arguments: rest[1..].to_vec(),
    })
}

/// Runs the program of a row. That it fails is an outcome and no error.
///
/// # Errors
/// The environment cannot be made, or `radrm-run` cannot be started.
pub(super) fn dry_run(row: &Row, programs: &Path, timeout: u64) -> Result<DryRun> {
    let Some((_, environment)) = STACKS.iter().find(|(name, _)| *name == row.stack) else {
        bail!("{}: no stack {}", row.id, row.stack)
    };
    let python = venv::make(environment)?.with_context(|| format!("no requirements of {}", row.stack))?;
    let words = words(row)?;
    let report = shell::target_dir().join("published/report.json");
    if report.exists() {
        fs::remove_file(&report).with_context(|| report.display().to_string())?;
    }
    eprintln!("+ {} on {}: {}", row.stack, row.card, row.program);
    let began = Instant::now();
    let output = shell::command("timeout")
        .args(["--kill-after=10", &(timeout + GRACE).to_string()])
        .arg(programs.join("radrm-run"))
        .args(["--dry-run", "--quiet", "--no-profile", "--no-dataset", "--emulate", &row.card])
        .args(["--timeout", &timeout.to_string()])
        .args(&words.options)
        .arg(format!("--json={}", report.display()))
        .arg("--")
        .arg(python)
        .arg(shell::root().join(FOLDER).join(words.script))
        .args(&words.arguments)
        .envs(words.variables.iter().copied())
        // Models have random weights of their configuration: nothing is looked up.
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .context("timeout")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        return Ok(DryRun::failed(&format!("{}: {last}", output.status), began.elapsed().as_secs()));
    }
    let text = fs::read(&report).with_context(|| report.display().to_string())?;
    let told: Value = serde_json::from_slice(&text)?;
    Ok(DryRun::read(&String::from_utf8_lossy(&output.stdout), &told))
}

#[cfg(test)]
mod tests {
    use super::super::table::Quantity;
    use super::*;

    #[test]
    fn variables_options_and_arguments_are_told_apart() {
        let row = Row {
            id: String::new(),
            kind: String::new(),
            source: String::new(),
            card: String::new(),
            stack: String::new(),
            program: "A=1 B=x=y --ranks 0 --world 8 a.py lora --batch 2".to_owned(),
            case: "-".to_owned(),
            quantity: Quantity::Active,
            published: 1.0,
            unit: "B".to_owned(),
            configuration: String::new(),
            after: String::new(),
        };
        let words = words(&row).unwrap();
        assert_eq!(words.variables, [("A", "1"), ("B", "x=y")]);
        assert_eq!(words.options, ["--ranks", "0", "--world", "8"]);
        assert_eq!(words.script, "a.py");
        assert_eq!(words.arguments, ["lora", "--batch", "2"]);
    }
}
