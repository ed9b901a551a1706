//! The jobs that have not ended: what is on disk of each, and what is known of those that run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use radrm_base::HostUse;
use radrm_collector::dataset::FirstSteps;
use radrm_os::ProcessIdentity;
use radrm_scheduler_core::State;

use super::entries::Entries;
use super::observed::Observed;
use crate::attempt::Attempt;
use crate::fence::Missing;
use crate::host::Usage;
use crate::status::Status;
use crate::store::{Entry, Stage};
use crate::suspend::Step;

/// An attempt that runs, as far as the daemon sees it.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) supervisor: Option<ProcessIdentity>,
    /// The launcher.
    pub(super) program: Option<ProcessIdentity>,
    /// Time from which it has its devices before its program is there, ms since 1970; for one that was adopted, the time
    /// of that.
    pub(super) launched_ms: u64,
    /// The scheduler knows that it runs.
    pub(super) reported: bool,
    pub(super) observed: Observed,
    /// Fences that could not be set for it.
    pub(super) missing: Missing,
    /// Time of its last kill, and the number of kill retries.
    pub(super) killed: Option<Instant>,
    pub(super) kill_retries: u32,
    /// Host use of its processes, and true if it was noted that this is more than booked.
    pub(super) host: Usage,
    pub(super) reported_memory: bool,
    pub(super) reported_cpu: bool,
}

/// An attempt that is over, and may have something to wait for still.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) attempt: Attempt,
    pub(super) status: Status,
    /// The scheduler knows that it began.
    pub(super) reported: bool,
    /// Processes that it left and that were killed.
    pub(super) killed: BTreeSet<u32>,
    /// Observations of it by this daemon.
    pub(super) seen: Seen,
}

/// Observations of an attempt while it ran; a daemon that was started since then has none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Time from which it had its devices before its program was there, ms since 1970.
    pub(super) launched_ms: Option<u64>,
    /// Memory that it held after its first optimizer steps.
    pub(super) first_steps: Option<FirstSteps>,
    /// Host use of it where nothing slowed it there.
    pub(super) host_use: Option<HostUse>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct JobTable {
    entries: Entries,
    live: BTreeMap<u64, Live>,
}

impl JobTable {
    /// The jobs that have not ended.
    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    pub(super) fn entry(&self, job: u64) -> Option<&Entry> {
        self.entries.get(&job)
    }

    /// Mutable entry of a job. Its owner and its bytes on disk must not change: the sums per user count them.
    pub(super) fn entry_mut(&mut self, job: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&job)
    }

    pub(super) fn insert(&mut self, job: u64, entry: Entry) {
        self.entries.insert(job, entry);
    }

    /// Sorts a job in anew after what its need follows from has changed.
    pub(super) fn sort_in(&mut self, job: u64) {
        self.entries.sort_in(job);
    }

    /// The attempts that run, by job.
    pub(super) fn lives(&self) -> &BTreeMap<u64, Live> {
        &self.live
    }

    pub(super) fn lives_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Live)> {
        self.live.iter_mut()
    }

    /// The same, each with what is on disk of its job.
    pub(super) fn lives_with_entries(&mut self) -> impl Iterator<Item = (&Entry, &mut Live)> {
        let entries = &self.entries;
        self.live.iter_mut().filter_map(|(job, live)| Some((entries.get(job)?, live)))
    }

    pub(super) fn live_with_entry(&mut self, job: u64) -> Option<(&Entry, &mut Live)> {
        Some((self.entries.get(&job)?, self.live.get_mut(&job)?))
    }

    pub(super) fn is_live(&self, job: u64) -> bool {
        self.live.contains_key(&job)
    }

    pub(super) fn live(&self, job: u64) -> Option<&Live> {
        self.live.get(&job)
    }

    pub(super) fn live_mut(&mut self, job: u64) -> Option<&mut Live> {
        self.live.get_mut(&job)
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, job: u64, live: Live) {
        self.live.insert(job, live);
    }

    /// An attempt is over.
    pub(super) fn end(&mut self, job: u64) -> Option<Live> {
        self.live.remove(&job)
    }

    /// Returns true if this is the job's present attempt.
    pub(super) fn is_current(&self, (job, attempt): Attempt) -> bool {
        self.entries.get(&job).is_some_and(|entry| entry.attempt == attempt)
    }

    /// The number of a job's present attempt.
    pub(super) fn attempt(&self, job: u64) -> u32 {
        self.entries.get(&job).map_or(0, |entry| entry.attempt)
    }

    /// Jobs that hold their GPUs.
    pub(super) fn on_gpus(&self) -> Vec<&Entry> {
        let runs = |entry: &&Entry| entry.stage == Stage::Running && entry.suspension.step != Step::Suspended;
        self.entries.begun().filter(runs).collect()
    }

    /// Fences that some running attempt lacks, with the first job that lacks any.
    pub(super) fn lacking(&self) -> Option<(u64, Missing)> {
        let mut lacking = self.live.iter().filter(|(_, live)| !live.missing.is_none());
        let (job, first) = lacking.next()?;
        let all = lacking.fold(first.missing.clone(), |all, (_, live)| all.or(&live.missing));
        Some((*job, all))
    }

    /// Device memory of suspended jobs in host memory, bytes.
    pub(super) fn suspended_bytes(&self) -> u64 {
        let running = self.entries.begun().filter(|entry| entry.stage == Stage::Running);
        running.map(|entry| entry.suspension.host_bytes()).sum()
    }

    /// Takes over what the core knows of these jobs and a restart needs.
    pub(super) fn follow(&mut self, jobs: &BTreeSet<u64>, state: &State) {
        for job in jobs {
            let Some(entry) = self.entries.get_mut(job) else { continue };
            let view = state.job(radrm_scheduler_core::JobId(*job));
            if entry.stage == Stage::Running {
                // What is reserved follows what a job was seen to hold.
                let seen = view.as_ref().and_then(|view| view.reserved);
                entry.reserved = seen.map(|bytes| bytes.0).or(entry.reserved);
            }
            entry.leaving = view.and_then(|view| view.leaving);
        }
    }

    /// Drops those of these jobs that have ended: they are on disk.
    pub(super) fn drop_ended(&mut self, jobs: &BTreeSet<u64>) {
        for job in jobs {
            if self.entries.get(job).is_some_and(|entry| entry.stage == Stage::Ended) {
                self.entries.remove(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(jobs: &[(u64, Stage, Step)]) -> JobTable {
        let mut table = JobTable::default();
        for &(id, stage, step) in jobs {
            let mut entry = Entry { id, stage, attempt: 1, ..Entry::default() };
            entry.suspension.step = step;
            entry.suspension.bytes.insert("GPU-1".into(), 10);
            table.entries.insert(id, entry);
        }
        table
    }

    #[test]
    fn a_suspended_job_holds_host_memory_and_no_gpu() {
        let table = table(&[
            (1, Stage::Running, Step::Running),
            (2, Stage::Running, Step::Suspended),
            (3, Stage::Running, Step::Suspending),
            (4, Stage::Waiting, Step::Running),
        ]);
        let on: Vec<u64> = table.on_gpus().iter().map(|entry| entry.id).collect();
        assert_eq!((on, table.suspended_bytes()), (vec![1, 3], 10));
    }

    #[test]
    fn only_ended_jobs_that_were_written_are_dropped() {
        let mut table = table(&[
            (1, Stage::Ended, Step::Running),
            (2, Stage::Ended, Step::Running),
            (3, Stage::Running, Step::Running),
        ]);
        table.drop_ended(&BTreeSet::from([1, 3]));
        let left: Vec<u64> = table.entries.keys().copied().collect();
        assert_eq!(left, [2, 3]);
    }

    #[test]
    fn news_of_an_earlier_attempt_is_not_current() {
        let table = table(&[(1, Stage::Running, Step::Running)]);
        assert!(table.is_current((1, 1)) && !table.is_current((1, 2)) && !table.is_current((9, 1)));
    }
}
