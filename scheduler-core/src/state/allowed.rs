//! Limits of users in the queue: what a job of a user may have, and what is left of it.
//!
//! A job that can never start under them stays out of the queue. One whose user has reached a limit keeps its place, and
//! no later job of that user is considered before it: it starts as soon as the user's running jobs leave it room.

use radrm_base::UserId;
use radrm_need::Source;

use super::{Phase, State};
use crate::allowance::{Allowance, Breach, Holding, Reached, Room};
use crate::device::DeviceId;
use crate::job::{Job, JobId};
use crate::place::could_hold;
use crate::state::record::Record;

impl State {
    /// GPUs and jobs of a user that run.
    #[must_use]
    pub fn holding(&self, user: UserId) -> Holding {
        self.allowances.held(user)
    }

    /// Limits of a user that are in force.
    #[must_use]
    pub fn allowance(&self, user: UserId) -> Allowance {
        self.allowances.of(user).cloned().unwrap_or_default()
    }

    /// Limits of a user hold from now on. Jobs that run stay.
    pub(super) fn set_allowance(&mut self, user: UserId, allowance: Allowance) {
        self.queue.set_behind(user, allowance.behind);
        self.allowances.set(user, allowance);
        self.pass_due = true;
        let own = self.jobs.values_mut().filter(|record| record.job.user == user);
        let mut waiting = Vec::new();
        for record in own {
            self.allowances.apply(record);
            record.failed = None;
            if matches!(record.phase, Phase::Waiting | Phase::Held) {
                waiting.push(record.job.id);
            }
        }
        for id in waiting {
            // It may be on devices that the user may not use any more.
            self.forget_reservation(id);
            let Some(record) = self.jobs.get(&id) else { continue };
            match (record.phase, self.breach(&record.job)) {
                (Phase::Waiting, Some(_)) => self.bar(id),
                (Phase::Held, None) => self.admit(id),
                _ => {}
            }
        }
    }

    /// GPUs and jobs that a job starts with: those of its group, if it starts with one. A job for which others run takes none.
    pub(super) fn starts_with(&self, job: &Job) -> Holding {
        if job.first {
            return Holding::default();
        }
        match job.together.filter(|group| !group.begun) {
            Some(group) => self.members(group).fold(Holding::default(), |sum, record| Holding {
                jobs: sum.jobs + 1,
                gpus: sum.gpus + u64::from(record.job.gpus),
            }),
            None => alone(job),
        }
    }

    /// Limit of its user under which a job can never start.
    pub(super) fn breach(&self, job: &Job) -> Option<Breach> {
        self.breach_with(job, self.starts_with(job))
    }

    /// The same, for a job without those that start with it.
    pub(super) fn breach_alone(&self, job: &Job) -> Option<Breach> {
        self.breach_with(job, alone(job))
    }

    /// The same, for a job that starts with others.
    fn breach_with(&self, job: &Job, needs: Holding) -> Option<Breach> {
        let allowance = self.allowances.of(job.user).filter(|_| !job.first)?;
        if let Some(bound) = allowance.gpus.as_ref().filter(|bound| needs.gpus > bound.most) {
            return Some(Breach::Gpus { needs: needs.gpus, bound: bound.clone() });
        }
        if let Some(bound) = allowance.running.as_ref().filter(|bound| needs.jobs > bound.most) {
            return Some(Breach::Running { needs: needs.jobs, bound: bound.clone() });
        }
        if let Some(bound) = &allowance.time
            && job.time_limit.is_none_or(|limit| limit.0 > bound.most)
        {
            return Some(Breach::Time { asks: job.time_limit, bound: bound.clone() });
        }
        // An estimate may be too high: such a job gets the limit as its own.
        let requested = job.need.as_ref().filter(|need| need.source == Source::Declared && job.gpus > 0);
        if let (Some(bound), Some(need)) = (&allowance.memory, requested)
            && need.upper.0 > bound.most
        {
            return Some(Breach::Memory { needs: need.upper, bound: bound.clone() });
        }
        let allowed = allowance.devices.as_ref().filter(|_| job.gpus > 0)?;
        let mut record = Record::new(job.clone());
        self.allowances.apply(&mut record);
        let ask = record.ask(&self.settings, self.largest(job.model.as_deref()));
        let fits =
            |id: &&DeviceId| self.numbers.get(*id).is_some_and(|at| could_hold(&self.devices[*at], &ask));
        let fit = allowed.devices.iter().filter(fits).count() as u64;
        let needs = u64::from(job.gpus);
        (fit < needs).then(|| Breach::Devices { needs, fit, from: allowed.from.clone() })
    }

    /// Checks that jobs of one user that start together may do so under the user's limits.
    ///
    /// # Errors
    /// Limit under which they never can.
    pub fn allows_together(&self, jobs: &[Job]) -> Result<(), Breach> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let gpus = jobs.iter().map(|job| u64::from(job.gpus)).sum();
        let needs = Holding { jobs: jobs.len() as u64, gpus };
        self.breach_with(first, needs).map_or(Ok(()), Err)
    }

    /// The first job in order that its user's limits let start.
    pub(super) fn first_within_limits(&self) -> Option<JobId> {
        let mut room = Room::default();
        let mut heads = self.queue.heads(self.now, &self.settings.order, &self.ledger);
        while let Some(id) = heads.next(&self.queue) {
            if self.take_room(&mut room, id).is_ok() {
                return Some(id);
            }
            heads.skip_user();
        }
        None
    }

    /// Takes the part of a queued job in the room that its user's limits leave. Jobs come in order, of each request only the
    /// first: those of its request behind it are not considered before it has left the queue.
    ///
    /// # Errors
    /// Limit that the job's user has reached.
    pub(super) fn take_room(&self, room: &mut Room, id: JobId) -> Result<(), Reached> {
        if self.allowances.is_empty() {
            return Ok(());
        }
        let Some(record) = self.jobs.get(&id) else { return Ok(()) };
        let user = record.job.user;
        let Some(allowance) = self.allowances.of(user) else { return Ok(()) };
        room.take(allowance, self.allowances.held(user), user, id, self.starts_with(&record.job))
    }

    /// The limit that keeps a queued job, or one of the same user before it, from being considered.
    pub(super) fn reached(&self, id: JobId) -> Option<Reached> {
        let record = self.jobs.get(&id)?;
        let user = record.job.user;
        self.allowances.of(user).filter(|of| of.gpus.is_some() || of.running.is_some())?;
        // It may wait aside, for a device that is lost.
        self.queue.first_alike(id)?;
        let mut room = Room::default();
        let mut heads = self.queue.heads_until(user, (record.class, record.key, id));
        let (head, reached) = heads.find_map(|head| Some((head, self.take_room(&mut room, head).err()?)))?;
        if head == id {
            return Some(reached);
        }
        let needs = self.starts_with(&record.job);
        let needs = if reached.of_gpus { needs.gpus } else { needs.jobs };
        Some(Reached { ahead: Some(head), needs, ..reached })
    }

    /// Takes a job out of the queue that its user's limits now never let start.
    fn bar(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.phase = Phase::Held;
        let next = self.gate.leave_slot(&record.job);
        self.unqueue(id);
        self.forget_reservation(id);
        if let Some(next) = next {
            self.admit(next);
        }
        self.scatter(id);
    }
}

/// GPUs and jobs of a job by itself.
fn alone(job: &Job) -> Holding {
    Holding { jobs: 1, gpus: u64::from(job.gpus) }
}
