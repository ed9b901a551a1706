//! Runs a dry run and reads what it told.

use std::path::{Path, PathBuf};
use std::process::Command;

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended},
};
use serde_json::Value;
use tempfile::TempDir;

use radrm_preload_tests::python::forked;
pub use radrm_preload_tests::python::torch as python;

/// Seconds that a dry run has: many times what it takes, for machines that do other things too.
pub const PATIENCE: u64 = 300;

/// A dry run and what it told.
pub struct DryRun {
    pub ended: Ended,
    pub report: Value,
    /// The folder that it had for everything, after it.
    pub place: TempDir,
}

impl DryRun {
    pub fn figure(&self, phase: &str, which: &str) -> f64 {
        let figure = &self.report["dry_run"]["gpus"][0]["phases"][phase][which];
        let bytes =
            figure.as_f64().unwrap_or_else(|| panic!("{phase} {which} in {:#}", self.report["dry_run"]));
        (bytes / f64::from(1 << 20) * 10.0).round() / 10.0
    }

    pub fn peak(&self) -> (f64, f64) {
        (self.figure("whole", "allocated"), self.figure("whole", "reserved"))
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        Self { ended: self.ended.ok(), ..self }
    }

    /// Leftovers of the run, in words: files and processes.
    pub fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = std::fs::read_dir(self.place.path())
            .expect("folder of the run")
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            // PyTorch's own caches are PyTorch's own business.
            .filter(|name| name != "report.json" && !name.starts_with("torchinductor"))
            .map(|name| format!("the file {name} is still there"))
            .collect();
        let mark = self.place.path().to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.windows(mark.len()).any(|part| part == mark.as_bytes()) {
                left.push(format!("{} is still there", entry.path().display()));
            }
        }
        left
    }

    /// Asserts that neither a file nor a process remains.
    #[track_caller]
    pub fn leaves_nothing(&self) {
        let left = self.left();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Substitute for Python in a command: a program that has a server with PyTorch fork it, or Python where there is
/// no server.
pub fn fast(python: &Path) -> PathBuf {
    forked(python).unwrap_or_else(|| python.to_owned())
}

/// Runs `radrm-run --dry-run OPTIONS -- python ARGUMENTS`, everything temporary in a folder of its own, by [`fast`].
pub fn dry_run(python: &Path, options: &[&str], arguments: &[&str]) -> DryRun {
    run(&fast(python), options, &[], arguments)
}

/// As [`dry_run`], by Python itself: for what depends on how Python, PyTorch or the hook start and end.
pub fn plain_dry_run(python: &Path, options: &[&str], arguments: &[&str]) -> DryRun {
    run(python, options, &[], arguments)
}

/// As [`plain_dry_run`], with variables: libraries read theirs while they are loaded.
pub fn dry_run_with(
    python: &Path,
    options: &[&str],
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> DryRun {
    run(python, options, variables, arguments)
}

fn run(program: &Path, options: &[&str], variables: &[(&str, &str)], arguments: &[&str]) -> DryRun {
    for library in [
        "libradrm.so",
        "libradrm_emulated_cuda.so",
        "libradrm_emulated_nvml.so",
        "libradrm_emulated_toolkit.so",
    ] {
        artifacts::file(library);
    }
    let place = tempfile::Builder::new().prefix("radrm-dry-run-test").tempdir().expect("folder");
    let report = place.path().join("report.json");
    let mut command = Command::new(artifacts::file("radrm-run"));
    command
        .args(["--dry-run", "--no-profile", "--no-dataset", "--quiet"])
        .arg(format!("--json={}", report.display()))
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .env("TMPDIR", place.path())
        .envs(variables.iter().copied());
    let ended = child::run(command, PATIENCE);
    let text = std::fs::read(&report).unwrap_or_default();
    let report = serde_json::from_slice(&text).unwrap_or_default();
    DryRun { ended, report, place }
}
