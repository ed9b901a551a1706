//! Stopping, suspending and bringing back; everything that happens because time went by.

use super::State;
use crate::action::{Action, Decision, Verdict};
use crate::job::{JobId, SuspendRefusal};
use crate::ladder::Rung;
use crate::leaving::After;
use crate::place::{Resident, eligible, joins, waits_for_own};
use crate::queue::Queue;
use crate::reason::Reason;
use crate::reserve::predictable;
use crate::settings::{Memory, Settings};
use crate::state::record::{Image, Importance, Phase, Record, Step, Stop, after_slot};
use crate::units::{Bytes, Millis};

/// A restore that did not work is tried again after this.
pub(super) const RETRY_RESUME: Millis = Millis::from_secs(30);

/// The time between a job's checkpoint signal and SIGTERM: at most half of the time that the job has, or it would be
/// asked to leave as soon as it starts.
fn checkpoint_grace(record: &Record, settings: &Settings) -> Millis {
    let shortest = record.job.time_limit.into_iter().chain(slot(record, settings)).min();
    let grace = record.job.preemption.grace;
    shortest.map_or(grace, |shortest| grace.min(Millis(shortest.0 / 2)))
}

/// The time after which a job gives way if others wait.
fn slot(record: &Record, settings: &Settings) -> Option<Millis> {
    record.job.slot.or(settings.eviction.slot.filter(|_| record.job.preemption.allowed))
}

/// The time that a job has after the signal of a step.
fn grace(record: &Record, step: Step, settings: &Settings) -> Millis {
    match step {
        Step::Checkpoint => checkpoint_grace(record, settings),
        Step::Terminate => settings.eviction.kill_after,
        Step::Kill => Millis::MAX,
    }
}

/// A device that a job would have once others have left it. Of two the lower one costs less.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClearedDevice {
    /// Importance of the most important job that leaves.
    highest: Option<Importance>,
    /// Number of jobs that leave.
    count: usize,
    /// Index of the device.
    device: usize,
    /// Jobs that leave.
    evicted: Vec<JobId>,
}

impl ClearedDevice {
    /// Cost of the costliest of these devices.
    fn highest_cost(devices: &[Self]) -> Option<(Option<Importance>, usize)> {
        devices.iter().map(|device| (device.highest, device.count)).max()
    }
}

impl State {
    /// Asks a job to stop, beginning with a step; a later call may only be firmer.
    pub(super) fn stop(
        &mut self,
        id: JobId,
        then: After,
        step: Step,
        reason: Reason,
        out: &mut Vec<Decision>,
    ) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        // Who asked for an end gets it, whatever was asked for before.
        let then = match (record.stop.map(|stop| stop.then), then) {
            (Some(After::End(verdict)), After::Requeue | After::DeviceLost) => After::End(verdict),
            (Some(After::Requeue), After::DeviceLost) => After::Requeue,
            (_, then) => then,
        };
        if let Some(stop) = record.stop.as_mut()
            && stop.step >= step
        {
            stop.then = then;
            return;
        }
        let signal = step.signal(record.job.preemption.checkpoint_signal);
        let step = Step::of(signal);
        let until = self.now.plus(grace(record, step, &self.settings));
        record.stop = Some(Stop::new(record.stop, then, step, until));
        record.phase = Phase::Stopping;
        self.signal(id, signal, reason, out);
        self.set_timer(id);
    }

    /// Stops a job whose program does not begin, as at its time limit: it holds its devices no longer than one that runs. Its
    /// user may have stopped what starts it, or its files be on a server that hangs. One that was adopted counts as running.
    pub(super) fn start_overdue(&mut self, id: JobId, attempt: u32, limit: Millis, out: &mut Vec<Decision>) {
        let is_starting = |record: &Record| {
            record.attempt == attempt && matches!(record.phase, Phase::Launching | Phase::Running)
        };
        if self.jobs.get(&id).is_some_and(is_starting) {
            self.time_out(id, Step::Kill, Reason::StartTimeout { limit }, out);
        }
    }

    /// Stops a job that had its time: for good, or to be tried again behind those that wait.
    fn time_out(&mut self, id: JobId, step: Step, reason: Reason, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let then = match record.job.requeue_on_timeout {
            true => After::Requeue,
            false => After::End(Verdict::TimedOut),
        };
        record.slot_over |= then == After::Requeue;
        self.stop(id, then, step, reason, out);
    }

    /// The time that a job has to follow its last signal begins when that is sent.
    pub(super) fn signal_held(&mut self, id: JobId, held: bool) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let Some(stop) = record.stop else { return };
        let until = match held {
            true => Millis::MAX,
            false => self.now.plus(grace(record, stop.step, &self.settings)),
        };
        record.stop = Some(Stop { held, until, ..stop });
        self.set_timer(id);
    }

    /// Takes a job off its devices without losing more work than must be, and back to the queue.
    pub(super) fn evict(&mut self, id: JobId, reason: Reason, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        if record.phase != Phase::Running {
            return;
        }
        match record.job.preemption.suspend {
            Ok(()) => {
                // It comes back where there is room for what it held, and not for all that it might have taken.
                let (peak, is_open) = (record.peak, record.open && record.peak > Bytes::ZERO);
                let shown =
                    Bytes(peak.0.saturating_add(peak.0 / 4)).min(record.reserved.unwrap_or(Bytes::MAX));
                if is_open {
                    self.set_claim(id, shown, Reason::NeedFollows { peak }, out);
                }
                let Some(record) = self.jobs.get_mut(&id) else { return };
                record.phase = Phase::Suspending;
                record.note(self.now, reason.clone());
                out.push(Decision { action: Action::Suspend { job: id }, reason });
                self.set_timer(id);
            }
            Err(refusal) => {
                record.note(self.now, Reason::CannotSuspend { refusal });
                self.stop(id, After::Requeue, Step::Checkpoint, reason, out);
            }
        }
    }

    pub(super) fn suspended(&mut self, id: JobId, attempt: u32, bytes: Bytes) {
        let asked = |record: &&mut Record| record.is_asked(attempt, Phase::Suspending);
        let Some(record) = self.jobs.get_mut(&id).filter(asked) else { return };
        record.ran = record.runtime(self.now);
        record.phase = Phase::Suspended;
        let first = record.devices.first().map(|at| &self.devices[*at]);
        let model = |at: &usize| &self.devices[*at].spec.model;
        // A gang on devices of several models has no others to come back to.
        let mixed = record.devices.iter().any(|at| first.is_some_and(|dev| dev.spec.model != *model(at)));
        let image = Image {
            // Never restored into less than was set aside for it, nor into less than it held.
            bytes: bytes.max(record.reserved.unwrap_or(Bytes::ZERO)),
            model: first.map(|dev| dev.spec.model.clone()).unwrap_or_default(),
            node: first.map(|dev| dev.node),
            devices: match self.settings.eviction.migrate && !mixed {
                true => Vec::new(),
                false => record.devices.iter().map(|at| self.devices[*at].spec.id).collect(),
            },
            whole: record.reserved.is_none(),
            not_before: Millis::ZERO,
        };
        record.image = Some(image);
        // Those that waited meanwhile are before it now.
        if std::mem::take(&mut record.slot_over) {
            record.lined_up = after_slot(self.now);
        }
        self.vacate(id);
        self.set_timer(id);
        self.queue_up(id);
    }

    pub(super) fn suspend_failed(
        &mut self,
        id: JobId,
        attempt: u32,
        refusal: SuspendRefusal,
        out: &mut Vec<Decision>,
    ) {
        let asked = |record: &&mut Record| record.is_asked(attempt, Phase::Suspending);
        let Some(record) = self.jobs.get_mut(&id).filter(asked) else { return };
        record.job.preemption.suspend = Err(refusal);
        record.phase = Phase::Running;
        // Whatever it was for still holds.
        self.evict(id, Reason::CannotSuspend { refusal }, out);
    }

    pub(super) fn resumed(&mut self, id: JobId, attempt: u32) {
        let asked = |record: &&mut Record| record.is_asked(attempt, Phase::Resuming);
        let Some(record) = self.jobs.get_mut(&id).filter(asked) else { return };
        record.phase = Phase::Running;
        record.image = None;
        self.is_there(id);
    }

    pub(super) fn resume_failed(&mut self, id: JobId, attempt: u32) {
        let retry = self.now.plus(RETRY_RESUME);
        let asked = |record: &&mut Record| record.is_asked(attempt, Phase::Resuming);
        let Some(record) = self.jobs.get_mut(&id).filter(asked) else { return };
        record.phase = Phase::Suspended;
        if let Some(image) = record.image.as_mut() {
            image.not_before = retry;
        }
        self.vacate(id);
        self.queue_up(id);
        self.set_timer(id);
    }

    /// The next time at which something must happen to the job.
    pub(super) fn next_deadline(&self, id: JobId) -> Option<Millis> {
        let record = self.jobs.get(&id)?;
        let mut next: Option<Millis> = None;
        let mut at = |time: Millis| {
            if time < Millis::MAX {
                next = Some(next.map_or(time, |next| next.min(time)));
            }
        };
        if let Some(stop) = record.stop {
            at(stop.until);
        } else if record.phase == Phase::Running {
            let grace = early(record, &self.settings);
            if let Some(end) = record.enforced_end() {
                at(end.minus(grace));
            }
            if let Some(end) = self.slot_end(record)
                && !record.slot_over
            {
                at(end.minus(grace));
            }
            if let Some(time) = self.learns_at(record) {
                at(time);
            }
            if let Some(time) = record.demoted_at(&self.settings, self.now) {
                at(time);
            }
        } else if record.phase == Phase::Suspended
            && let Some(image) = record.image.as_ref().filter(|image| image.not_before > self.now)
        {
            at(image.not_before);
        }
        next
    }

    fn slot_end(&self, record: &Record) -> Option<Millis> {
        Some(record.since.plus(slot(record, &self.settings)?))
    }

    /// Time at which a job has shown its need that has all that was free only because that is unknown.
    fn learns_at(&self, record: &Record) -> Option<Millis> {
        let waits_to_show = self.settings.memory == Memory::Reserved
            && (record.reserved.is_none() || record.open)
            && record.job.need.is_none()
            && !record.job.exclusive
            && record.rung(&self.settings) != Some(Rung::Exclusive)
            && !record.devices.is_empty();
        let after = self.settings.learn_after.filter(|_| waits_to_show)?;
        let due = record.since.plus(after.minus(record.ran));
        // Nothing seen yet: check again after the same time.
        Some(if due <= self.now { self.now.plus(after.max(Millis(1))) } else { due })
    }

    pub(super) fn on_timer(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let now = self.now;
        let Some(record) = self.jobs.get_mut(&id) else { return };
        if let Some(stop) = record.stop {
            if stop.until <= now {
                let step = if stop.step == Step::Checkpoint { Step::Terminate } else { Step::Kill };
                self.stop(id, stop.then, step, Reason::GraceOver, out);
            }
            return;
        }
        match record.phase {
            Phase::Suspended => {
                record.failed = None;
                self.pass_due = true;
            }
            Phase::Running => self.on_running_timer(id, out),
            _ => {}
        }
    }

    fn on_running_timer(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let now = self.now;
        let Some(record) = self.jobs.get(&id) else { return };
        let grace = early(record, &self.settings);
        let is_demoted = record.is_demoted(&self.settings, now);
        if let (Some(end), Some(limit)) = (record.enforced_end(), record.job.time_limit)
            && end.minus(grace) <= now
        {
            return self.time_out(id, Step::Checkpoint, Reason::TimeLimit { limit }, out);
        }
        if self.slot_end(record).is_some_and(|end| end.minus(grace) <= now) {
            // It gives way when a job waits, now or later: the scheduling pass decides.
            if let Some(record) = self.jobs.get_mut(&id) {
                record.slot_over = true;
                self.pass_due = true;
            }
        }
        self.pass_due |= is_demoted;
        self.learn(id, out);
    }

    /// Reserves for a job of unknown need what was seen of it, in place of all that was free.
    fn learn(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id) else { return };
        let due = self.settings.learn_after.is_some_and(|after| record.runtime(self.now) >= after);
        if !due || self.learns_at(record).is_none() || record.peak == Bytes::ZERO {
            return;
        }
        let peak = record.peak;
        let claim = peak.plus(Bytes(peak.0 / 4));
        let devices = record.devices.clone();
        let has = |at: &usize| record.reserved.unwrap_or(self.devices[*at].spec.capacity);
        if devices.iter().any(|at| claim >= has(at)) {
            return;
        }
        self.set_claim(id, claim, Reason::NeedFollows { peak }, out);
        devices.into_iter().for_each(|at| self.changed(at));
    }

    /// A device on which memory runs out although it was set aside gives up its least important job.
    pub(super) fn relieve_memory(&mut self, at: usize, out: &mut Vec<Decision>) {
        let dev = &self.devices[at];
        let free = dev.spec.capacity.minus(dev.seen.used);
        let beyond = self.settings.memory != Memory::Reserved || dev.occupied() > dev.spec.capacity;
        if dev.residents.len() < 2 || free >= self.settings.eviction.min_free || !beyond {
            return;
        }
        let records = || dev.residents.iter().filter_map(|resident| self.jobs.get(&resident.job));
        if records().any(|record| record.phase != Phase::Running) {
            // A job leaves, or just came, already.
            return;
        }
        let least = records().filter(|record| record.job.preemption.allowed).min_by_key(|r| r.importance());
        if let Some(least) = least.map(|record| record.job.id) {
            let device = dev.spec.id;
            self.evict(least, Reason::MemoryPressure { device, free }, out);
        }
    }

    /// Takes jobs off devices for the first job that waits, if they are less important or had
    /// their time.
    pub(super) fn make_room(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(head) = self.jobs.get(&id) else { return };
        let leaving = |job: &JobId| {
            self.jobs.get(job).is_some_and(|r| matches!(r.phase, Phase::Stopping | Phase::Suspending))
        };
        if self.reservation.as_ref().is_some_and(|kept| kept.blockers.iter().any(leaving)) {
            return;
        }
        // A job that would stand before the head again gains nothing from leaving, nor does the head: they would take turns.
        // So the ranks of the queue decide, with the class of each and the set-back of its user.
        let rank = |record: &Record, lined_up: Millis| {
            let user = record.job.user;
            let penalty = Queue::penalty(user, self.now, &self.settings.order, &self.ledger);
            self.queue.rank_of(user, record.place(lined_up, &self.settings, self.now), penalty)
        };
        let first = rank(head, head.lined_up);
        let may_go = |record: &Record| {
            let is_less_important =
                self.settings.eviction.for_priority && record.job.priority < head.job.priority;
            // Of the second queue those before it there, too.
            let may_leave = record.is_demoted(&self.settings, self.now) || is_less_important;
            record.phase == Phase::Running
                && ((record.slot_over && first < rank(record, after_slot(self.now)))
                    || (may_leave && record.job.preemption.allowed && first < rank(record, record.lined_up)))
        };
        if !self
            .devices
            .iter()
            .any(|dev| dev.residents.iter().any(|resident| self.jobs.get(&resident.job).is_some_and(may_go)))
        {
            return;
        }
        let ask = self.ask_of(head);
        let who = self.claimant(id);
        let mut scratch = std::mem::take(&mut self.scratch);
        let is_closed = |at: usize| {
            who.as_ref().is_some_and(|who| self.closed_by(at, who, self.now).is_some())
                || self.memory_kept_from(ask.user, at).is_some()
        };
        let mut best: Option<(usize, Vec<ClearedDevice>)> = None;
        for (index, node) in self.nodes.iter().enumerate() {
            let host = node.host.effect(ask.host_use, ask.priority);
            let mut places: Vec<ClearedDevice> = Vec::new();
            for &at in &node.devices {
                let dev = &self.devices[at];
                if dev.drained || !eligible(dev, &ask) || is_closed(at) {
                    continue;
                }
                // The least important first, those whose slot is over before all.
                let mut going: Vec<&Record> = dev
                    .residents
                    .iter()
                    .filter_map(|resident| self.jobs.get(&resident.job))
                    .filter(|record| may_go(record))
                    .collect();
                // Jobs of others are not in the way of one that waits for its own user's memory.
                if waits_for_own(&self.settings, dev, &ask) {
                    going.retain(|record| record.job.user == ask.user);
                }
                going.sort_by_key(|record| (!record.slot_over, record.importance()));
                for count in 0..=going.len() {
                    let gone = &going[..count];
                    let stays = |r: &&Resident| gone.iter().all(|record| record.job.id != r.job);
                    let stay = dev.residents.iter().filter(stays);
                    // Where a monitor decides, only an empty device surely has room.
                    let sure = predictable(&self.settings) || stay.clone().next().is_none();
                    if sure && joins(&self.settings, dev, stay, &ask, &host, &mut scratch).is_ok() {
                        places.push(ClearedDevice {
                            highest: gone.iter().map(|record| record.importance()).max(),
                            count,
                            device: at,
                            evicted: gone.iter().map(|record| record.job.id).collect(),
                        });
                        break;
                    }
                }
            }
            if places.len() < ask.gpus {
                continue;
            }
            places.sort();
            places.truncate(ask.gpus);
            let cost = ClearedDevice::highest_cost;
            if best.as_ref().is_none_or(|(_, best)| cost(&places) < cost(best)) {
                best = Some((index, places));
            }
        }
        self.scratch = scratch;
        let Some((node, places)) = best else { return };
        let victims: std::collections::BTreeSet<JobId> =
            places.iter().flat_map(|place| place.evicted.iter().copied()).collect();
        // Where the host lacks room until others leave, too, the head would not start by this: the victims would be
        // started again before it, and again asked to leave.
        let mut blockers = victims.clone();
        if victims.is_empty() || !self.add_host_blockers(node, ask.host, &mut blockers) || blockers != victims
        {
            return;
        }
        let mut devices: Vec<usize> = places.iter().map(|place| place.device).collect();
        devices.sort_unstable();
        self.reservation = Some(self.reservation(ask, node, devices, blockers));
        for victim in victims {
            let Some(record) = self.jobs.get(&victim) else { continue };
            let slot = record.job.slot.or(self.settings.eviction.slot).filter(|_| record.slot_over);
            let served = record.is_demoted(&self.settings, self.now).then_some(Reason::Served { job: id });
            let reason = slot.map(|slot| Reason::SlotEnds { slot }).or(served);
            let reason = reason.unwrap_or(Reason::MoreImportant { job: id });
            self.evict(victim, reason, out);
        }
    }
}

/// Lead time of the checkpoint signal before an end.
fn early(record: &Record, settings: &Settings) -> Millis {
    record.job.preemption.checkpoint_signal.map_or(Millis::ZERO, |_| checkpoint_grace(record, settings))
}
