//! Arrays, and jobs that wait for other jobs: from what users name to numbers of jobs.

use std::collections::{BTreeMap, BTreeSet};

use radrm_protocol::array::ArrayTask;
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::TaskRow;
use radrm_scheduler_core::{Condition, Job, JobId, Verdict};
use rusqlite::params;

use super::Engine;
use crate::error::DaemonError;
use crate::peer::Peer;
use crate::store::{Entry, Stage, Store};

/// The variables by which a job of an array knows its place.
pub(super) const VARIABLES: [&str; 2] = ["RADRM_ARRAY_JOB", "RADRM_ARRAY_INDEX"];

/// The same with their values, of a job of an array.
pub(super) fn marks(entry: &Entry) -> Vec<String> {
    let values = row(entry).map(|task| [task.array.to_string(), task.index.to_string()]);
    let lines = |values: [String; 2]| {
        VARIABLES.into_iter().zip(values).map(|(name, value)| format!("{name}={value}"))
    };
    values.into_iter().flat_map(lines).collect()
}

/// A job's place in its array, as it is shown.
pub(super) fn row(entry: &Entry) -> Option<TaskRow> {
    let ArrayTask { index, at_once, .. } = entry.spec.task?;
    Some(TaskRow { array: entry.spec.task?.array(entry.id), index, at_once })
}

/// The jobs that one submission makes, which differ in their places in the array.
pub(super) fn split(mut entry: Entry) -> Vec<Entry> {
    let Some(array) = entry.spec.array.take() else { return vec![entry] };
    let with = |task| {
        let mut entry = entry.clone();
        entry.spec.task = Some(task);
        entry
    };
    array.tasks().map(with).collect()
}

/// Ended jobs in a range of numbers.
const ENDED_IN_RANGE: &str =
    "SELECT id, verdict FROM jobs WHERE id BETWEEN ?1 AND ?2 AND stage = 'ended' ORDER BY id";

/// Known failures among jobs of consecutive numbers. Holds while no job of a range ends that was asked for.
pub(super) type KnownFailures = BTreeMap<[u64; 2], Option<u64>>;

impl Store {
    /// Number of searches for ended jobs of a range.
    #[cfg(test)]
    pub(super) fn searches(&self) -> i32 {
        let statement = self.connection.prepare_cached(ENDED_IN_RANGE).unwrap();
        statement.get_status(rusqlite::StatementStatus::Run)
    }

    /// The first job of these numbers that has ended and did not succeed.
    fn failed(&self, [first, last]: [u64; 2]) -> rusqlite::Result<Option<u64>> {
        let [first, last] = [first, last].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let mut statement = self.connection.prepare_cached(ENDED_IN_RANGE)?;
        let ended = statement.query_map(params![first, last], |row| {
            let verdict: Option<String> = row.get(1)?;
            let verdict = verdict.and_then(|text| serde_json::from_str::<Verdict>(&text).ok());
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), verdict.is_some_and(Verdict::is_success)))
        })?;
        for job in ended {
            let (id, success) = job?;
            if !success {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

impl Engine {
    /// A job by its number, also one that has ended, if the user may know of it.
    pub(super) fn entry_of(&self, peer: &Peer, job: u64) -> Result<Option<Entry>, DaemonError> {
        let entry = match self.jobs.entry(job) {
            Some(entry) => Some(entry.clone()),
            None => self.outbox.store().job(job).map_err(DaemonError::QueueRead)?,
        };
        Ok(entry.filter(|entry| peer.may(entry.uid)))
    }

    /// The place in an array of a job that the user may know of, also one that has ended; `None`: there is no such job.
    fn place_of(&self, peer: &Peer, job: u64) -> Result<Option<Option<ArrayTask>>, DaemonError> {
        let place = |entry: &Entry| peer.may(entry.uid).then_some(entry.spec.task);
        if let Some(entry) = self.jobs.entry(job) {
            return Ok(place(entry));
        }
        let stored = self.outbox.store().job(job).map_err(DaemonError::QueueRead)?;
        Ok(stored.as_ref().and_then(place))
    }

    /// The first and last number of the jobs that a user names. It does not disclose whether jobs of other users
    /// exist.
    pub(super) fn named(&self, peer: &Peer, named: JobRef) -> Result<[u64; 2], DaemonError> {
        let unknown = || DaemonError::UnknownJob(named);
        let first = self.place_of(peer, named.job)?.ok_or_else(unknown)?;
        let array = first.filter(|task| task.position == 0);
        match (array, named.index) {
            (None, None) => Ok([named.job; 2]),
            (Some(task), None) => Ok([named.job, named.job + u64::from(task.tasks.max(1)) - 1]),
            (None, Some(_)) => Err(unknown()),
            (Some(task), Some(index)) => {
                // Indices rise with the numbers.
                let (mut low, mut high) = (named.job, named.job + u64::from(task.tasks));
                while low < high {
                    let middle = u64::midpoint(low, high);
                    let found = self.place_of(peer, middle)?.flatten().ok_or_else(unknown)?;
                    match found.index.cmp(&index) {
                        std::cmp::Ordering::Equal => return Ok([middle; 2]),
                        std::cmp::Ordering::Less => low = middle + 1,
                        std::cmp::Ordering::Greater => high = middle,
                    }
                }
                Err(unknown())
            }
        }
    }

    /// One job that a user names; an array stands for its first job.
    pub(super) fn one_named(&self, peer: &Peer, named: JobRef) -> Result<u64, DaemonError> {
        self.named(peer, named).map(|[first, _]| first)
    }

    /// Finds the jobs that a new job waits for. What is named twice is kept once.
    ///
    /// # Errors
    /// One is not the user's, or the new job could never start.
    pub(super) fn find_dependencies(&self, peer: &Peer, spec: &mut Spec) -> Result<(), DaemonError> {
        let mut found = BTreeSet::new();
        for mut after in std::mem::take(&mut spec.after) {
            let jobs = self.named(peer, after.job)?;
            if !found.insert((after.condition, jobs)) {
                continue;
            }
            if after.condition == Condition::Ok
                && let Some(failed) = self.failed_among(jobs)
            {
                return Err(DaemonError::AfterFailed { failed, after: Box::new(after) });
            }
            after.jobs = Some(jobs);
            spec.after.push(after);
        }
        Ok(())
    }

    /// Names the failures, of those that the job waits for, that the scheduler cannot know of. Each range is searched once.
    pub(super) fn name_failures(&self, job: &mut Job, known: &mut KnownFailures) {
        for after in job.after.iter_mut().filter(|after| after.condition == Condition::Ok) {
            let range = [after.first.0, after.last.0];
            after.failed = known.entry(range).or_insert_with(|| self.failed_among(range)).map(JobId);
        }
    }

    /// One of these jobs that has ended and did not succeed.
    fn failed_among(&self, [first, last]: [u64; 2]) -> Option<u64> {
        // An end that is not on disk yet is here.
        let failed =
            |entry: &Entry| entry.stage == Stage::Ended && !entry.verdict.is_some_and(Verdict::is_success);
        let here =
            self.jobs.entries().range(first..=last).find(|(_, entry)| failed(entry)).map(|(job, _)| *job);
        here.or_else(|| self.outbox.store().failed([first, last]).ok().flatten())
    }
}
