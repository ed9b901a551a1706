//! Jobs that must not enter the queue yet: held ones, ones with open dependencies, ones that a dry run is about, ones
//! beyond their array's bound.
//!
//! A job that cannot start is not in the queue, so no device is reserved for it and no job is backfilled behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Phase, State};
use crate::action::{Action, Decision, Verdict};
use crate::job::{Condition, Dependency, Job, JobId};
use crate::reason::{Reason, Wait};

/// Jobs that wait outside the queue, and what they wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    /// Jobs with an open dependency, by the first and last number that it names.
    dependents: BTreeMap<(JobId, JobId), BTreeSet<JobId>>,
    /// Arrays with a bound, by the number of their first job.
    arrays: BTreeMap<JobId, Slots>,
    /// Jobs that have ended, and whether each succeeded: their dependents are not informed yet.
    ended: Vec<(JobId, bool)>,
}

/// The places of an array with a bound.
#[derive(Clone, Debug, Default)]
struct Slots {
    /// Jobs in the queue, running or suspended.
    taken: BTreeSet<JobId>,
    /// Jobs that could be in the queue but for the bound.
    waiting: BTreeSet<JobId>,
}

impl Gate {
    /// Takes a place for a job of an array, whatever the bound: it runs already.
    pub(super) fn take_slot(&mut self, job: &Job) {
        if let Some(limit) = job.array {
            self.arrays.entry(limit.array).or_default().taken.insert(job.id);
        }
    }

    /// Takes a place in its array for the job, or makes it wait for one. Returns true if it has a place.
    fn has_slot(&mut self, job: &Job) -> bool {
        let Some(limit) = job.array else { return true };
        let slots = self.arrays.entry(limit.array).or_default();
        let most = usize::try_from(limit.at_once).unwrap_or(usize::MAX);
        let has = slots.taken.contains(&job.id) || slots.taken.len() < most;
        let list = if has { &mut slots.taken } else { &mut slots.waiting };
        list.insert(job.id);
        has
    }

    /// Gives the job's place in its array back; returns the job that takes it.
    pub(super) fn leave_slot(&mut self, job: &Job) -> Option<JobId> {
        let limit = job.array?;
        let slots = self.arrays.get_mut(&limit.array)?;
        slots.waiting.remove(&job.id);
        slots.taken.remove(&job.id);
        let most = usize::try_from(limit.at_once).unwrap_or(usize::MAX);
        let next = if slots.taken.len() < most { slots.waiting.pop_first() } else { None };
        if slots.taken.is_empty() && next.is_none() {
            self.arrays.remove(&limit.array);
        }
        next
    }

    fn forget(&mut self, job: &Job) {
        for after in &job.after {
            let range = (after.first, after.last);
            if let Some(jobs) = self.dependents.get_mut(&range) {
                jobs.remove(&job.id);
                if jobs.is_empty() {
                    self.dependents.remove(&range);
                }
            }
        }
    }
}

impl State {
    /// Keeps the job's open dependencies; ends it where one has failed already. Returns whether it goes on.
    pub(super) fn has_prospects(&mut self, id: JobId, out: &mut Vec<Decision>) -> bool {
        let Some(record) = self.jobs.get_mut(&id) else { return false };
        if record.job.after.is_empty() {
            return true;
        }
        if record.job.lined_up.is_none() {
            // Waiting for other jobs is not waiting in the queue.
            record.lined_up = self.now;
        }
        let after = record.job.after.clone();
        let failed = after.iter().filter(|after| after.condition == Condition::Ok);
        if let Some(job) = failed.filter_map(|after| after.failed).next() {
            self.end(id, Verdict::Cancelled, Reason::DependencyFailed { job }, out);
            return false;
        }
        for after in after {
            if self.first_open(&after, id).is_none() {
                continue;
            }
            self.gate.dependents.entry((after.first, after.last)).or_default().insert(id);
        }
        true
    }

    /// Into the queue, unless something keeps the job out of it.
    pub(super) fn admit(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(&id) else { return };
        let job = &record.job;
        let stays_out = self.is_kept_out(job) || self.awaited_member(job).is_some();
        if stays_out || !self.gate.has_slot(&record.job) {
            if let Some(record) = self.jobs.get_mut(&id) {
                record.phase = Phase::Held;
            }
            self.gather(id);
            return;
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            record.phase = Phase::Waiting;
        }
        self.queue_up(id);
    }

    /// Returns true if a job must not be queued yet, whatever others do that start with it.
    pub(super) fn is_kept_out(&self, job: &Job) -> bool {
        self.waits_for_others(job) || self.breach(job).is_some()
    }

    /// The same, whatever it takes together with those that start with it.
    pub(super) fn is_kept_out_alone(&self, job: &Job) -> bool {
        self.waits_for_others(job) || self.breach_alone(job).is_some()
    }

    fn waits_for_others(&self, job: &Job) -> bool {
        job.held || job.awaits_dry_run || self.open_dependency(job).is_some()
    }

    pub(super) fn hold(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let was_queued = match record.phase {
            Phase::Waiting => true,
            Phase::Held => false,
            _ => return,
        };
        record.job.held = true;
        record.phase = Phase::Held;
        let next = self.gate.leave_slot(&record.job);
        if was_queued {
            self.unqueue(id);
            self.forget_reservation(id);
            self.pass_due = true;
        }
        if let Some(next) = next {
            self.admit(next);
        }
        self.scatter(id);
    }

    pub(super) fn release_held(&mut self, id: JobId) {
        if let Some(record) = self.jobs.get_mut(&id).filter(|record| record.phase == Phase::Held) {
            record.job.held = false;
            self.admit(id);
        }
    }

    pub(super) fn dry_run_over(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id).filter(|record| record.job.awaits_dry_run) else { return };
        record.job.awaits_dry_run = false;
        if record.phase == Phase::Held {
            self.admit(id);
        }
    }

    /// Ends a job, and does what follows from that for those that wait for it.
    pub(super) fn end(&mut self, id: JobId, verdict: Verdict, reason: Reason, out: &mut Vec<Decision>) {
        self.end_one(id, verdict, reason, out);
        // A loop and no recursion: a chain may have as many jobs as the queue.
        while let Some((job, success)) = self.gate.ended.pop() {
            self.inform_dependents(job, success, out);
        }
    }

    fn end_one(&mut self, id: JobId, verdict: Verdict, reason: Reason, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id) else { return };
        self.gate.forget(&record.job);
        let next = self.gate.leave_slot(&record.job);
        let others = self.take_group_apart(id);
        self.remove(id, verdict, reason, out);
        self.gate.ended.push((id, verdict.is_success()));
        if let Some(next) = next {
            self.admit(next);
        }
        for other in others {
            self.end_one(other, Verdict::Cancelled, Reason::NotTogether { job: id }, out);
        }
    }

    fn inform_dependents(&mut self, ended: JobId, success: bool, out: &mut Vec<Decision>) {
        let named = self.gate.dependents.range(..=(ended, JobId(u64::MAX)));
        let named = named.filter(|((_, last), _)| *last >= ended);
        let named: Vec<_> = named.map(|(range, jobs)| (*range, jobs.clone())).collect();
        for ((first, last), jobs) in named {
            let is_over = self.jobs.range(first..=last).next().is_none();
            for id in jobs {
                let Some(record) = self.jobs.get(&id) else { continue };
                let mut same =
                    record.job.after.iter().filter(|after| (after.first, after.last) == (first, last));
                if !success && same.any(|after| after.condition == Condition::Ok) {
                    self.end_one(id, Verdict::Cancelled, Reason::DependencyFailed { job: ended }, out);
                } else if is_over && self.open_dependency(&record.job).is_none() {
                    self.ready(id, out);
                }
            }
        }
    }

    /// All that the job waited for has ended: from now on it is queued.
    fn ready(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.lined_up = self.now;
        record.note(self.now, Reason::DependenciesMet);
        self.gate.forget(&record.job);
        out.push(Decision { action: Action::Ready { job: id }, reason: Reason::DependenciesMet });
        self.admit(id);
    }

    fn first_open(&self, after: &Dependency, of: JobId) -> Option<JobId> {
        // A range that ends before it begins has no jobs, and no iterator.
        let last = after.last.max(after.first);
        self.jobs.range(after.first..=last).map(|(job, _)| *job).find(|job| *job != of)
    }

    fn open_dependency(&self, job: &Job) -> Option<Wait> {
        job.after.iter().find_map(|after| {
            let open = self.first_open(after, job.id)?;
            Some(Wait::After { job: open, condition: after.condition })
        })
    }

    /// Returns what keeps a job out of the queue.
    pub(super) fn kept_out_by(&self, job: &Job) -> Wait {
        if job.held {
            return Wait::Held;
        }
        if let Some(why) = self.breach(job) {
            return Wait::NotAllowed { why };
        }
        let of_array = || job.array.map_or(Wait::Held, |limit| Wait::Array { at_once: limit.at_once });
        let of_group = || self.awaited_member(job).map(|job| Wait::Together { job });
        let of_itself = || match job.awaits_dry_run {
            true => Wait::DryRun,
            false => of_group().unwrap_or_else(of_array),
        };
        self.open_dependency(job).unwrap_or_else(of_itself)
    }
}
