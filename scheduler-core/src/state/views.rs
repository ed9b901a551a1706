//! Queries on the state.

use std::ops::ControlFlow;

use radrm_base::UserId;
use serde::{Deserialize, Serialize};

use super::{Leaving, Phase, State};
use crate::action::LaunchBudget;
use crate::device::{Device, DeviceId, Observation};
use crate::job::{Job, JobId};
use crate::place::could_hold;
use crate::queue::Queue;
use crate::reason::{Reason, Wait};
use crate::target::Standing;
use crate::units::{Bytes, Millis, Permille};

/// A device and what is on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// The device.
    pub device: Device,
    /// Jobs on it, in the order in which they came.
    pub jobs: Vec<JobId>,
    /// Memory set aside for jobs.
    pub reserved: Bytes,
    /// One job has it as a whole.
    pub whole: bool,
    /// Sum of the shares that jobs declared.
    pub share: Permille,
    /// Memory that unmanaged processes hold.
    pub foreign: Bytes,
    /// Last observation of the monitor.
    pub seen: Observation,
    /// It takes no new jobs.
    pub drained: bool,
    /// The job it is kept for.
    pub kept_for: Option<JobId>,
}

/// A job and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// The job.
    pub job: Job,
    /// Phase of the job.
    pub phase: Phase,
    /// Attempts started.
    pub attempts: u32,
    /// Attempts that ended for want of memory.
    pub ooms: u32,
    /// Memory known not to suffice.
    pub floor: Bytes,
    /// Its devices.
    pub devices: Vec<DeviceId>,
    /// Memory set aside for it on each device, if not the device as a whole.
    pub reserved: Option<Bytes>,
    /// Running time of this attempt.
    pub ran: Millis,
    /// Since when it is queued: its submission, or the end of its last slot.
    pub lined_up: Millis,
    /// Its launch budget, if it has one.
    pub budget: Option<LaunchBudget>,
    /// Progress against its target, if it runs with one.
    pub standing: Option<Standing>,
    /// The job with a target that it is held back for.
    pub held_for: Option<JobId>,
    /// Reason that it waits, if it does.
    pub wait: Option<Wait>,
    /// Stop of the job, if it was asked to stop.
    pub leaving: Option<Leaving>,
}

impl State {
    /// All devices that are not lost, in the order in which they were added.
    pub fn devices(&self) -> impl Iterator<Item = DeviceView> + '_ {
        let kept = |at: usize| self.reservation.as_ref().filter(|kept| kept.devices.contains(&at));
        self.devices.iter().enumerate().filter(|(_, dev)| !dev.lost).map(move |(at, dev)| DeviceView {
            device: dev.spec.clone(),
            jobs: dev.residents.iter().map(|resident| resident.job).collect(),
            reserved: dev.residents.iter().map(|resident| resident.claim).sum(),
            whole: dev.residents.iter().any(|resident| resident.whole),
            share: Permille(dev.residents.iter().map(|resident| resident.share).sum()),
            foreign: dev.foreign,
            seen: dev.seen,
            drained: dev.drained,
            kept_for: kept(at).map(|kept| kept.ask.job),
        })
    }

    /// A job that is not over.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<JobView> {
        let record = self.jobs.get(&id)?;
        Some(JobView {
            job: record.job.clone(),
            phase: record.phase,
            attempts: record.attempt,
            ooms: record.ooms,
            floor: record.floor,
            devices: record.devices.iter().map(|at| self.devices[*at].spec.id).collect(),
            reserved: record.reserved.filter(|_| !record.devices.is_empty()),
            ran: record.runtime(self.now),
            lined_up: record.lined_up,
            budget: record.budget,
            standing: self.standing(record),
            held_for: record.held_for,
            wait: self.wait_of(id),
            leaving: record.leaving(),
        })
    }

    /// Returns true if this device could hold the job, were it free.
    #[must_use]
    pub fn could_hold(&self, job: JobId, device: DeviceId) -> bool {
        let found = self.jobs.get(&job).zip(self.numbers.get(&device));
        found.is_some_and(|(record, at)| could_hold(&self.devices[*at], &self.ask_of(record)))
    }

    /// Phase of a job that has not ended.
    #[must_use]
    pub fn phase(&self, id: JobId) -> Option<Phase> {
        self.jobs.get(&id).map(|record| record.phase)
    }

    /// All jobs that are not over, by number.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.keys().copied()
    }

    /// Jobs in the order of the queue.
    #[must_use]
    pub fn queue(&self) -> Vec<JobId> {
        self.queue.first(usize::MAX, self.now, &self.settings.order, &self.ledger)
    }

    /// Visits jobs in the order of the queue, of one user or of all, until an answer breaks. With a job the answer names
    /// a later one: jobs between both that differ in their numbers only are passed over, at no cost.
    pub fn visit_queue(&self, whose: Option<UserId>, each: impl FnMut(JobId) -> ControlFlow<(), JobId>) {
        let order = &self.settings.order;
        self.queue.visit(whose, |user| Queue::penalty(user, self.now, order, &self.ledger), each);
    }

    /// Number of jobs that wait to be placed, also on devices that are lost.
    /// Jobs that are held are not counted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.aside.len()
    }

    /// The job that devices are kept for, and those devices.
    #[must_use]
    pub fn reserved_for(&self) -> Option<(JobId, Vec<DeviceId>)> {
        let kept = self.reservation.as_ref()?;
        Some((kept.ask.job, kept.devices.iter().map(|at| self.devices[*at].spec.id).collect()))
    }

    /// Jobs whose leaving makes room for the job that devices are kept for.
    pub fn blockers(&self) -> impl Iterator<Item = JobId> + '_ {
        self.reservation.iter().flat_map(|kept| kept.blockers.iter().copied())
    }

    /// Reasons for a job's state: what was decided for it, oldest first, and what it waits for now.
    /// Also of jobs that the last step ended.
    #[must_use]
    pub fn history(&self, id: JobId) -> Vec<(Millis, Reason)> {
        let record = self.jobs.get(&id).or_else(|| self.ended.iter().find(|record| record.job.id == id));
        let Some(record) = record else { return Vec::new() };
        let mut all: Vec<_> = record.history.iter().cloned().collect();
        if let Some(cause) = self.wait_of(id) {
            all.push((self.now, Reason::Waiting { cause }));
        }
        all
    }

    /// Reason that the first job of the same request waits: it holds for all of them.
    fn wait_of_alike(&self, id: JobId) -> Option<Wait> {
        self.jobs.get(&self.queue.first_alike(id)?)?.wait.clone()
    }

    fn wait_of(&self, id: JobId) -> Option<Wait> {
        let record = self.jobs.get(&id)?;
        match record.phase {
            Phase::Held => Some(self.kept_out_by(&record.job)),
            Phase::Waiting | Phase::Suspended => {
                self.barred_by(id).or_else(|| record.wait.clone()).or_else(|| self.wait_of_alike(id)).or_else(
                    || {
                        // Not considered, because a job before it is blocked.
                        let first = self.answers.first_job(|| self.first_within_limits());
                        first.filter(|first| *first != id).map(|job| Wait::Behind { job })
                    },
                )
            }
            _ => None,
        }
    }
}
