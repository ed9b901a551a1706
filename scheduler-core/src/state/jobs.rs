//! A job's way: queue, start, end, and back to the queue.

use super::{State, Timer};
use crate::action::{Action, Decision, Signal, Verdict};
use crate::device::DeviceId;
use crate::job::{Job, JobId, Profile, SuspendRefusal};
use crate::ladder::Rung;
use crate::leaving::{After, Leaving};
use crate::outcome::{Evidence, Outcome};
use crate::place::Resident;
use crate::reason::{HeldOutside, Impossible, Reason};
use crate::reserve::predictable;
use crate::state::record::{Image, Phase, Record, Step, after_slot};
use crate::target::TargetObservation;
use crate::units::{Bytes, Millis, Permille};
use radrm_need::Need;

/// Maximum number of times that a job is requeued because a device or node failed under it.
/// A job that breaks devices must not break all of them.
const MAX_LOSSES: u32 = 3;

/// The part of a device beyond which a job that ran out with it to itself needs a larger one: the driver keeps some of the rest.
/// One that ran out at less had free memory in pieces, or in another process.
const FILLS: Permille = Permille(930);

/// Memory that a job could have in an attempt that is over.
#[derive(Clone, Copy, Debug)]
struct Had {
    /// Reserved on each device; `None`: all of it.
    reserved: Option<Bytes>,
    /// The least that it could have on any of its devices, where it had these as a whole.
    size: Option<Bytes>,
    /// Size of the largest device, where it had one of these as a whole.
    largest: Option<Bytes>,
    /// Memory that was held there outside of jobs.
    outside: Option<HeldOutside>,
    /// The attempt was a retry on a device of its own: the last rung of the ladder.
    is_last: bool,
}

impl Had {
    /// Reason that no device has enough for a job that ran out at `seen`; `None`: the amount is not known.
    fn ran_out(&self, seen: Option<Bytes>) -> Option<Impossible> {
        let largest = self.all()?;
        let fills = seen.is_none_or(|seen| seen >= largest.part(FILLS));
        fills.then_some(Impossible::RanOut { at: seen, largest })
    }

    /// Size of the largest device, where it had all of one.
    fn all(&self) -> Option<Bytes> {
        self.largest.filter(|_| self.outside.is_none())
    }

    /// Reason that a retry could not be given more, though its device had more.
    fn has_all(&self, attempts: u32) -> Option<Reason> {
        self.all().filter(|_| self.is_last).map(|_| Reason::TooManyAttempts { attempts })
    }
}

impl State {
    pub(super) fn enqueue(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let place = record.place(record.lined_up, &self.settings, self.now);
        (record.class, record.key, _) = place;
        record.failed = None;
        record.wait = None;
        self.queue.insert(record.job.user, place, record.request());
        self.pass_due = true;
    }

    pub(super) fn unqueue(&mut self, id: JobId) {
        self.aside.remove(&id);
        if let Some(record) = self.jobs.get(&id) {
            self.queue.remove(record.job.user, (record.class, record.key, id));
        }
    }

    pub(super) fn adopt(
        &mut self,
        job: Job,
        devices: &[DeviceId],
        since: Millis,
        reserved: Option<Bytes>,
        leaving: Option<Leaving>,
        out: &mut Vec<Decision>,
    ) {
        let id = job.id;
        if self.jobs.contains_key(&id) {
            return;
        }
        let known: Vec<usize> =
            devices.iter().filter_map(|device| self.numbers.get(device).copied()).collect();
        let mut record = Record::new(job);
        record.phase = Phase::Running;
        record.attempt = record.attempt.max(1);
        record.since = since.min(self.now);
        self.gate.take_slot(&record.job);
        record.open = reserved.is_some() && record.ask(&self.settings, Bytes::MAX).open;
        let gone = known.len() < devices.len() || known.iter().any(|at| self.devices[*at].lost);
        self.insert(record);
        self.occupy(id, &known, reserved, false);
        if let Some(Leaving { after, signal, reason, slot_over }) = leaving {
            // Whether the signal was sent is not known, so it is decided again.
            if let Some(record) = self.jobs.get_mut(&id) {
                record.slot_over = slot_over;
            }
            self.stop(id, after, Step::of(signal), reason, out);
            if let Some(stop) = self.jobs.get_mut(&id).and_then(|record| record.stop.as_mut()) {
                stop.heard = true;
            }
        }
        if gone {
            self.stop(id, After::DeviceLost, Step::Kill, Reason::DeviceLost, out);
        }
        self.declare_share(id, out);
        self.begin_beside(id, out);
        self.set_timer(id);
    }

    pub(super) fn adopt_suspended(&mut self, mut job: Job, image: Image, gpus: u16, ran: Millis) {
        let id = job.id;
        if self.jobs.contains_key(&id) {
            return;
        }
        job.gpus = gpus;
        let mut record = Record::new(job);
        record.phase = Phase::Suspended;
        record.attempt = record.attempt.max(1);
        record.ran = ran;
        record.image = Some(image);
        self.gate.take_slot(&record.job);
        self.insert(record);
        self.queue_up(id);
    }

    /// A job that is being suspended already is: the answer to that decides.
    pub(super) fn know_suspend(&mut self, id: JobId, suspend: Result<(), SuspendRefusal>) {
        if let Some(record) = self.jobs.get_mut(&id) {
            record.job.preemption.suspend = suspend;
        }
    }

    /// Puts the job on devices: their memory, shares and the host's part are taken.
    pub(super) fn occupy(&mut self, id: JobId, devices: &[usize], reserved: Option<Bytes>, launching: bool) {
        let Some(record) = self.jobs.get(&id) else { return };
        let model = |at: &usize| Some(self.devices[*at].spec.model.as_str());
        let known: Vec<_> = devices.iter().map(|at| self.activity_of(record, model(at))).collect();
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.devices = devices.to_vec();
        record.reserved = reserved;
        record.wait = None;
        if !record.job.first {
            let gpus = devices.len() as u64;
            record.holds = Some(gpus);
            self.allowances.hold(record.job.user, gpus);
        }
        let share = record.job.share.map_or(0, |share| share.0);
        let whole = reserved.is_none() || record.job.together.is_some();
        let program = record.job.program;
        let (user, host, priority) = (record.job.user, record.job.host, record.job.priority);
        let host_use = record.host_use();
        for (&at, (activity, basis)) in devices.iter().zip(known) {
            let dev = &mut self.devices[at];
            dev.residents.push(Resident {
                job: id,
                user,
                claim: reserved.unwrap_or(dev.spec.capacity),
                used: Bytes::ZERO,
                whole,
                share,
                priority,
                program,
                activity,
                basis,
                launching,
            });
            self.program_begins(id, at);
        }
        let node = devices.first().map(|at| self.devices[*at].node).or(self.host_jobs.get(&id).copied());
        if let Some(node) = node {
            let node = &mut self.nodes[node];
            node.cpu_milli += host.cpu_milli;
            node.memory = node.memory.plus(host.memory);
            node.host.set(id, priority, host_use);
        }
        if let Some(fair) = self.settings.order.fair
            && !devices.is_empty()
        {
            self.ledger.hold(user, i64::try_from(devices.len()).unwrap_or(0), self.now, &fair);
        }
    }

    /// Takes the job off its devices.
    pub(super) fn vacate(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let devices = std::mem::take(&mut record.devices);
        let (user, host) = (record.job.user, record.job.host);
        if let Some(gpus) = record.holds.take() {
            self.allowances.give_back(user, gpus);
        }
        record.reserved = None;
        record.open = false;
        record.early = None;
        record.beside = None;
        record.budget = None;
        record.speed = None;
        (record.fill, record.held_for) = (None, None);
        record.target_seen = TargetObservation::default();
        if let Some(kept) = self.reservation.as_mut() {
            kept.blockers.remove(&id);
        }
        for &at in &devices {
            self.program_ends(id, at);
            self.devices[at].residents.retain(|resident| resident.job != id);
            if self.devices[at].residents.is_empty() {
                // What the monitor saw was this job; the next poll shows the rest.
                let seen = &mut self.devices[at].seen;
                *seen = seen.without_jobs();
            }
            self.changed(at);
        }
        let node = devices.first().map(|at| self.devices[*at].node).or_else(|| self.host_jobs.remove(&id));
        if let Some(index) = node {
            let node = &mut self.nodes[index];
            node.cpu_milli = node.cpu_milli.saturating_sub(host.cpu_milli);
            node.memory = node.memory.minus(host.memory);
            let booked = node.bound.is_some() && (host.cpu_milli > 0 || host.memory > Bytes::ZERO);
            if node.host.leave(id) || booked {
                self.node_changed(index);
            }
        }
        if let Some(fair) = self.settings.order.fair
            && !devices.is_empty()
        {
            self.ledger.hold(user, -i64::try_from(devices.len()).unwrap_or(0), self.now, &fair);
        }
        self.pass_due = true;
    }

    pub(super) fn started(&mut self, id: JobId, attempt: u32) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        if record.attempt != attempt || !matches!(record.phase, Phase::Launching | Phase::Stopping) {
            return;
        }
        if record.phase == Phase::Launching {
            record.phase = Phase::Running;
        }
        self.begin_group(id);
        self.is_there(id);
    }

    /// The job's processes have come to its devices; its time counts from now.
    pub(super) fn is_there(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.since = self.now;
        // Where reservations alone decide, a launching job is in the way of others like any.
        let decides = !predictable(&self.settings);
        for at in record.devices.clone() {
            for resident in self.devices[at].residents.iter_mut().filter(|resident| resident.job == id) {
                resident.launching = false;
            }
            self.settle(at);
            match decides {
                true => self.changed(at),
                false => self.pass_due = true,
            }
        }
        self.set_timer(id);
    }

    pub(super) fn finished(&mut self, id: JobId, attempt: u32, outcome: Outcome, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let suspended = record.phase == Phase::Suspended;
        if record.attempt != attempt || !(record.phase.on_devices() || suspended) {
            return;
        }
        let (reserved, rung) = (record.reserved, record.rung(&self.settings));
        let most = record.memory_most;
        // A job that got no signal did not leave: it ended by itself.
        let stop = record.stop.take().filter(|stop| stop.then != After::Requeue || !stop.is_unheard());
        record.image = None;
        let gave_way = record.slot_over && stop.is_some_and(|stop| stop.then == After::Requeue);
        record.slot_over = false;
        if gave_way {
            // Those that waited meanwhile are before it now.
            record.lined_up = after_slot(self.now);
        }
        record.served = record.attained(self.now);
        record.ran = Millis::ZERO;
        record.peak = Bytes::ZERO;
        record.early_broken = false;
        let devices = record.devices.clone();
        let model = record.job.model.clone();
        let succeeded = outcome == (Outcome::Exited { code: 0 });
        let checkpoints = record.job.preemption.checkpoint_signal.is_some();
        if suspended {
            self.unqueue(id);
        }
        let largest = self.largest(model.as_deref());
        let is_largest = |at: &usize| self.devices[*at].spec.capacity >= largest;
        let outside = devices.iter().map(|at| &self.devices[*at]).max_by_key(|dev| dev.foreign);
        let outside = outside.filter(|dev| dev.foreign > Bytes::ZERO);
        let free = |at: &usize| self.devices[*at].spec.capacity.minus(self.devices[*at].foreign);
        // Its user's limit bounds it on a device of its own, too.
        let size = devices.iter().map(free).chain(most.filter(|_| !devices.is_empty())).min();
        let had = Had {
            reserved,
            size: size.filter(|_| reserved.is_none()),
            largest: (reserved.is_none() && devices.iter().all(is_largest)).then_some(largest),
            outside: outside.map(|dev| HeldOutside { device: dev.spec.id, bytes: dev.foreign }),
            is_last: rung == Some(Rung::Exclusive),
        };
        self.vacate(id);
        match stop.map(|stop| stop.then) {
            Some(After::End(verdict)) => {
                let reason = self.last_reason(id);
                self.end(id, verdict, reason, out);
            }
            // What was done is not done again. A program that has a checkpoint signal shows by its exit code whether
            // it is done or wants to go on later.
            Some(After::DeviceLost) if succeeded => {
                self.end(id, Verdict::Ended(outcome), Reason::Exited, out)
            }
            Some(After::Requeue) if succeeded && checkpoints => {
                self.end(id, Verdict::Ended(outcome), Reason::Exited, out);
            }
            Some(After::Requeue | After::DeviceLost) => {
                self.raise_floor(id, outcome);
                let lost = self.jobs.get(&id).is_some_and(|record| record.losses > MAX_LOSSES);
                if lost {
                    self.end(id, Verdict::Ended(Outcome::Lost), Reason::DeviceLost, out);
                } else {
                    let reason = self.last_reason(id);
                    self.requeue(id, reason, out);
                }
            }
            None => self.ended_by_itself(id, outcome, had, out),
        }
    }

    fn last_reason(&self, id: JobId) -> Reason {
        let history = self.jobs.get(&id).and_then(|record| record.history.back());
        history.map_or(Reason::Exited, |(_, reason)| reason.clone())
    }

    fn raise_floor(&mut self, id: JobId, outcome: Outcome) {
        let Outcome::OutOfMemory { seen: Some(seen), evidence, .. } = outcome else { return };
        // What others of its user held under their limit is not a need of its own.
        if let Some(record) = self.jobs.get_mut(&id).filter(|_| evidence != Evidence::Limit) {
            record.floor = record.floor.max(seen);
        }
    }

    /// An end that was not requested. Only a real out-of-memory, and the loss of a device, are
    /// tried again.
    fn ended_by_itself(&mut self, id: JobId, outcome: Outcome, had: Had, out: &mut Vec<Decision>) {
        let recovery = &self.settings.recovery;
        let trust_log = recovery.trust_log;
        let Some(record) = self.jobs.get_mut(&id) else { return };
        match outcome {
            Outcome::OutOfMemory { seen, evidence, .. }
                if evidence == Evidence::Shim || (evidence == Evidence::Log && trust_log) =>
            {
                record.ooms += 1;
                // Where the amount is not known it gets more than it had.
                let before = record.floor;
                record.floor = before.max(seen.or(had.reserved).or(had.size).unwrap_or(Bytes::ZERO));
                let (ooms, own) = (record.ooms, record.job.max_attempts);
                if let Some(why) = self.needs_more_than_allowed(id) {
                    return self.end(id, Verdict::Ended(outcome), Reason::NotAllowed { why }, out);
                }
                let mut impossible = self.jobs.get(&id).and_then(|record| self.impossible(record));
                if seen.is_none()
                    && impossible.take().is_some()
                    && let Some(record) = self.jobs.get_mut(&id)
                {
                    // No place has more, and that it needs more is not known: it is tried again where it was.
                    record.floor = before;
                }
                let why = impossible.or_else(|| had.ran_out(seen));
                let ends = self.settings.recovery.ends(ooms, own, why).or_else(|| had.has_all(ooms));
                match ends {
                    Some(reason) => self.end(id, Verdict::Ended(outcome), reason, out),
                    None => {
                        let reason = Reason::RanOutOfMemory { seen, evidence, outside: had.outside };
                        self.requeue(id, reason, out);
                    }
                }
            }
            Outcome::Lost if record.losses < MAX_LOSSES => {
                record.losses += 1;
                self.requeue(id, Reason::DeviceLost, out);
            }
            _ => self.end(id, Verdict::Ended(outcome), Reason::Exited, out),
        }
    }

    fn requeue(&mut self, id: JobId, reason: Reason, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.phase = Phase::Waiting;
        record.note(self.now, reason.clone());
        let action =
            Action::Requeue { job: id, attempts: record.attempt, ooms: record.ooms, floor: record.floor };
        out.push(Decision { action, reason });
        self.set_timer(id);
        match self.missing_member(id) {
            Some(job) => self.end(id, Verdict::Cancelled, Reason::NotTogether { job }, out),
            None => self.queue_or_end(id, out),
        }
    }

    pub(super) fn know_need(&mut self, id: JobId, need: Need, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.job.need = Some(need);
        match record.phase {
            Phase::Waiting => {
                self.unqueue(id);
                self.forget_reservation(id);
                self.queue_or_end(id, out);
            }
            Phase::Held => {
                self.queue_or_end(id, out);
                self.queue_group_again(id);
            }
            // What runs was placed by what was known then.
            _ => {}
        }
    }

    pub(super) fn know_profile(&mut self, id: JobId, known: Profile) {
        let Some(record) = self.jobs.get(&id) else { return };
        let waiting = record.phase == Phase::Waiting;
        if waiting {
            self.unqueue(id);
            self.forget_reservation(id);
        }
        if let Some(record) = self.jobs.get_mut(&id).filter(|record| !record.phase.on_devices()) {
            let Profile { activity, predicted, expected, at_least, host_use } = known;
            record.job.activity = activity.or(record.job.activity);
            record.job.predicted = predicted.or(record.job.predicted);
            if expected.is_some() {
                (record.job.expected, record.job.at_least) = (expected, at_least);
            }
            record.job.host_use = host_use.or(record.job.host_use);
        }
        if waiting {
            self.queue_up(id);
        }
    }

    pub(super) fn forget_reservation(&mut self, id: JobId) {
        if self.reservation.as_ref().is_some_and(|reservation| reservation.ask.job == id) {
            self.reservation = None;
        }
    }

    pub(super) fn cancel(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id) else { return };
        match record.phase {
            Phase::Waiting | Phase::Held => self.end(id, Verdict::Cancelled, Reason::ByUser, out),
            Phase::Suspended => {
                self.unqueue(id);
                self.forget_reservation(id);
                self.stop(id, After::End(Verdict::Cancelled), Step::Kill, Reason::ByUser, out);
                self.pass_due = true;
            }
            _ => self.stop(id, After::End(Verdict::Cancelled), Step::Terminate, Reason::ByUser, out),
        }
    }

    /// Sets the time at which the job has to be checked again.
    pub(super) fn set_timer(&mut self, id: JobId) {
        let next = self.next_deadline(id);
        let Some(record) = self.jobs.get_mut(&id) else { return };
        if record.timer != next {
            if let Some(old) = std::mem::replace(&mut record.timer, next) {
                self.timers.remove(&(old, Timer::Job(id)));
            }
            if let Some(at) = next {
                self.timers.insert((at, Timer::Job(id)));
            }
        }
    }

    pub(super) fn signal(&mut self, id: JobId, signal: Signal, reason: Reason, out: &mut Vec<Decision>) {
        if let Some(record) = self.jobs.get_mut(&id) {
            record.note(self.now, reason.clone());
        }
        out.push(Decision { action: Action::Signal { job: id, signal }, reason });
    }
}
