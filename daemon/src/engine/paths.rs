//! Paths of the daemon's files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::attempt::Attempt;
use crate::mps;

/// Paths of files below the state directory.
#[derive(Clone, Debug)]
pub(super) struct Paths(PathBuf);

impl Paths {
    /// The state directory.
    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn new(state: PathBuf) -> Self {
        Self(state)
    }

    pub(super) fn status(&self, (job, attempt): Attempt) -> PathBuf {
        self.0.join("attempts").join(format!("{job}.{attempt}"))
    }

    /// File in the job's folder that is there once the attempt is asked to stop: its programs ask for it.
    pub(super) fn asked(&self, (job, attempt): Attempt) -> PathBuf {
        self.folder(job).join(format!("{attempt}.checkpoint"))
    }

    pub(super) fn helper(&self, (job, attempt): Attempt) -> PathBuf {
        self.0.join("attempts").join(format!("{job}.{attempt}.suspend"))
    }

    /// Barrier at which the attempts of a group wait for each other, by the attempt of its first job.
    pub(super) fn barrier(&self, (job, attempt): Attempt) -> PathBuf {
        self.0.join("attempts").join(format!("{job}.{attempt}.together"))
    }

    pub(super) fn mps(&self, client: &mps::Client) -> PathBuf {
        self.0.join("attempts").join(client.name())
    }

    pub(super) fn epilog(&self, (job, attempt): Attempt) -> PathBuf {
        self.0.join("attempts").join(format!("{job}.{attempt}.epilog"))
    }

    /// Jobs whose dry runs have files: attempts are counted from 1.
    pub(super) fn dry_runs(&self) -> Vec<u64> {
        let entries = fs::read_dir(self.0.join("attempts")).into_iter().flatten().flatten();
        let job = |name: &str| name.strip_suffix(".0")?.parse().ok();
        entries.filter_map(|entry| job(entry.file_name().to_str()?)).collect()
    }

    /// Attempts that have files.
    pub(super) fn attempts(&self) -> BTreeSet<Attempt> {
        let entries = fs::read_dir(self.0.join("attempts")).into_iter().flatten().flatten();
        let attempt = |name: &str| {
            let mut words = name.split('.');
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        };
        entries.filter_map(|entry| attempt(entry.file_name().to_str()?)).collect()
    }

    /// File with the clock's last reading.
    pub(super) fn clock(&self) -> PathBuf {
        self.0.join("wall-clock")
    }

    /// A job's folder.
    pub(super) fn folder(&self, job: u64) -> PathBuf {
        self.0.join("jobs").join(job.to_string())
    }
}
