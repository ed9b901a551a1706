//! Runs one file of tests, with and without the shim.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result};

use super::outcome::{Outcome, parse};
use crate::child::kill_group;
use crate::python;
use crate::rig::Rig;

/// Seconds after which a test is ended, with its process.
const TEST_SECONDS: &str = "120";

/// Exit code with which the plugin `peers_report.py` asks for a new process for the tests that are left.
const RESTART: i32 = 86;

/// The machine that suites run on: two GPUs, for what they do with peers.
const MACHINE: &str = "2xA100-40GB";

/// Outcomes of the two runs of a file.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// Without the shim.
    pub bare: BTreeMap<String, Outcome>,
    /// With it.
    pub shimmed: BTreeMap<String, Outcome>,
    /// Tests that once differed, but came to the same in further runs of the file: their outcome is not determined.
    pub unsteady: BTreeSet<String>,
    /// Number of runs without a difference that followed each other, this one included; 0 where this one has one.
    pub runs: u32,
    /// Date of the run, and the commit that it was of.
    pub made: String,
}

impl Both {
    /// Takes out of the differences what a further run of the same file shows to be undetermined: a test of which a run
    /// without the shim came to what one with it came to.
    pub fn settle(&mut self, again: &Self) {
        let differing: Vec<String> = self.differences().iter().map(|(name, ..)| (*name).to_owned()).collect();
        for name in differing {
            let bare = [&self.bare, &again.bare].map(|run| run.get(&name));
            let shimmed = [&self.shimmed, &again.shimmed].map(|run| run.get(&name));
            let alike = |a: Option<&Outcome>, b: Option<&Outcome>| match (a, b) {
                (Some(a), Some(b)) => a.is_like(b),
                _ => false,
            };
            if bare.iter().any(|bare| shimmed.iter().any(|shimmed| alike(*bare, *shimmed))) {
                self.unsteady.insert(name);
            }
        }
    }

    /// Counts a run behind an earlier one of the same file. What was unsteady once remains so.
    pub fn follow(&mut self, earlier: Option<&Self>) {
        let earlier = earlier.filter(|run| run.runs > 0);
        self.runs = if self.differences().is_empty() { 1 + earlier.map_or(0, |run| run.runs) } else { 0 };
        if self.runs > 0 {
            self.unsteady.extend(earlier.into_iter().flat_map(|run| run.unsteady.iter().cloned()));
        }
    }

    /// Tests that did not come to the same, with both outcomes; `None` where a run does not have one.
    pub fn differences(&self) -> Vec<(&str, Option<&Outcome>, Option<&Outcome>)> {
        let names = self.bare.keys().chain(self.shimmed.keys().filter(|name| !self.bare.contains_key(*name)));
        names
            .filter(|name| !self.unsteady.contains(*name))
            .map(|name| (name.as_str(), self.bare.get(name), self.shimmed.get(name)))
            .filter(|(_, bare, shimmed)| match (bare, shimmed) {
                (Some(bare), Some(shimmed)) => !bare.is_like(shimmed),
                _ => true,
            })
            .collect()
    }
}

/// Interpreter that runs pytest.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// The program.
    pub python: PathBuf,
    /// Folder of packages before those of its environment.
    pub packages: Option<PathBuf>,
    /// Folders of libraries beside the driver's.
    pub libraries: Vec<PathBuf>,
    /// Environment variable, `NAME=VALUE`.
    pub variable: Option<&'static str>,
}

/// Runs a file of tests twice; each run has `patience` and is ended after it.
///
/// # Errors
/// A run that could not be started.
pub fn file(interpreter: &Interpreter, tests: &Path, patience: Duration) -> Result<Both> {
    twice(&interpreter.python, |rig, command| {
        interpreter.libraries.iter().for_each(|folder| rig.add_libraries(folder));
        pytest(rig, command, interpreter, tests, patience)
    })
}

/// Runs a program's work on a machine without the shim, and on another one with it.
pub(super) fn twice(
    program: &Path,
    work: impl Fn(&Rig, Command) -> Result<BTreeMap<String, Outcome>>,
) -> Result<Both> {
    let (bare, shimmed) = (Rig::emulated(MACHINE), Rig::emulated(MACHINE));
    // What is copied to a GPU can be copied back: many tests look at no more than that.
    let with_pages = |mut command: Command| {
        command.env("RADRM_EMULATOR_BACKED", "1");
        command
    };
    Ok(Both {
        bare: work(&bare, with_pages(bare.bare_command(program)))?,
        shimmed: work(&shimmed, with_pages(shimmed.launched(program)))?,
        ..Both::default()
    })
}

/// Waits for a process group's leader, and ends the group when time is up.
pub(super) fn wait(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            kill_group(child.id());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn pytest(
    rig: &Rig,
    mut command: Command,
    interpreter: &Interpreter,
    tests: &Path,
    patience: Duration,
) -> Result<BTreeMap<String, Outcome>> {
    let report = rig.path().join("report");
    let plugin = python::script("peers_report.py");
    let plugins = Path::new(&plugin).parent().unwrap_or(Path::new("."));
    let packages = interpreter.packages.iter().map(PathBuf::as_path).chain([plugins]);
    let search = std::env::join_paths(packages).context("PYTHONPATH")?;
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "peers_report"])
        // A folder of tests inside a package that is installed by links would hide what it imports.
        .args(["--import-mode=importlib", "-o", "consider_namespace_packages=true", "--rootdir"])
        .arg(rig.path())
        .arg(tests)
        .env("PEERS_REPORT", &report)
        .env("PEERS_TEST_SECONDS", TEST_SECONDS)
        .env("PYTHONPATH", search)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // PyTorch ends each reason with a command, which takes the place of the reason in the report.
        .env("PYTORCH_PRINT_REPRO_ON_FAILURE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if let Some((name, value)) = interpreter.variable.and_then(|variable| variable.split_once('=')) {
        command.env(name, value);
    }
    let deadline = Instant::now() + patience;
    let mut outcomes = BTreeMap::new();
    loop {
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let status = wait(&mut child, deadline.saturating_duration_since(Instant::now()))?;
        let crashed = |outcomes: &BTreeMap<String, Outcome>| {
            outcomes.values().filter(|outcome| **outcome == Outcome::Crashed).count()
        };
        let before = crashed(&outcomes);
        outcomes = parse(&fs::read_to_string(&report).unwrap_or_default());
        // The plugin leaves out what the report has: tests behind one that crashed get their turn.
        let unfinished = crashed(&outcomes) > before || status.code() == Some(RESTART);
        if !unfinished || Instant::now() > deadline {
            return Ok(outcomes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_came_to_both_outcomes_without_the_shim_is_unsteady() {
        let run = |bare: &str, shimmed: &str| Both {
            bare: parse(bare),
            shimmed: parse(shimmed),
            ..Both::default()
        };
        let mut both = run("fast\tpassed\t\nsame\tpassed\t\n", "fast\tfailed\t3 vs 2\nsame\tfailed\todd\n");
        both.settle(&run(
            "fast\tfailed\t5 vs 4\nsame\tpassed\t\n",
            "fast\tfailed\t3 vs 2\nsame\tfailed\todd\n",
        ));
        assert_eq!(both.differences().iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["same"]);
        assert!(both.unsteady.contains("fast"));
    }

    #[test]
    fn a_difference_ends_the_count_of_runs() {
        let run = |bare: &str, shimmed: &str| Both {
            bare: parse(bare),
            shimmed: parse(shimmed),
            ..Both::default()
        };
        let mut first = run("a\tpassed\t\n", "a\tpassed\t\n");
        first.unsteady.insert("b".to_owned());
        first.follow(None);
        let mut second = run("a\tpassed\t\n", "a\tpassed\t\n");
        second.follow(Some(&first));
        assert_eq!((first.runs, second.runs), (1, 2));
        assert!(second.unsteady.contains("b"));
        let mut third = run("a\tpassed\t\n", "a\tskipped\t\n");
        third.follow(Some(&second));
        let mut fourth = run("a\tpassed\t\n", "a\tpassed\t\n");
        fourth.follow(Some(&third));
        assert_eq!((third.runs, fourth.runs), (0, 1));
    }
}
