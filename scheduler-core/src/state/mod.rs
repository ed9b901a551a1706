//! The state, and the one way to change it.

mod admission;
mod allowances;
mod allowed;
mod answers;
mod barred;
mod behind;
mod company;
mod devices;
mod early;
mod evict;
mod fill;
mod forecast;
mod gate;
mod jobs;
mod kept_memory;
mod planned;
mod programs;
mod record;
mod reserved;
mod schedule;
#[cfg(test)]
mod searches;
mod since;
mod throttle;
mod together;
mod unknown;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use crate::leaving::Leaving;
pub use admission::Oversized;
pub use record::Phase;
pub(crate) use record::Record;
pub use unknown::UnknownNeed;
pub use views::{DeviceView, JobView};

use crate::action::{Action, Decision};
use crate::advance::AdvanceReservation;
use crate::device::{DeviceId, Node, NodeId};
use crate::event::Event;
use crate::fair::Ledger;
use crate::host::HostJobs;
use crate::interference::Sharing;
use crate::job::{HostNeed, JobId, Profile};
use crate::limits::UserLimits;
use crate::outside::Outside;
use crate::place::{Dev, Scratch};
use crate::queue::Queue;
use crate::reason::Reason;
use crate::reserve::{Held, Reservation};
use crate::settings::Settings;
use crate::units::{Bytes, Millis};
use programs::Programs;
use radrm_base::UserId;
use record::Image;
use since::Since;

/// A machine and what is left of it.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    /// `None`: not bounded.
    pub(crate) bound: Option<Node>,
    pub(crate) cpu_milli: u64,
    pub(crate) memory: Bytes,
    /// Indices of its devices.
    pub(crate) devices: Vec<usize>,
    /// Measured use of the host by its jobs.
    pub(crate) host: HostJobs,
}

impl NodeState {
    pub(crate) fn has(&self, need: HostNeed) -> bool {
        self.bound.is_none_or(|node| {
            self.cpu_milli + need.cpu_milli <= node.cpu_milli && self.memory.plus(need.memory) <= node.memory
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The next start is due.
    Pace,
    /// An advance reservation begins or ends, or its lead time begins.
    Reserved,
    Job(JobId),
    Device(usize),
}

/// Stage of a manager that takes its time over each decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No job waits.
    Rest,
    /// A pass over the devices that are idle.
    Idle,
    /// A pass over all of them.
    Shared,
}

/// All that is known: devices, jobs that are not over, what was decided for them.
///
/// Memory grows with the jobs that are not over, not with those that were.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) settings: Settings,
    sharing: Sharing,
    /// Predictor of the caller's, in place of those.
    outside: Option<Outside>,
    /// Activity of programs by their running jobs.
    programs: Programs,
    pub(crate) now: Millis,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) devices: Vec<Dev>,
    numbers: BTreeMap<DeviceId, usize>,
    node_numbers: BTreeMap<NodeId, usize>,
    /// Number of devices of each GPU model and size, lost ones too.
    sizes: BTreeMap<(String, Bytes), u32>,
    /// Number of lost devices.
    lost: u32,
    limits: UserLimits,
    allowances: allowances::Allowances,
    /// Advance reservations that have not ended.
    advance: Vec<AdvanceReservation>,
    answers: answers::Answers,
    pub(crate) jobs: BTreeMap<JobId, Record>,
    /// True if any job has had a target: without one no job is ever throttled for one.
    targets: bool,
    /// Jobs of each user.
    users: BTreeMap<UserId, BTreeSet<JobId>>,
    /// Jobs that wait for a device that is not there.
    aside: BTreeSet<JobId>,
    queue: Queue,
    gate: gate::Gate,
    /// Jobs of groups that have not started.
    gathering: BTreeSet<JobId>,
    ledger: Ledger,
    /// Jobs without GPUs: where their host part is.
    host_jobs: BTreeMap<JobId, usize>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) reservations: u64,
    /// Memory that is kept for jobs for which no devices are, during a pass.
    kept_memory: Vec<kept_memory::KeptMemory>,
    /// Devices that each of the last reservations kept from others.
    pub(crate) held: VecDeque<Held>,
    /// Devices that would do by the last search, as in [`record::Failed`].
    fits: Vec<usize>,
    /// The device whose reason the last search gave, as there.
    closest: Option<usize>,
    /// Devices that may now take jobs that they did not take before, in order of time.
    changes: VecDeque<usize>,
    /// Number of the first entry of `changes`.
    changes_from: u64,
    /// The devices among which the last job was searched that was searched before.
    since: Since,
    /// Something happened that may let a waiting job start.
    pass_due: bool,
    /// More events follow before the queue is scheduled.
    paused: bool,
    timers: BTreeSet<(Millis, Timer)>,
    wake: Option<Millis>,
    /// Purpose of the next pass, and its due time, if decisions take time.
    stage: Stage,
    paced: Millis,
    /// This pass is over idle devices only.
    idle_only: bool,
    /// The device index after the one that round-robin used last.
    cursor: usize,
    pub(crate) scratch: Scratch,
    ended: Vec<Record>,
}

impl State {
    /// Nothing there yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            sharing: Sharing::new(settings.interference),
            outside: None,
            programs: Programs::default(),
            settings,
            now: Millis::ZERO,
            nodes: Vec::new(),
            devices: Vec::new(),
            numbers: BTreeMap::new(),
            node_numbers: BTreeMap::new(),
            sizes: BTreeMap::new(),
            lost: 0,
            limits: UserLimits::default(),
            allowances: allowances::Allowances::default(),
            advance: Vec::new(),
            answers: answers::Answers::default(),
            jobs: BTreeMap::new(),
            targets: false,
            users: BTreeMap::new(),
            aside: BTreeSet::new(),
            queue: Queue::default(),
            gate: gate::Gate::default(),
            gathering: BTreeSet::new(),
            ledger: Ledger::default(),
            host_jobs: BTreeMap::new(),
            reservation: None,
            reservations: 0,
            kept_memory: Vec::new(),
            held: VecDeque::new(),
            fits: Vec::new(),
            closest: None,
            since: Since::default(),
            changes: VecDeque::new(),
            changes_from: 0,
            pass_due: false,
            paused: false,
            timers: BTreeSet::new(),
            wake: None,
            stage: Stage::Rest,
            paced: Millis::ZERO,
            idle_only: false,
            cursor: 0,
            scratch: Scratch::default(),
            ended: Vec::new(),
        }
    }

    /// Takes in what happened and gives back what is to be done.
    pub fn step(&mut self, at: Millis, event: Event) -> Vec<Decision> {
        self.step_by(at, event, &mut Self::schedule)
    }

    /// The same with another pass over the queue.
    fn step_by(
        &mut self,
        at: Millis,
        event: Event,
        schedule: &mut dyn FnMut(&mut Self, &mut Vec<Decision>),
    ) -> Vec<Decision> {
        let mut out = Vec::new();
        self.answers.forget();
        self.ended.clear();
        self.now = self.now.max(at);
        self.take(event, &mut out);
        if !self.paused {
            // An end that was reported meanwhile comes before the end of a time limit.
            self.run_timers(&mut out);
            self.clear_reserved(&mut out);
            if std::mem::take(&mut self.pass_due) {
                schedule(self, &mut out);
            }
        }
        self.set_wake(&mut out);
        out
    }

    fn take(&mut self, event: Event, out: &mut Vec<Decision>) {
        match event {
            Event::NodeAdded { node } => self.add_node(node),
            Event::DeviceAdded { device } => self.add_device(device),
            Event::DeviceLost { device } => self.lose_device(device, out),
            Event::DeviceDrained { device, drained } => self.drain_device(device, drained),
            Event::DeviceObserved { device, seen } => self.observe_device(device, seen, out),
            Event::JobObserved { job, device, seen } => self.observe_job(job, device, seen, out),
            Event::CompanyObserved { device, jobs, together, each } => {
                self.observe_company(device, &jobs, together, &each);
            }
            Event::TargetObserved { job, seen } => self.observe_target(job, seen, out),
            Event::StepsObserved { job, attempt, first } => self.observe_steps(job, attempt, first, out),
            Event::SharingObserved { model, jobs } => self.observe_sharing(&model, &jobs),
            Event::Submitted { job } => self.submit(*job, out),
            Event::Adopted { job, devices, since, reserved, leaving } => {
                self.adopt(*job, &devices, since, reserved, leaving.map(|leaving| *leaving), out);
            }
            Event::AdoptedSuspended { job, model, bytes, gpus, devices, whole, ran } => {
                let image = Image { bytes, model, node: None, devices, whole, not_before: Millis::ZERO };
                self.adopt_suspended(*job, image, gpus, ran);
            }
            Event::SuspendKnown { job, suspend } => self.know_suspend(job, suspend),
            Event::UsageRestored { user, gpu_ms } => {
                if let Some(fair) = self.settings.order.fair {
                    self.ledger.add(user, gpu_ms, self.now, &fair);
                }
            }
            Event::NeedKnown { job, need } => self.know_need(job, need, out),
            Event::ProfileKnown { job, activity, predicted, expected, at_least, host_use } => {
                self.know_profile(job, Profile { activity, predicted, expected, at_least, host_use });
            }
            Event::DryRunOver { job } => self.dry_run_over(job),
            Event::Cancelled { job } => self.cancel(job, out),
            Event::Held { job } => self.hold(job),
            Event::Released { job } => self.release_held(job),
            Event::Started { job, attempt } => self.started(job, attempt),
            Event::StartOverdue { job, attempt, limit } => self.start_overdue(job, attempt, limit, out),
            Event::Finished { job, attempt, outcome } => self.finished(job, attempt, outcome, out),
            Event::UserLimitsSet { limits } => self.limits = limits,
            Event::AdvanceReservationsSet { reservations } => self.set_advance_reservations(reservations),
            Event::AllowanceSet { user, allowance } => self.set_allowance(user, *allowance),
            Event::Suspended { job, attempt, bytes } => self.suspended(job, attempt, bytes),
            Event::SuspendFailed { job, attempt, refusal } => self.suspend_failed(job, attempt, refusal, out),
            Event::Resumed { job, attempt } => self.resumed(job, attempt),
            Event::ResumeFailed { job, attempt } => self.resume_failed(job, attempt),
            Event::SignalHeld { job, held } => self.signal_held(job, held),
            Event::Paused { paused } => {
                self.paused = paused;
                self.end_incomplete_groups(out);
            }
            Event::Tick => {}
        }
    }

    fn run_timers(&mut self, out: &mut Vec<Decision>) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= self.now
        {
            self.timers.pop_first();
            match timer {
                Timer::Pace => self.pass_due = true,
                Timer::Reserved => self.reservations_turn(),
                Timer::Device(index) => self.changed(index),
                Timer::Job(job) => {
                    if let Some(record) = self.jobs.get_mut(&job) {
                        record.timer = None;
                        self.on_timer(job, out);
                        self.set_timer(job);
                    }
                }
            }
        }
    }

    fn set_wake(&mut self, out: &mut Vec<Decision>) {
        let next = self.timers.first().map(|(at, _)| *at);
        if next != self.wake {
            self.wake = next;
            if let Some(at) = next {
                out.push(Decision { action: Action::WakeAt { at }, reason: Reason::Timer });
            }
        }
    }

    /// A device may now take jobs that it did not take before.
    fn changed(&mut self, index: usize) {
        const KEPT: usize = 1024;
        self.pass_due = true;
        if self.changes.back() == Some(&index) && self.queue.len() == 0 {
            return;
        }
        self.changes.push_back(index);
        if self.changes.len() > KEPT {
            self.changes.pop_front();
            self.changes_from += 1;
        }
    }

    /// The memory of the largest device, of a model if one is named.
    pub(crate) fn largest(&self, model: Option<&str>) -> Bytes {
        self.sizes
            .iter()
            .filter(|((name, _), _)| model.is_none_or(|model| model == name))
            .map(|((_, capacity), _)| *capacity)
            .max()
            .unwrap_or(Bytes::MAX)
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// GPU time each user has used, in ms, decayed to now: to be kept over a restart.
    pub fn usage(&self) -> impl Iterator<Item = (UserId, u64)> + '_ {
        let half_life = self.settings.order.fair.unwrap_or_default().half_life;
        self.ledger.all(self.now, half_life)
    }
}
