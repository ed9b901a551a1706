//! Limits of users in the queue: what a job of a user may have, and what is left of it.
//!
//! A job that can never start under them stays out of the queue. One whose user has reached a limit, or has quiet hours now, keeps
//! its place, and no later job of that user is considered before it: it starts as soon as the user's running jobs leave it room.

use radrm_base::UserId;
use radrm_need::Source;

use super::{Phase, State};
use crate::allowance::{Allowance, Breach, Holding, Quiet, Reached, Room};
use crate::device::DeviceId;
use crate::job::{Job, JobId};
use crate::place::{Ask, could_hold};
use crate::reason::Wait;
use crate::state::record::Record;

/// Limit of its user that keeps a queued job from being considered.
pub(super) enum Barred {
    Quiet(Quiet),
    Reached(Reached),
}

impl Barred {
    /// Returns true if later jobs of the same user wait behind it. Only a suspended job can be beyond a limit by itself: it is in
    /// no job's way.
    pub(super) fn bars_later(&self) -> bool {
        !matches!(self, Self::Reached(reached) if reached.is_never())
    }

    fn into_wait(self) -> Wait {
        match self {
            Self::Quiet(quiet) => Wait::QuietHours { quiet },
            Self::Reached(reached) => Wait::UserLimit { limit: Box::new(reached) },
        }
    }
}

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
        // Whether a lost device could hold them depends on which they may use.
        self.take_up_aside();
        if self.lost > 0 {
            self.set_lost_aside();
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
        let allowance = self.limits_of(job)?;
        let leads = job.together.filter(|group| !group.begun && group.first == job.id);
        let members: Vec<&Record> = leads.map(|group| self.members(group).collect()).unwrap_or_default();
        let of_group = self.joint_ask(&members).and_then(|ask| self.too_few(&ask, allowance));
        self.breach_with(allowance, job, self.starts_with(job)).or(of_group)
    }

    /// The same, for a job without those that start with it.
    pub(super) fn breach_alone(&self, job: &Job) -> Option<Breach> {
        self.breach_with(self.limits_of(job)?, job, alone(job))
    }

    fn limits_of(&self, job: &Job) -> Option<&Allowance> {
        self.allowances.of(job.user).filter(|_| !job.first)
    }

    /// The same, for a job that starts with others.
    fn breach_with(&self, allowance: &Allowance, job: &Job, needs: Holding) -> Option<Breach> {
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
        self.too_few(&self.own_ask(&self.record_of(job)), allowance)
    }

    /// A record of a job that is not there, with its user's limits.
    fn record_of(&self, job: &Job) -> Record {
        let mut record = Record::new(job.clone());
        self.allowances.apply(&mut record);
        record
    }

    /// Too few of the GPUs that a user may use could hold what is requested. Without any GPU on the node all are to appear yet.
    fn too_few(&self, ask: &Ask, allowance: &Allowance) -> Option<Breach> {
        let allowed = allowance.devices.as_ref().filter(|_| ask.gpus > 0 && !self.devices.is_empty())?;
        let fits =
            |id: &&DeviceId| self.numbers.get(*id).is_some_and(|at| could_hold(&self.devices[*at], ask));
        let fit = allowed.devices.iter().filter(fits).count();
        (fit < ask.gpus).then(|| Breach::Devices {
            needs: ask.gpus as u64,
            fit: fit as u64,
            from: allowed.from.clone(),
        })
    }

    /// Checks that jobs of one user that start together may do so under the user's limits.
    ///
    /// # Errors
    /// Limit under which they never can.
    pub fn allows_together(&self, jobs: &[Job]) -> Result<(), Breach> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let Some(allowance) = self.limits_of(first) else { return Ok(()) };
        let gpus = jobs.iter().map(|job| u64::from(job.gpus)).sum();
        let needs = Holding { jobs: jobs.len() as u64, gpus };
        let records: Vec<Record> = jobs.iter().map(|job| self.record_of(job)).collect();
        let ask = self.joint_ask(&records.iter().collect::<Vec<_>>());
        let of_group = ask.and_then(|ask| self.too_few(&ask, allowance));
        self.breach_with(allowance, first, needs).or(of_group).map_or(Ok(()), Err)
    }

    /// The first job in order that its user's limits let start.
    pub(super) fn first_within_limits(&self) -> Option<JobId> {
        let mut room = Room::default();
        let mut heads = self.queue.heads(self.now, &self.settings.order, &self.ledger);
        while let Some(id) = heads.next(&self.queue) {
            match self.take_room(&mut room, id) {
                Ok(()) => return Some(id),
                Err(barred) if barred.bars_later() => heads.skip_user(),
                Err(_) => {}
            }
        }
        None
    }

    /// Takes the part of a queued job in the room that its user's limits leave. Jobs come in order, of each request only the
    /// first: those of its request behind it are not considered before it has left the queue.
    ///
    /// # Errors
    /// Limit that keeps the job from being considered.
    pub(super) fn take_room(&self, room: &mut Room, id: JobId) -> Result<(), Barred> {
        if self.allowances.is_empty() {
            return Ok(());
        }
        let Some(record) = self.jobs.get(&id) else { return Ok(()) };
        let user = record.job.user;
        let Some(allowance) = self.allowances.of(user) else { return Ok(()) };
        if let Some(quiet) = allowance.quiet.as_ref().filter(|_| !record.job.first) {
            return Err(Barred::Quiet(quiet.clone()));
        }
        let needs = self.starts_with(&record.job);
        room.take(allowance, self.allowances.held(user), user, id, needs).map_err(Barred::Reached)
    }

    /// The limit that keeps a queued job, or one of the same user before it, from being considered.
    pub(super) fn barred_by(&self, id: JobId) -> Option<Wait> {
        let record = self.jobs.get(&id)?;
        let user = record.job.user;
        self.allowances
            .of(user)
            .filter(|of| of.gpus.is_some() || of.running.is_some() || of.quiet.is_some())?;
        // It may wait aside, for a device that is lost.
        self.queue.first_alike(id)?;
        let mut room = Room::default();
        let mut heads = self.queue.heads_until(user, (record.class, record.key, id));
        let (head, barred) = heads.find_map(|head| {
            let barred = self.take_room(&mut room, head).err()?;
            (head == id || barred.bars_later()).then_some((head, barred))
        })?;
        Some(match barred {
            Barred::Reached(reached) if head != id => {
                let needs = self.starts_with(&record.job);
                let needs = if reached.of_gpus { needs.gpus } else { needs.jobs };
                Barred::Reached(Reached { ahead: Some(head), needs, ..reached }).into_wait()
            }
            barred => barred.into_wait(),
        })
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
