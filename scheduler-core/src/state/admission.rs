//! Admission control: what this node can never start, what waits for a device that is lost, and what its user may not
//! submit.

use std::collections::BTreeSet;
use std::fmt;

use super::{NodeState, State};
use crate::action::{Decision, Verdict};
use crate::job::{HostNeed, Job, JobId};
use crate::limits::Exceeded;
use crate::place::{Ask, could_hold};
use crate::reason::{Impossible, Reason, Wait};
use crate::state::record::Record;
use crate::units::Bytes;

/// Devices that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Lost ones too: they may come back.
    All,
    Present,
}

/// A need beyond any device, which is taken for an estimate: the job gets devices of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversized {
    /// On each device.
    pub need: Bytes,
    /// The largest device there is.
    pub largest: Bytes,
    /// Number of devices.
    pub gpus: u16,
}

impl fmt::Display for Oversized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { need, largest, gpus } = self;
        let own = if *gpus == 1 { "a GPU" } else { "GPUs" };
        write!(
            f,
            "{need} of GPU memory is more than any GPU here has ({largest}): it is taken for an estimate, and the job \
             gets {own} of its own"
        )
    }
}

impl State {
    /// Checks that the job would be admitted now.
    /// It is if it can start some time on this node with all its devices, lost ones too, and its user may have it.
    /// `before` is the number of jobs that its user submits before it. [`crate::Event::Submitted`] decides alike, but that a job
    /// that its user's limits never let start waits for other limits.
    ///
    /// # Errors
    /// Why it would be rejected.
    pub fn admission(&self, job: &Job, before: u32) -> Result<Option<Oversized>, Reason> {
        if let Some(limit) = self.exceeded(job, before) {
            return Err(Reason::UserLimit { limit });
        }
        let record = Record::new(job.clone());
        // Jobs that start with it are not numbered yet: `allows_together` counts them.
        let breach = self.breach_alone(job).filter(|_| !job.admitted);
        if let Some(why) = breach {
            return Err(Reason::NotAllowed { why });
        }
        match self.impossible(&record) {
            // The node's GPUs may appear later, for instance once its driver is loaded.
            Some(Impossible::NoGpu) => Ok(None),
            Some(why) => Err(Reason::Impossible { why }),
            None => Ok(self.oversized(&record)),
        }
    }

    fn oversized(&self, record: &Record) -> Option<Oversized> {
        let job = &record.job;
        let largest = self.largest(job.model.as_deref());
        let need = job.need.as_ref()?.upper;
        let whole = record.ask(&self.settings, largest).whole && job.gpus > 0 && !job.exclusive;
        let shares = self.settings.policy.shares();
        (whole && shares).then_some(Oversized { need, largest, gpus: job.gpus })
    }

    fn exceeded(&self, job: &Job, before: u32) -> Option<Exceeded> {
        if job.admitted {
            return None;
        }
        let has = self.users.get(&job.user).map_or(0, BTreeSet::len);
        let has = u32::try_from(has).unwrap_or(u32::MAX).saturating_add(before);
        let highest = self.limits.priority.filter(|highest| job.priority > *highest && !job.by_admin);
        let jobs = self.limits.jobs.filter(|most| has >= *most).map(|most| Exceeded::Jobs { has, most });
        highest.map(|highest| Exceeded::Priority { priority: job.priority, highest }).or(jobs)
    }

    pub(super) fn submit(&mut self, job: Job, out: &mut Vec<Decision>) {
        let id = job.id;
        if self.jobs.contains_key(&id) {
            return;
        }
        let exceeded = self.exceeded(&job, 0);
        self.insert(Record::new(job));
        match exceeded {
            Some(limit) => self.end(id, Verdict::Rejected, Reason::UserLimit { limit }, out),
            None if self.has_prospects(id, out) => self.queue_or_end(id, out),
            None => {}
        }
    }

    /// A job that was not there. One that was admitted before this state began, and is impossible now, may lack a device
    /// that was lost meanwhile. On a node without any, each job lacks one.
    pub(super) fn insert(&mut self, mut record: Record) {
        self.targets |= !record.job.target.is_none();
        self.allowances.apply(&mut record);
        record.lacks_device = match self.impossible(&record) {
            Some(why) => record.job.admitted || why == Impossible::NoGpu,
            None => false,
        };
        let id = record.job.id;
        self.users.entry(record.job.user).or_default().insert(id);
        self.jobs.insert(id, record);
        self.join_group(id);
    }

    /// A job that waits goes on towards the queue. It ends if no device could ever hold it.
    pub(super) fn queue_or_end(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id) else { return };
        match self.impossible(record).filter(|_| !record.lacks_device) {
            Some(why) => self.end(id, Verdict::Impossible, Reason::Impossible { why }, out),
            None => self.admit(id),
        }
    }

    /// A waiting or suspended job into the queue, or aside if it waits for a device that is not there.
    pub(super) fn queue_up(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(&id) else { return };
        let may_lack = record.lacks_device || record.image.is_some();
        // What a group needs together may have grown since it was admitted.
        let may_lack = may_lack || record.gathers().is_some();
        match may_lack.then(|| self.impossible(record)).flatten() {
            Some(why) => self.set_aside(id, Wait::Missing { why }),
            None => match self.kept_from_its_devices(record) {
                Some(why) => self.set_aside(id, Wait::NotAllowed { why }),
                None if self.waits_for_lost(record) => self.set_aside(id, Wait::Lost),
                None => self.enqueue(id),
            },
        }
    }

    fn waits_for_lost(&self, record: &Record) -> bool {
        self.lost > 0 && self.lacks(record, Counted::Present).is_some()
    }

    /// A job that no present device can hold stays out of the queue, where it would be in the way of others.
    fn set_aside(&mut self, id: JobId, wait: Wait) {
        self.unqueue(id);
        self.forget_reservation(id);
        self.pass_due = true;
        if let Some(record) = self.jobs.get_mut(&id).filter(|record| record.phase.queued()) {
            record.wait = Some(wait);
            self.aside.insert(id);
        }
    }

    /// A device is lost: those that only it can hold do not stand in the queue.
    pub(super) fn set_lost_aside(&mut self) {
        let queued = self.jobs.values().filter(|record| record.phase.queued());
        let lost: Vec<JobId> =
            queued.filter(|record| self.waits_for_lost(record)).map(|record| record.job.id).collect();
        for id in lost.into_iter().filter(|id| !self.aside.contains(id)).collect::<Vec<_>>() {
            self.set_aside(id, Wait::Lost);
        }
    }

    /// A device is there, or is back: those that may have waited for it.
    pub(super) fn take_up_aside(&mut self) {
        std::mem::take(&mut self.aside).into_iter().for_each(|id| self.queue_up(id));
    }

    /// Returns the reason that no device that the node has, or had, could ever hold the job.
    pub(super) fn impossible(&self, record: &Record) -> Option<Impossible> {
        self.lacks(record, Counted::All)
    }

    fn lacks(&self, record: &Record, counted: Counted) -> Option<Impossible> {
        let mut ask = self.ask_of(record);
        if counted == Counted::All {
            // What its user may not use may be allowed again.
            let image = record.image.as_ref().filter(|image| !image.devices.is_empty());
            ask.only = image.map(|image| image.devices.clone());
        }
        self.lacks_for(ask, counted)
    }

    /// Checks that jobs that are to start together can ever start.
    ///
    /// # Errors
    /// What is missing.
    pub fn admission_together(&self, jobs: &[Job]) -> Result<(), Impossible> {
        let records: Vec<Record> = jobs.iter().cloned().map(Record::new).collect();
        let ask = self.joint_ask(&records.iter().collect::<Vec<_>>());
        let missing = ask.and_then(|ask| self.lacks_for(ask, Counted::All));
        missing.filter(|why| *why != Impossible::NoGpu).map_or(Ok(()), Err)
    }

    fn lacks_for(&self, ask: Ask, counted: Counted) -> Option<Impossible> {
        if ask.share > 1000 {
            return Some(Impossible::Share);
        }
        if ask.sharers > 1 && !self.settings.policy.shares() {
            return Some(Impossible::Unshared);
        }
        let fits = |node: &NodeState| {
            let HostNeed { cpu_milli, memory } = ask.host;
            node.bound.is_none_or(|bound| cpu_milli <= bound.cpu_milli && memory <= bound.memory)
        };
        if !self.nodes.is_empty() && !self.nodes.iter().any(fits) {
            return Some(Impossible::Host);
        }
        if ask.gpus == 0 {
            return None;
        }
        let names = || self.sizes.keys().map(|(name, _)| name);
        if self.sizes.is_empty() {
            return Some(Impossible::NoGpu);
        }
        if let Some(model) = ask.model.as_ref().filter(|model| names().all(|name| name != *model)) {
            let mut models: Vec<String> = names().cloned().collect();
            models.dedup();
            return Some(Impossible::Model { model: model.clone(), models });
        }
        let largest = self.largest(ask.model.as_deref());
        if let Some(need) = ask.claim.filter(|need| *need > largest) {
            return Some(Impossible::Memory { need, largest });
        }
        let is_bounded = ask.host != HostNeed::default();
        let is_anywhere = ask.node.is_none() && ask.only.is_none() && ask.sharers <= 1;
        let any_of_model = ask.gpus == 1 && !is_bounded && is_anywhere;
        if any_of_model && counted == Counted::All {
            return None;
        }
        let fit = |node: (usize, &NodeState)| {
            let (index, node) = node;
            if !fits(node) || ask.node.is_some_and(|only| only != index) {
                return 0;
            }
            let devices = node.devices.iter().map(|at| &self.devices[*at]);
            devices.filter(|dev| (counted == Counted::All || !dev.lost) && could_hold(dev, &ask)).count()
        };
        let most = self.nodes.iter().enumerate().map(fit).max().unwrap_or(0);
        if most == 0 && ask.gpus == 1 && is_bounded {
            return Some(Impossible::Host);
        }
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        let gpus = u16::try_from(ask.gpus).unwrap_or(u16::MAX);
        (usize::from(most) < ask.gpus).then_some(Impossible::Gpus { gpus, most })
    }
}
