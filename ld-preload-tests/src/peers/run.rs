//! Runs one file of tests with pytest, with and without the shim.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result};

use super::outcome::{Outcome, parse};
use crate::child::kill_group;
use crate::python;
use crate::rig::Rig;

/// The machine that suites run on: two GPUs, for what they do with peers.
const MACHINE: &str = "2xA100-40GB";

/// Outcomes of the two runs of a file.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// Without the shim.
    pub bare: BTreeMap<String, Outcome>,
    /// With it.
    pub shimmed: BTreeMap<String, Outcome>,
}

impl Both {
    /// Tests that did not come to the same, with both outcomes; `None` where a run does not have one.
    pub fn differences(&self) -> Vec<(&str, Option<&Outcome>, Option<&Outcome>)> {
        let names = self.bare.keys().chain(self.shimmed.keys().filter(|name| !self.bare.contains_key(*name)));
        names
            .map(|name| (name.as_str(), self.bare.get(name), self.shimmed.get(name)))
            .filter(|(_, bare, shimmed)| match (bare, shimmed) {
                (Some(bare), Some(shimmed)) => !bare.is_like(shimmed),
                _ => true,
            })
            .collect()
    }
}

/// Runs a file of tests twice; each run has `patience` and is ended after it.
///
/// # Errors
/// A run that could not be started.
pub fn file(python: &Path, tests: &Path, patience: Duration) -> Result<Both> {
    let (bare, shimmed) = (Rig::emulated(MACHINE), Rig::emulated(MACHINE));
    Ok(Both {
        bare: once(&bare, bare.bare_command(python), tests, patience)?,
        shimmed: once(&shimmed, shimmed.launched(python), tests, patience)?,
    })
}

fn once(
    rig: &Rig,
    mut command: Command,
    tests: &Path,
    patience: Duration,
) -> Result<BTreeMap<String, Outcome>> {
    let report = rig.path().join("report");
    let plugin = python::script("peers_report.py");
    let plugins = Path::new(&plugin).parent().unwrap_or(Path::new("."));
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "peers_report"])
        // A folder of tests inside a package that is installed by links would hide what it imports.
        .args(["--import-mode=importlib", "-o", "consider_namespace_packages=true", "--rootdir"])
        .arg(rig.path())
        .arg(tests)
        .env("PEERS_REPORT", &report)
        .env("PYTHONPATH", plugins)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let deadline = Instant::now() + patience;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            kill_group(child.id());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(parse(&fs::read_to_string(report).unwrap_or_default()))
}
