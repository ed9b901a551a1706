//! One scheduling pass: which jobs start, where, and for which job devices are kept.

use super::{Stage, State};
use crate::action::{Action, Decision};
use crate::host::HostEffect;
use crate::job::JobId;
use crate::place::{Ask, Dev, admits, rank};
use crate::policy::{DecidedBy, Fit, Progress};
use crate::reason::{Reason, Score, Wait};
use crate::reserve::Reservation;
use crate::settings::Memory;
use crate::state::record::{Failed, Phase};
use crate::units::{Bytes, Millis};

/// Node and devices on which a job may start.
pub(super) struct Place {
    pub(super) devices: Vec<usize>,
    /// The machine of a job without GPUs.
    pub(super) host: usize,
    pub(super) score: Score,
}

impl State {
    pub(super) fn schedule(&mut self, out: &mut Vec<Decision>) {
        if self.queue.len() == 0 {
            self.reservation = None;
            self.stage = Stage::Rest;
            return;
        }
        let paced = self.settings.order.pace > Millis::ZERO;
        if !paced {
            self.stage = Stage::Rest;
        } else if !self.due() {
            return;
        }
        let started = self.schedule_queue(paced, out);
        if paced {
            self.next_stage(started);
        }
    }

    /// Returns true if a manager that takes its time has come to a pass.
    fn due(&mut self) -> bool {
        if self.stage == Stage::Rest {
            self.take_time(Stage::Idle, self.settings.order.pace);
        }
        let due = self.now >= self.paced;
        self.idle_only = due && self.stage == Stage::Idle && self.settings.order.pace_shared > Millis::ZERO;
        due
    }

    fn next_stage(&mut self, started: bool) {
        let order = &self.settings.order;
        let (pace, shared) = (order.pace, order.pace_shared);
        let idle_only = std::mem::take(&mut self.idle_only);
        if self.queue.len() == 0 {
            self.stage = Stage::Rest;
        } else if idle_only && !started && !self.first_goes_alone() {
            self.take_time(Stage::Shared, shared);
        } else {
            self.take_time(Stage::Idle, pace);
        }
    }

    /// Returns true if the first job would not join others anyway.
    fn first_goes_alone(&self) -> bool {
        let first = self.first_within_limits(1);
        let record = first.first().and_then(|id| self.jobs.get(id));
        record.is_some_and(|record| self.ask_of(record).whole)
    }

    fn take_time(&mut self, stage: Stage, takes: Millis) {
        self.stage = stage;
        self.paced = self.now.plus(takes);
        self.timers.insert((self.paced, super::Timer::Pace));
    }

    /// Starts who can be started; with `one` no more than one. Says whether anybody was.
    fn schedule_queue(&mut self, one: bool, out: &mut Vec<Decision>) -> bool {
        let mut started = false;
        let depth = if self.settings.order.backfill {
            usize::try_from(self.settings.order.depth).unwrap_or(usize::MAX).saturating_add(1)
        } else {
            usize::MAX
        };
        // Without backfilling only as many are considered as start.
        let mut most = if self.settings.order.backfill { depth } else { 16 };
        let mut head: Option<JobId> = None;
        let mut seen = 0;
        'pass: loop {
            let list = self.first_within_limits(most);
            let complete = list.len() < most;
            // Those that started are not in the list any more.
            for id in list.into_iter().skip(seen) {
                match self.try_start(id, head, out) {
                    Ok(()) if one => return true,
                    Ok(()) => started = true,
                    Err(wait) => {
                        seen += 1;
                        self.waits(id, wait);
                        if head.is_none() && self.retry_at(id).is_none() {
                            head = Some(id);
                            self.keep_for(id, out);
                            if !self.settings.order.backfill {
                                break 'pass;
                            }
                        }
                    }
                }
            }
            if complete || self.settings.order.backfill {
                break;
            }
            most = most.saturating_mul(2);
        }
        if head.is_none() {
            self.reservation = None;
        }
        started
    }

    /// Time at which a suspended job that could not be restored may be tried again.
    fn retry_at(&self, id: JobId) -> Option<Millis> {
        let image = self.jobs.get(&id)?.image.as_ref()?;
        (image.not_before > self.now).then_some(image.not_before)
    }

    fn waits(&mut self, id: JobId, wait: Wait) {
        let upto = self.changes_from + u64::try_from(self.changes.len()).unwrap_or(0);
        let version = self.reservation.as_ref().map_or(0, |reservation| reservation.version);
        let has_searched = self.retry_at(id).is_none();
        if matches!(wait, Wait::Reserved { .. })
            && self.stage == Stage::Rest
            && let Some(at) = self.reservation.as_ref().and_then(|kept| self.borrows_at(kept, id))
        {
            self.timers.insert((at, super::Timer::Pace));
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            record.failed = has_searched.then_some(Failed { upto, under: version, fits: self.fits });
            record.wait = Some(wait);
        }
    }

    /// Keeps the devices for the first blocked job: those it had, while it stays first and waits for
    /// a job there to leave.
    fn keep_for(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let waits = |kept: &Reservation| kept.ask.job == id && !kept.blockers.is_empty();
        if !self.reservation.as_ref().is_some_and(waits) {
            self.reservation = self.reserve(id);
        } else {
            self.renew_reservation();
        }
        self.make_room(id, out);
    }

    fn try_start(&mut self, id: JobId, head: Option<JobId>, out: &mut Vec<Decision>) -> Result<(), Wait> {
        if self.retry_at(id).is_some() {
            return Err(Wait::Settling);
        }
        let Some(record) = self.jobs.get(&id) else { return Ok(()) };
        // While no job is blocked, no devices are kept.
        let reservation = if head.is_some() { self.reservation.take() } else { None };
        let version = reservation.as_ref().map_or(0, |reservation| reservation.version);
        let group = record.gathers();
        let place = match record.failed {
            // What was considered in another stage shows nothing of this one.
            Some(failed) if record.job.gpus > 0 && group.is_none() && self.stage == Stage::Rest => {
                self.find_among_changed(id, failed, version, reservation.as_ref())
            }
            _ => self.find(id, reservation.as_ref()),
        };
        if head.is_some() {
            self.reservation = reservation;
        }
        match place {
            Ok(place) => {
                match group {
                    Some(group) => self.start_together(group, &place, head, out),
                    None => self.start(id, place, head, out),
                }
                Ok(())
            }
            Err(wait) => Err(wait),
        }
    }

    /// Only devices that changed since the job found no place can have one now, and those that were kept from it then.
    fn find_among_changed(
        &mut self,
        id: JobId,
        failed: Failed,
        version: u64,
        kept: Option<&Reservation>,
    ) -> Result<Place, Wait> {
        let Some(skip) = failed.upto.checked_sub(self.changes_from) else { return self.find(id, kept) };
        let released = if failed.under == version { Some(&[][..]) } else { self.held_under(failed.under) };
        let Some(released) = released else { return self.find(id, kept) };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let changed = self.changes.iter().skip(skip);
        // With time a job may come to borrow what is kept.
        let borrowed = kept.filter(|kept| self.may_borrow(kept, id)).map_or(&[][..], |kept| &kept.devices);
        let mut some: Vec<usize> = changed.chain(released).chain(borrowed).copied().collect();
        some.sort_unstable();
        some.dedup();
        if some.len() > self.devices.len() / 2 + 1 {
            return self.find(id, kept);
        }
        let Some(record) = self.jobs.get(&id) else { return Err(Wait::NoDevice) };
        let before = record.wait.clone();
        if some.is_empty() {
            self.fits = failed.fits;
            return Err(before.unwrap_or(Wait::NoDevice));
        }
        let ask = record.ask(&self.settings, self.largest(record.job.model.as_deref()));
        let mut search = Search::new(self, ask, kept);
        some.iter().for_each(|at| search.device(*at));
        if search.ask.gpus > 1 {
            // Those that would have done before, and those that do now: as long as these are too few there is no place.
            let fits = failed.fits.saturating_add(search.fits.len());
            // No machine had enough of them, so only one of which a device changed can have them now.
            let mut nodes: Vec<usize> = some.iter().map(|at| search.state.devices[*at].node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let mut found = None;
            if fits >= search.ask.gpus {
                let devices: usize = nodes.iter().map(|node| search.state.nodes[*node].devices.len()).sum();
                if devices > search.state.devices.len() / 2 {
                    self.scratch = search.scratch;
                    return self.find(id, kept);
                }
                found = search.all(Some(&nodes));
            }
            let (scratch, wait) = (search.scratch, search.wait);
            (self.fits, self.scratch) = (fits, scratch);
            // A machine that did not change may have come closer than these.
            return found.ok_or_else(|| match (before, wait) {
                (Some(Wait::Gang { gpus, fit }), Some(Wait::Gang { fit: now, .. })) => {
                    Wait::Gang { gpus, fit: fit.max(now) }
                }
                (before, wait) => before.or(wait).unwrap_or(Wait::NoDevice),
            });
        }
        let (found, scratch, wait) = (search.best_single(), search.scratch, search.wait);
        self.scratch = scratch;
        found.ok_or_else(|| match (before, wait) {
            (Some(before), Some(wait)) => closer(before, wait),
            (before, wait) => wait.or(before).unwrap_or(Wait::NoDevice),
        })
    }

    fn find(&mut self, id: JobId, kept: Option<&Reservation>) -> Result<Place, Wait> {
        let Some(record) = self.jobs.get(&id) else { return Err(Wait::NoDevice) };
        let ask = self.ask_of(record);
        if ask.gpus == 0 {
            return self.find_host(&ask, kept);
        }
        let mut search = Search::new(self, ask, kept);
        let place = search.all(None);
        let (total, scratch, wait) = (search.total, search.scratch, search.wait);
        (self.fits, self.scratch) = (total, scratch);
        place.ok_or_else(|| wait.unwrap_or(Wait::NoDevice))
    }

    fn find_host(&self, ask: &Ask, kept: Option<&Reservation>) -> Result<Place, Wait> {
        let fits = |node: usize| self.nodes[node].has(ask.host) && self.leaves_host_room(kept, node, ask);
        let only = ask.node;
        (0..self.nodes.len())
            .find(|node| only.is_none_or(|only| only == *node) && fits(*node))
            .map(|host| Place { devices: Vec::new(), host, score: Score::First })
            .ok_or(if self.nodes.is_empty() { Wait::NoDevice } else { Wait::Host })
    }

    /// Returns true if this job leaves the host part of the job that devices are kept for.
    /// That part must still fit beside this one when the blockers have left.
    fn leaves_host_room(&self, kept: Option<&Reservation>, node: usize, ask: &Ask) -> bool {
        let Some(kept) = kept else { return true };
        let Some(bound) = self.nodes[node].bound else { return true };
        if kept.node != node {
            return true;
        }
        let blockers = kept.blockers.iter().filter_map(|job| self.jobs.get(job)).map(|r| r.job.host);
        let (cpu, memory) = blockers.fold((0u64, Bytes::ZERO), |(cpu, memory), host| {
            (cpu.saturating_add(host.cpu_milli), memory.plus(host.memory))
        });
        let node = &self.nodes[node];
        node.cpu_milli.saturating_sub(cpu) + ask.host.cpu_milli + kept.ask.host.cpu_milli <= bound.cpu_milli
            && node.memory.minus(memory).plus(ask.host.memory).plus(kept.ask.host.memory) <= bound.memory
    }

    /// A job that goes where devices are kept for another one, and not beside it: because it is
    /// before that one in the queue, or because it is gone in time. That one waits for it, too. Returns true if the job is
    /// gone in time only as far as the ends of those before it are known.
    fn note_in_the_way(&mut self, id: JobId, ask: &Ask, place: &Place, whole: bool) -> bool {
        let Some(kept) = self.reservation.as_ref().filter(|kept| kept.ask.job != id) else { return false };
        let is_likely = kept.by.is_none();
        let node = place.devices.first().map_or(place.host, |at| self.devices[*at].node);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut in_the_way =
            |at: &usize| kept.devices.contains(at) && !self.fits_beside(kept, *at, ask, whole, &mut scratch);
        let in_the_way =
            place.devices.iter().any(&mut in_the_way) || !self.leaves_host_room(Some(kept), node, ask);
        self.scratch = scratch;
        if in_the_way && let Some(kept) = self.reservation.as_mut() {
            self.reservations += 1;
            kept.version = self.reservations;
            kept.blockers.insert(id);
            let kept = kept.clone();
            self.remember(&kept);
        }
        in_the_way && is_likely
    }

    pub(super) fn start(&mut self, id: JobId, place: Place, head: Option<JobId>, out: &mut Vec<Decision>) {
        self.unqueue(id);
        let Some(record) = self.jobs.get(&id) else { return };
        let ask = record.ask(&self.settings, self.largest(record.job.model.as_deref()));
        let retry = record.rung(&self.settings) == Some(crate::ladder::Rung::Exclusive);
        let joinable = retry && self.settings.recovery.joinable && !record.job.exclusive;
        let whole = (ask.whole && !joinable) || !self.settings.policy.shares();
        let reserved = if whole { None } else { Some(ask.claim.unwrap_or(Bytes::ZERO)) };
        // A job of unknown need that ran out of memory is known to need more than that.
        let enforce = record.job.need.as_ref().map_or(record.floor > Bytes::ZERO, |need| need.enforce);
        let limit = reserved.filter(|_| self.settings.memory == Memory::Reserved && enforce);
        let most = record.memory_most.filter(|_| !place.devices.is_empty());
        let limit = limit.into_iter().chain(most).min();
        if place.devices.is_empty() {
            self.host_jobs.insert(id, place.host);
        } else if self.settings.policy.rules().decided_by() == DecidedBy::Turn && !self.idle_only {
            self.cursor = place.devices.last().map_or(0, |at| at + 1);
        }
        // The devices of a group are its own.
        let is_alone = whole || record.job.together.is_some();
        let borrows = self.note_in_the_way(id, &ask, &place, is_alone);
        self.occupy(id, &place.devices, reserved, true);
        let (policy, now) = (self.settings.policy, self.now);
        let rung = self.jobs.get(&id).and_then(|record| record.rung(&self.settings));
        let devices: Vec<_> = place.devices.iter().map(|at| self.devices[*at].spec.id).collect();
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let reason = match (rung, head) {
            _ if place.devices.is_empty() => Reason::HostOnly,
            (Some(rung), _) => Reason::Retried { rung, floor: record.floor },
            (None, Some(ahead)) if borrows => {
                let limit = record.job.time_limit.unwrap_or_default();
                Reason::Borrowed { policy, score: place.score, ahead, limit }
            }
            (None, Some(ahead)) => Reason::Backfilled { policy, score: place.score, ahead },
            (None, None) => Reason::Placed { policy, score: place.score },
        };
        record.since = now;
        let action = if record.image.is_some() {
            record.phase = Phase::Resuming;
            Action::Resume { job: id, devices }
        } else {
            record.phase = Phase::Launching;
            record.attempt += 1;
            record.lacks_device = false;
            record.ran = Millis::ZERO;
            Action::Start { job: id, attempt: record.attempt, devices, limit, reserved }
        };
        record.note(now, reason.clone());
        out.push(Decision { action, reason });
        self.declare_share(id, out);
        self.begin_beside(id, out);
        self.set_timer(id);
    }
}

/// One job's search over devices.
struct Search<'a> {
    state: &'a State,
    kept: Option<&'a Reservation>,
    ask: Ask,
    limit: Option<Millis>,
    scratch: crate::place::Scratch,
    wait: Option<Wait>,
    fits: Vec<(usize, Fit)>,
    /// Number of devices of all nodes that would do.
    total: usize,
    /// The node that was looked at last, and what the job would do there on the host.
    host: Option<(usize, HostEffect)>,
    /// The node whose idle devices were counted last, and how many it has.
    idle: Option<(usize, usize)>,
}

impl<'a> Search<'a> {
    fn new(state: &'a mut State, ask: Ask, kept: Option<&'a Reservation>) -> Self {
        let scratch = std::mem::take(&mut state.scratch);
        let alone = state.jobs.get(&ask.job).filter(|record| record.gathers().is_none());
        let limit = alone.and_then(|record| record.job.time_limit);
        let (wait, fits) = (None, Vec::new());
        Self { state, kept, ask, limit, scratch, wait, fits, total: 0, host: None, idle: None }
    }

    fn blocked(&mut self, wait: Wait) {
        self.wait = Some(match self.wait.take() {
            Some(before) => closer(before, wait),
            None => wait,
        });
    }

    /// The device, if it would do, goes to `fits`.
    fn device(&mut self, at: usize) {
        let state = self.state;
        let dev = &state.devices[at];
        if state.idle_only && !dev.residents.is_empty() {
            return self.blocked(Wait::Idle);
        }
        if !state.nodes[dev.node].has(self.ask.host)
            || !state.leaves_host_room(self.kept, dev.node, &self.ask)
        {
            return self.blocked(Wait::Host);
        }
        let host = match self.host {
            Some((node, host)) if node == dev.node => host,
            _ => state.nodes[dev.node].host.effect(self.ask.host_use, self.ask.priority),
        };
        self.host = Some((dev.node, host));
        match admits(&state.settings, dev, &self.ask, &host, state.now, &mut self.scratch) {
            Err(wait) => self.blocked(wait),
            Ok(progress) => self.unless_kept(at, progress),
        }
    }

    fn unless_kept(&mut self, at: usize, progress: Progress) {
        let state = self.state;
        let dev = &state.devices[at];
        if let Some(kept) = self.kept {
            let whole = self.ask.whole || !state.settings.policy.shares();
            if !state.leaves_room(kept, at, &self.ask, whole, self.limit, &mut self.scratch) {
                return self.blocked(Wait::Reserved { job: kept.ask.job });
            }
        }
        let count = state.devices.len();
        let distance = (at + count - state.cursor % count) % count;
        let idle_beside = if state.settings.policy.predicts() && dev.residents.is_empty() {
            self.idle_on(dev.node)
        } else {
            0
        };
        let fit = if state.idle_only {
            Fit { rank: (0, 0, i64::from(dev.spec.id.0)), score: Score::Idle }
        } else {
            rank(&state.settings, dev, &self.ask, progress, distance, idle_beside)
        };
        self.fits.push((at, fit));
    }

    /// Devices of a node without jobs: none comes or goes during a search.
    fn idle_on(&mut self, node: usize) -> usize {
        match self.idle {
            Some((counted, idle)) if counted == node => idle,
            _ => {
                let devices = self.state.nodes[node].devices.iter();
                let idle = devices.filter(|at| self.state.devices[**at].residents.is_empty()).count();
                self.idle = Some((node, idle));
                idle
            }
        }
    }

    fn best_single(&self) -> Option<Place> {
        let best = self.fits.iter().min_by_key(|(at, fit)| (fit.rank, *at))?;
        Some(Place { devices: vec![best.0], host: 0, score: best.1.score })
    }

    /// The best place on all nodes, or on these.
    fn all(&mut self, nodes: Option<&[usize]>) -> Option<Place> {
        // Nothing beats an idle device under `aware`, and a large cluster has many: they are
        // considered first, and the others only if there are not enough.
        if self.state.settings.policy.predicts()
            && let Some(place) = self.nodes(nodes, |dev| dev.residents.is_empty())
        {
            return Some(place);
        }
        self.nodes(nodes, |_| true)
    }

    fn nodes(&mut self, nodes: Option<&[usize]>, is_wanted: impl Fn(&Dev) -> bool) -> Option<Place> {
        let state = self.state;
        let gpus = self.ask.gpus;
        let mut most = 0;
        let mut best: Option<((i64, i64, i64), Place)> = None;
        let mut singles = Vec::new();
        self.total = 0;
        let count = nodes.map_or(state.nodes.len(), <[usize]>::len);
        for at in 0..count {
            let node = &state.nodes[nodes.map_or(at, |nodes| nodes[at])];
            self.fits.clear();
            for &at in &node.devices {
                if is_wanted(&state.devices[at]) {
                    self.device(at);
                }
            }
            most = most.max(self.fits.len());
            self.total += self.fits.len();
            if gpus == 1 {
                singles.extend(self.fits.iter().min_by_key(|(at, fit)| (fit.rank, *at)).copied());
                continue;
            }
            if self.fits.len() < gpus {
                continue;
            }
            self.fits.sort_by_key(|(at, fit)| (fit.rank, *at));
            self.fits.truncate(gpus);
            let total = self.fits.iter().fold((0i64, 0i64, 0i64), |sum, (_, fit)| {
                (sum.0 + fit.rank.0, sum.1.saturating_add(fit.rank.1), sum.2.saturating_add(fit.rank.2))
            });
            if best.as_ref().is_none_or(|(rank, _)| total < *rank) {
                let mut devices: Vec<usize> = self.fits.iter().map(|(at, _)| *at).collect();
                devices.sort_unstable();
                best = Some((total, Place { devices, host: 0, score: self.fits[0].1.score }));
            }
        }
        if gpus == 1 {
            self.fits = singles;
            return self.best_single();
        }
        if best.is_none() && most > 0 {
            let cut = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
            self.wait = Some(Wait::Gang { gpus: cut(gpus), fit: cut(most) });
        }
        best.map(|(_, place)| place)
    }
}

/// Of two reasons why devices would not do, the one that says more: the device that came closer.
fn closer(a: Wait, b: Wait) -> Wait {
    let closeness = |wait: &Wait| match wait {
        Wait::Reserved { .. } => (8, 0),
        Wait::Slowdown { gain, .. } => (7, i128::from(gain.0)),
        Wait::Protected { low, .. } => (7, i128::from(low.0)),
        Wait::Busy { smact, .. } => (6, -i128::from(smact.0)),
        Wait::Unmeasured => (6, i128::MIN),
        Wait::Settling => (5, 0),
        Wait::Memory { free, .. } => (4, i128::from(free.0)),
        Wait::Share { left, .. } => (3, i128::from(left.0)),
        Wait::Partition => (3, -1),
        Wait::Host => (2, 0),
        Wait::Idle => (1, 0),
        _ => (0, 0),
    };
    if closeness(&b) > closeness(&a) { b } else { a }
}
