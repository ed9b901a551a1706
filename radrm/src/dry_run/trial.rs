//! A dry run of which only the report is wanted.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use serde_json::Value;
use tempfile::NamedTempFile;

/// One that was not made yet.
#[derive(Debug)]
pub struct Trial {
    /// What is run: its other options and, behind `--`, the program are still to be added.
    pub command: Command,
    report: NamedTempFile,
}

impl Trial {
    /// A dry run of so many optimizer steps by a `radrm-run`.
    ///
    /// # Errors
    /// There is no room for its report.
    pub fn new(launcher: &Path, steps: u64) -> io::Result<Self> {
        let report = NamedTempFile::with_prefix("radrm-dry-run-")?;
        let mut json = OsString::from("--json=");
        json.push(report.path());
        let mut command = Command::new(launcher);
        command.args(["--dry-run", "--quiet", "--no-profile", "--no-dataset"]).arg(json);
        command.args(["--steps", &steps.to_string()]);
        Ok(Self { command, report })
    }

    /// Makes it: how it ended, and its report, null if it wrote none.
    ///
    /// # Errors
    /// It could not be started.
    pub fn run(mut self) -> io::Result<(ExitStatus, Value)> {
        let status = self.command.status()?;
        let report = fs::read(self.report.path()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok((status, report.unwrap_or_default()))
    }
}
