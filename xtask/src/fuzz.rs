//! `cargo xtask fuzz`: the fuzz targets of `ld-preload-tests/fuzz`, each in a process of its own.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::shell;

/// Memory that a target may take, bytes. A parser that takes what its input says of itself takes more.
const MAX_DATA: u64 = 1 << 30;

/// Options of `fuzz`.
#[derive(clap::Args)]
pub struct Flags {
    /// Time for all targets together, seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Only targets whose names contain this.
    name: Option<String>,
}

/// Builds the targets, runs each for its part of the time, and fails with the names of those that found something.
pub fn run(flags: &Flags) -> Result<()> {
    let program = build()?;
    let listed = shell::read(shell::command(&program).args(["--list", "--format", "terse"]))?;
    let wanted = flags.name.as_deref().unwrap_or_default();
    let targets: Vec<&str> = targets(&listed).filter(|name| name.contains(wanted)).collect();
    if targets.is_empty() {
        bail!("no target has {wanted} in its name; there are:\n{listed}");
    }
    let workers = thread::available_parallelism().map_or(1, usize::from).min(targets.len());
    let each_ms = flags.seconds.saturating_mul(1000 * workers as u64) / targets.len() as u64;
    eprintln!("xtask: {} targets, {:.1} s each, {workers} at a time", targets.len(), each_ms as f64 / 1000.0);
    let (left, failed) = (Mutex::new(targets.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || left.lock().ok().and_then(|mut left| left.next().copied());
                while let Some(name) = next() {
                    match fuzz(&program, name, each_ms) {
                        Ok(()) => eprintln!("xtask: {name}: nothing found"),
                        Err(error) => {
                            eprintln!("xtask: {name}: {error:#}");
                            failed.lock().map(|mut failed| failed.push(name)).unwrap_or_default();
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        bail!("targets that found something: {}", failed.join(", "));
    }
    Ok(())
}

/// Builds the test program, with the features that the whole workspace's tests have.
fn build() -> Result<PathBuf> {
    let mut build = shell::cargo();
    build.args(["test", "--workspace", "--test", "fuzz", "--no-run", "--message-format", "json"]);
    let messages = shell::read(&mut build)?;
    let mut program = None;
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if message["target"]["name"] == "fuzz" {
            program = message["executable"].as_str().map(PathBuf::from).or(program);
        }
    }
    program.context("cargo has built no test program of the name fuzz")
}

/// Names of tests in a terse list.
fn targets(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.strip_suffix(": test"))
}

fn fuzz(program: &PathBuf, name: &str, ms: u64) -> Result<()> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={MAX_DATA}")).arg(program).args(["--exact", name]);
    // A second run with the seed that a failure prints, in BOLERO_RANDOM_SEED, begins with its input.
    command.env("BOLERO_RANDOM_TEST_TIME_MS", ms.to_string());
    let done = command.output().context("prlimit could not be started")?;
    if !done.status.success() {
        let output = [done.stdout, done.stderr].concat();
        bail!("{}\n{}", done.status, String::from_utf8_lossy(&output));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_tests_of_the_program() {
        let listed = "profile::profile: test\nrad::amounts: test\nother: benchmark\n";
        assert_eq!(targets(listed).collect::<Vec<_>>(), ["profile::profile", "rad::amounts"]);
    }
}
