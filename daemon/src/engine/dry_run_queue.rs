//! Jobs that are to be dry-run, and those that are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::dry_run::stored::Key;

/// Time between two looks at the jobs that wait, unless something happened.
const INTERVAL: Duration = Duration::from_millis(500);
/// So many jobs that are in the queue already are dry-run when there is room; each may have its GPU before.
const MAX_LATE: usize = 64;

/// A job that is to be dry-run.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// Start of the time in which nothing but the dry run keeps it from the queue.
    since: Option<Instant>,
    /// Nothing else keeps it from starting.
    is_ready: bool,
    /// It waits for the dry run no longer.
    is_late: bool,
}

/// The jobs that are to be dry-run, and those that are.
#[derive(Debug, Default)]
pub(super) struct DryRuns {
    waiting: BTreeMap<u64, Waiting>,
    /// Keys of the dry runs in progress, by job.
    active: BTreeMap<u64, Key>,
    /// Time of the last pass over all of them; `None` if something happened since.
    tended: Option<Instant>,
    /// Reason that dry runs cannot begin, as the end of a sentence.
    hindrance: Option<String>,
}

impl DryRuns {
    /// Returns true if the program of this job runs without a GPU just now.
    pub(super) fn is_active(&self, job: u64) -> bool {
        self.active.contains_key(&job)
    }

    /// The job that has waited longest, those that are in the queue already last.
    pub(super) fn next(&self) -> Option<u64> {
        let ready = self.waiting.iter().filter(|(job, waiting)| waiting.is_ready && !self.is_active(**job));
        ready.min_by_key(|(job, waiting)| (waiting.is_late, waiting.since, **job)).map(|(job, _)| *job)
    }

    /// Number of dry runs that are under way.
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    /// Jobs that wait for their dry run to begin or to end.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    /// A job is to be dry-run.
    pub(super) fn expect(&mut self, job: u64) {
        self.waiting.insert(job, Waiting::default());
        self.tended = None;
    }

    /// A job is not to be dry-run any more.
    pub(super) fn forget(&mut self, job: u64) {
        self.waiting.remove(&job);
    }

    /// All of the jobs, once it is time to look at them; `None` if there are none or it is too early.
    pub(super) fn due(&mut self, now: Instant) -> Option<BTreeSet<u64>> {
        let is_early = self.tended.is_some_and(|then| now.saturating_duration_since(then) < INTERVAL);
        if is_early || (self.waiting.is_empty() && self.active.is_empty()) {
            return None;
        }
        self.tended = Some(now);
        Some(self.waiting.keys().chain(self.active.keys()).copied().collect())
    }

    /// Takes note of whether a job's dry run may begin, and whether the job is kept out of the queue for it; returns for
    /// how long it has been.
    pub(super) fn waited(&mut self, job: u64, is_ready: bool, waits: bool, now: Instant) -> Option<Duration> {
        let waiting = self.waiting.get_mut(&job)?;
        waiting.is_ready = is_ready;
        waits.then(|| now.saturating_duration_since(*waiting.since.get_or_insert(now)))
    }

    /// Puts a job behind those that are kept out of the queue: it is not any more. Of too many it is forgotten.
    pub(super) fn delay(&mut self, job: u64) {
        let late = self.waiting.values().filter(|waiting| waiting.is_late).count();
        if let Some(waiting) = self.waiting.get_mut(&job) {
            waiting.is_late = true;
        }
        if late >= MAX_LATE {
            self.waiting.remove(&job);
        }
    }

    /// Keeps the reason that no further dry run begins.
    pub(super) fn hinder(&mut self, why: Option<String>) {
        self.hindrance = why;
    }

    /// The reason that a job's dry run does not begin; `None` for one that is under way.
    pub(super) fn hindrance(&self, job: u64) -> Option<&str> {
        self.hindrance.as_deref().filter(|_| !self.is_active(job))
    }

    /// A job's dry run has begun.
    pub(super) fn began(&mut self, job: u64, key: Key) {
        self.active.insert(job, key);
    }

    /// A job's dry run has ended; returns the key of its result.
    pub(super) fn ended(&mut self, job: u64) -> Option<Key> {
        self.tended = None;
        self.active.remove(&job)
    }
}
