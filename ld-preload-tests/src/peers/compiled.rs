//! Tests that are compiled from a crate's source: each in a process of its own, because one that crashes ends the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::outcome::Outcome;
use super::run::{Both, twice, wait};
use crate::rig::Rig;

/// Modules with tests of a compiled test program, and the tests of each.
///
/// # Errors
/// The program cannot be started.
pub fn modules(program: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let output = Command::new(program).args(["--list", "--format=terse"]).output();
    let output = output.with_context(|| program.display().to_string())?;
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some(name) = line.strip_suffix(": test") else { continue };
        let module = name.rsplit_once("::").map_or("", |(module, _)| module);
        modules.entry(module.to_owned()).or_default().insert(name.to_owned());
    }
    Ok(modules)
}

/// Runs a module's tests twice; each test has `patience` and is ended after it. `libraries` are on the search path.
///
/// # Errors
/// A test that could not be started.
pub fn module(
    program: &Path,
    tests: &BTreeSet<String>,
    libraries: &[&Path],
    patience: Duration,
) -> Result<Both> {
    twice_each(program, tests, |rig, command, test| {
        libraries.iter().for_each(|folder| rig.add_libraries(folder));
        once(rig, command, test, patience)
    })
}

fn twice_each(
    program: &Path,
    tests: &BTreeSet<String>,
    work: impl Fn(&Rig, Command, &str) -> Result<Outcome>,
) -> Result<Both> {
    let mut all = Both::default();
    for test in tests {
        let both =
            twice(program, |rig, command| Ok(BTreeMap::from([(test.clone(), work(rig, command, test)?)])))?;
        all.bare.extend(both.bare);
        all.shimmed.extend(both.shimmed);
    }
    Ok(all)
}

fn once(rig: &Rig, mut command: Command, test: &str, patience: Duration) -> Result<Outcome> {
    let said = rig.path().join("said");
    let out = File::create(&said).with_context(|| said.display().to_string())?;
    command
        .args(["--exact", "--test-threads=1", test])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out)
        .process_group(0);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let status = wait(&mut child, patience)?;
    Ok(outcome(status, &fs::read_to_string(&said).unwrap_or_default()))
}

/// Outcome of the only test of a run, by its exit status and what it printed.
fn outcome(status: ExitStatus, said: &str) -> Outcome {
    if status.success() {
        return if said.contains("1 passed") { Outcome::Passed } else { Outcome::Skipped };
    }
    // A failed test is not a crash: the program goes on to its own end. Of a signal the launcher's code tells as a shell's does.
    if status.signal().is_some() || !said.contains("test result: FAILED") {
        return Outcome::Crashed;
    }
    let reason = said.split_once("panicked at").map_or(said, |(_, reason)| reason);
    let reason = reason.split("note: run with").next().unwrap_or_default();
    Outcome::Failed(reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn outcomes_are_read_from_what_a_test_program_prints() {
        let failed = "running 1 test\ntest a ... FAILED\n\n---- a stdout ----\n\nthread 'a' panicked at src/x.rs:3:5:\n\
                      assertion `left == right` failed\n left: 0\nright: 1\nnote: run with `RUST_BACKTRACE=1`\n\n\
                      test result: FAILED. 0 passed; 1 failed\n";
        let Outcome::Failed(reason) = outcome(exit(101), failed) else { panic!("not failed") };
        assert_eq!(reason, "src/x.rs:3:5: assertion `left == right` failed left: 0 right: 1");
        assert_eq!(outcome(exit(0), "test result: ok. 1 passed; 0 failed"), Outcome::Passed);
        assert_eq!(outcome(exit(0), "test result: ok. 0 passed; 0 failed; 1 ignored"), Outcome::Skipped);
        assert_eq!(outcome(ExitStatus::from_raw(11), "running 1 test\n"), Outcome::Crashed);
        assert_eq!(outcome(exit(139), "running 1 test\n"), Outcome::Crashed);
    }
}
