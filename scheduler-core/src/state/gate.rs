//! Jobs that must not enter the queue yet: held ones, ones with open dependencies, ones that a dry run is about, ones
//! beyond their array's bound.
//!
//! A job that cannot start is not in the queue, so no device is reserved for it and no job is backfilled behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Phase, State};
use crate::action::{Action, Decision, Verdict};
use crate::job::{Condition, Dependency, Job, JobId};
use crate::reason::{Reason, Wait};

/// Numbers that a dependency names, with its condition. Those of one job come before those of several, so that the
/// ones that name a job are found without all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Awaited {
    is_range: bool,
    first: JobId,
    last: JobId,
    condition: Condition,
}

impl Awaited {
    fn of(after: &Dependency) -> Self {
        // A range that ends before it begins has no jobs, and no iterator.
        let (first, last) = (after.first, after.last.max(after.first));
        Self { is_range: last > first, first, last, condition: after.condition }
    }
}

/// Jobs that wait outside the queue, and what they wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    /// Jobs with an open dependency, by what it names. A range that is over is not here.
    dependents: BTreeMap<Awaited, BTreeSet<JobId>>,
    /// Dependents that were looked at when another job ended.
    #[cfg(test)]
    looked_at: usize,
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
            let awaited = Awaited::of(after);
            if let Some(jobs) = self.dependents.get_mut(&awaited) {
                jobs.remove(&job.id);
                if jobs.is_empty() {
                    self.dependents.remove(&awaited);
                }
            }
        }
    }

    /// Returns all that names this job and has dependents.
    fn naming(&self, job: JobId) -> Vec<Awaited> {
        let [first, last] = [Condition::Any, Condition::Ok].map(|condition| Awaited {
            is_range: false,
            first: job,
            last: job,
            condition,
        });
        let alone = self.dependents.range(first..=last);
        let begin = Awaited { is_range: true, first: JobId(0), last: JobId(0), ..first };
        let end = Awaited { is_range: true, last: JobId(u64::MAX), ..last };
        let ranges = self.dependents.range(begin..=end).filter(|(awaited, _)| awaited.last >= job);
        alone.chain(ranges).map(|(awaited, _)| *awaited).collect()
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
            self.gate.dependents.entry(Awaited::of(&after)).or_default().insert(id);
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

    /// Ends the dependents of a job that failed, and releases those of a range that is over. Dependents of other ranges are
    /// not looked at: with many jobs in a range they would be as often as it has jobs.
    fn inform_dependents(&mut self, ended: JobId, success: bool, out: &mut Vec<Decision>) {
        for awaited in self.gate.naming(ended) {
            let fails = !success && awaited.condition == Condition::Ok;
            let is_over = || self.jobs.range(awaited.first..=awaited.last).next().is_none();
            if !fails && !is_over() {
                continue;
            }
            for id in self.gate.dependents.remove(&awaited).unwrap_or_default() {
                #[cfg(test)]
                {
                    self.gate.looked_at += 1;
                }
                let Some(record) = self.jobs.get(&id) else { continue };
                if fails {
                    self.end_one(id, Verdict::Cancelled, Reason::DependencyFailed { job: ended }, out);
                } else if self.open_dependency(&record.job).is_none() {
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
        let Awaited { first, last, .. } = Awaited::of(after);
        self.jobs.range(first..=last).map(|(job, _)| *job).find(|job| *job != of)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::settings::Settings;
    use crate::units::Millis;

    /// An array of which each job ends by itself, and one of which each job waits for it many times over.
    fn looked_at(jobs: u64, dependents: u64, names: usize) -> usize {
        let mut state = State::new(Settings::default());
        let mut step = |event| state.step(Millis::ZERO, event);
        for id in 1..=jobs {
            let job = Job { held: true, gpus: 0, admitted: true, ..Job::new(JobId(id)) };
            step(Event::Submitted { job: Box::new(job) });
        }
        let (first, last) = (JobId(1), JobId(jobs));
        let after = Dependency { condition: Condition::Any, first, last, failed: None };
        for id in jobs + 1..=jobs + dependents {
            let after = vec![after; names];
            let job = Job { held: true, gpus: 0, admitted: true, after, ..Job::new(JobId(id)) };
            step(Event::Submitted { job: Box::new(job) });
        }
        let ready = |decisions: &[Decision]| {
            decisions.iter().filter(|one| matches!(one.action, Action::Ready { .. })).count() as u64
        };
        for id in 1..jobs {
            assert_eq!(ready(&step(Event::Cancelled { job: JobId(id) })), 0, "job {jobs} is open");
        }
        assert_eq!(ready(&step(Event::Cancelled { job: JobId(jobs) })), dependents);
        state.gate.looked_at
    }

    #[test]
    fn dependents_are_looked_at_once_when_all_they_wait_for_is_over() {
        assert_eq!(looked_at(300, 200, 99), 200);
    }
}
