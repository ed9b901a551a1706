//! `cargo xtask test`.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Result, bail};

use crate::{genuine, shell, tidy, venv};

/// Options of `test`.
#[derive(clap::Args)]
pub struct Flags {
    /// Leave out the checks of conventions.
    #[arg(long)]
    no_tidy: bool,
    /// Leave out the model checker.
    #[arg(long)]
    no_loom: bool,
    /// Leave out the Python clients.
    #[arg(long)]
    no_venv: bool,
    /// Further arguments for the test runner, for instance a filter.
    #[arg(last = true)]
    runner: Vec<String>,
}

/// Builds, checks, and tests; the runner comes last so that its summary ends the output.
pub fn run(flags: &Flags) -> Result<()> {
    let mut failed = Vec::new();
    // Most of the time that an environment takes is waiting for its download.
    let environments = (!flags.no_venv).then(|| thread::spawn(|| [&venv::CLIENTS, &venv::TORCH].map(python)));
    let genuine = thread::spawn(|| {
        genuine::fetch()
            .inspect_err(|error| {
                eprintln!("xtask: only recorded answers of the genuine driver are compared: {error:#}")
            })
            .ok()
    });
    // Tests start programs and preload libraries of the whole workspace, so these must be there
    // and fresh before any test runs.
    shell::run(shell::cargo().args(["build", "--workspace"]))?;
    if !flags.no_tidy
        && let Err(error) = tidy::run(&tidy::Flags::after_build())
    {
        eprintln!("xtask: {error:#}");
        failed.push("tidy");
    }
    if !flags.no_loom
        && let Err(error) = loom()
    {
        eprintln!("xtask: {error:#}");
        failed.push("loom");
    }
    let [clients, torch] = environments.and_then(|making| making.join().ok()).unwrap_or([None, None]);
    if !flags.no_venv && torch.is_none() {
        // Tests that have nothing to run on pass; that must not look like success.
        failed.push("the environment with PyTorch, so that no dry run was tested");
    }

    let mut runner = shell::cargo();
    if shell::exists("cargo-nextest") {
        runner.args(["nextest", "run", "--workspace", "--no-fail-fast"]).args(&flags.runner);
    } else {
        runner.args(["test", "--workspace", "--no-fail-fast", "--"]).args(&flags.runner);
    }
    // Everything was built above; a build inside each test would only wait for the others.
    runner.env("RADRM_TEST_NO_BUILD", "1");
    let genuine = genuine.join().ok().flatten();
    for (variable, path) in
        [("RADRM_TEST_PYTHON", clients), ("RADRM_TEST_TORCH_PYTHON", torch), ("RADRM_TEST_GENUINE", genuine)]
    {
        if let Some(path) = path {
            runner.env(variable, path);
        }
    }
    if let Err(error) = shell::run(&mut runner) {
        eprintln!("xtask: {error:#}");
        failed.push("tests");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The Python of an environment; without one its tests skip themselves, aloud.
fn python(environment: &venv::Environment) -> Option<std::path::PathBuf> {
    match venv::make(environment) {
        Ok(python) => python,
        Err(error) => {
            eprintln!("xtask: the Python clients are not tested: {error:#}");
            None
        }
    }
}

/// Runs the model checker's tests, which need the whole crate compiled for it.
fn loom() -> Result<()> {
    for test in loom_tests(&shell::root().join("telemetry/tests"))? {
        let target = shell::target_dir().join("loom");
        shell::run(
            shell::cargo()
                .args(["test", "--quiet", "--profile", "loom", "-p", "radrm-telemetry", "--test", &test])
                .arg("--target-dir")
                .arg(target)
                .env("RUSTFLAGS", "--cfg loom"),
        )?;
    }
    Ok(())
}

fn loom_tests(folder: &Path) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut tests = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "rs") && stem.starts_with("loom") {
            tests.push(stem);
        }
    }
    tests.sort();
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_checker_tests_are_found_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["loom_ring.rs", "loom.rs", "ring.rs", "loom.txt"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(loom_tests(dir.path()).unwrap(), ["loom", "loom_ring"]);
        assert!(loom_tests(&dir.path().join("none")).unwrap().is_empty());
    }
}
