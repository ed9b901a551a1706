//! Limits of users in the queue: what a job of a user may have, and what is left of it.
//!
//! A job that can never start under them stays out of the queue. One whose user has reached a limit, or has quiet hours now, keeps
//! its place, and no later job of that user is considered before it: it starts as soon as the user's running jobs leave it room.

use radrm_base::UserId;
use radrm_need::Source;

use super::barred::{Barred, KeptOff};
use super::{Phase, State};
use crate::allowance::{Allowance, Breach, Holding, Quiet, Reached, Room};
use crate::device::DeviceId;
use crate::job::{Job, JobId};
use crate::place::{Ask, could_hold};
use crate::queue::Place;
use crate::reason::Wait;
use crate::state::record::Record;
use crate::units::Bytes;

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
        let before = self.allowances.of(user);
        let moves_jobs = before.and_then(|of| of.devices.as_ref()) != allowance.devices.as_ref()
            || before.and_then(|of| of.memory.as_ref()) != allowance.memory.as_ref()
            || before.map(without_memory).unwrap_or_default() != without_memory(&allowance);
        self.allowances.set(user, allowance);
        self.pass_due = true;
        let own: Vec<JobId> = self.users.get(&user).into_iter().flatten().copied().collect();
        for id in &own {
            if let Some(record) = self.jobs.get_mut(id) {
                self.allowances.apply(record);
                record.failed = None;
            }
        }
        for id in own {
            let is_off = |record: &&Record| !record.phase.on_devices();
            let Some(record) = self.jobs.get(&id).filter(is_off) else { continue };
            let (phase, breach) = (record.phase, self.breach(&record.job));
            // It may be on devices that the user may not use any more.
            self.forget_reservation(id);
            match (phase, breach) {
                (Phase::Waiting, Some(_)) => self.bar(id),
                (Phase::Held, None) => self.admit(id),
                (Phase::Waiting | Phase::Suspended, _) if moves_jobs => {
                    // The devices that could hold it, lost ones too, depend on those that it may use, and on its memory there.
                    self.unqueue(id);
                    self.queue_up(id);
                }
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
        let allowance = self.limits_of(job)?;
        // A group may have hundreds of jobs: all of them are visited only for a limit on their sums.
        let has_sums = allowance.gpus.is_some() || allowance.running.is_some();
        let needs = if has_sums { self.starts_with(job) } else { Holding::default() };
        let leads = job.together.filter(|group| !group.begun && group.first == job.id);
        let of_group = || {
            let group = leads.filter(|_| allowance.devices.is_some())?;
            let ask = self.joint_ask(&self.members(group).collect::<Vec<_>>())?;
            self.too_few(&ask, allowance)
        };
        self.breach_with(allowance, job, needs).or_else(of_group)
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
        allowance.devices.as_ref()?;
        self.too_few(&self.own_ask(&self.record_of(job)), allowance)
    }

    /// Limit of its user below the need of a job that has run out of memory: no attempt under it can succeed.
    pub(super) fn needs_more_than_allowed(&self, id: JobId) -> Option<Breach> {
        let record = self.jobs.get(&id)?;
        let bound = self.allowances.of(record.job.user)?.memory.as_ref()?;
        (record.floor.0 > bound.most).then(|| Breach::Memory { needs: record.floor, bound: bound.clone() })
    }

    /// Limit of its user below the need of a job that does not declare it. An estimate may be too high, and another input may need
    /// less: the job gets the limit as its own.
    #[must_use]
    pub fn below_need(&self, job: &Job) -> Option<Breach> {
        let bound = self.limits_of(job)?.memory.as_ref()?;
        let need = job.need.as_ref().filter(|need| need.source != Source::Declared && job.gpus > 0)?;
        (need.upper.0 > bound.most).then(|| Breach::Memory { needs: need.upper, bound: bound.clone() })
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

    /// Limit that keeps a suspended job from the devices that it can come back to.
    pub(super) fn kept_from_its_devices(&self, record: &Record) -> Option<Breach> {
        record.image.as_ref()?;
        let allowance = self.limits_of(&record.job)?;
        allowance.devices.as_ref()?;
        self.too_few(&self.own_ask(record), allowance)
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

    /// User of a job.
    pub(super) fn user_of(&self, id: JobId) -> UserId {
        self.jobs.get(&id).map_or_else(UserId::default, |record| record.job.user)
    }

    /// The first job in order that its user's limits let start.
    pub(super) fn first_within_limits(&self) -> Option<JobId> {
        let (mut room, mut kept_off) = (Room::default(), KeptOff::new(self.settings.order.depth));
        let mut heads = self.queue.heads(self.now, &self.settings.order, &self.ledger);
        while let Some(id) = heads.next(&self.queue) {
            match self.take_room(&mut room, id) {
                Ok(()) => return Some(id),
                Err(barred) if barred.bars_later() || kept_off.is_full(self.user_of(id)) => heads.skip_user(),
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
        if let Some(quiet) = allowance.quiet.as_ref().filter(|quiet| !self.starts_in(quiet, record)) {
            return Err(Barred::Quiet { user, excepts_small: !quiet.small.is_none() });
        }
        let needs = self.starts_with(&record.job);
        room.take(allowance, self.allowances.held(user), user, id, needs).map_err(Barred::Reached)
    }

    /// Returns true if a job, and all of a group that it starts with, is small enough to start in quiet hours.
    fn starts_in(&self, quiet: &Quiet, record: &Record) -> bool {
        let is_small = |record: &Record| record.job.first || quiet.small.contains(&record.job, record.floor);
        match record.gathers() {
            Some(group) => self.members(group).all(is_small),
            None => is_small(record),
        }
    }

    /// The limit that keeps a queued job, or one of the same user before it, from being considered.
    pub(super) fn barred_by(&self, id: JobId) -> Option<Wait> {
        let record = self.jobs.get(&id)?;
        let user = record.job.user;
        self.allowances
            .of(user)
            .filter(|of| of.gpus.is_some() || of.running.is_some() || of.quiet.is_some())?;
        // It may wait aside, for a device that is lost.
        let first_alike = self.queue.first_alike(id)?;
        let place = (record.class, record.key, id);
        let barring = self.answers.barring_job(user, || self.barring_job(user));
        match barring.filter(|(at, _)| *at <= place) {
            Some(((.., head), Barred::Reached(reached))) if head != id => {
                let needs = self.starts_with(&record.job);
                let needs = if reached.of_gpus { needs.gpus } else { needs.jobs };
                Barred::Reached(Reached { ahead: Some(head), needs, ..reached }).into_wait(&self.allowances)
            }
            Some((_, barred)) => barred.into_wait(&self.allowances),
            None => {
                let own = self.take_room(&mut Room::default(), id).err()?;
                let bars_later = own.bars_later();
                // Quiet hours keep all jobs of a request alike, and by themselves.
                let is_own = first_alike == id || matches!(own, Barred::Quiet { .. });
                own.into_wait(&self.allowances).filter(|_| is_own && !bars_later)
            }
        }
    }

    /// The first queued job of a user behind which all later ones wait, and the limit that keeps it from being considered.
    fn barring_job(&self, user: UserId) -> Option<(Place, Barred)> {
        let mut room = Room::default();
        let mut heads = self.queue.heads_until(user, (u8::MAX, i64::MAX, JobId(u64::MAX)));
        heads.find_map(|head| {
            let barred = self.take_room(&mut room, head).err().filter(Barred::bars_later)?;
            let record = self.jobs.get(&head)?;
            Some(((record.class, record.key, head), barred))
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

/// Devices of which a user may have no memory.
fn without_memory(allowance: &Allowance) -> Vec<DeviceId> {
    let none = allowance.quotas.iter().filter(|quota| quota.bytes == Bytes::ZERO);
    none.map(|quota| quota.device).collect()
}

/// GPUs and jobs of a job by itself.
fn alone(job: &Job) -> Holding {
    Holding { jobs: 1, gpus: u64::from(job.gpus) }
}
