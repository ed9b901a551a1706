//! One scheduling pass: which jobs start, where, and for which job devices are kept.

use super::barred::KeptOff;
use super::reserved::{self, Claimant};
use super::{Stage, State};
use crate::action::{Action, Decision};
use crate::allowance::Room;
use crate::host::HostEffect;
use crate::job::JobId;
use crate::place::{Ask, Dev, admits, eligible, is_short, rank, waits_for_own};
use crate::policy::{DecidedBy, Fit, Progress};
use crate::reason::{Obstacle, Passing, Reason, Score, Shortfall, Wait};
use crate::reserve::Reservation;
use crate::settings::Memory;
use crate::state::evict::RETRY_RESUME;
use crate::state::record::{Failed, Phase};
use crate::state::since::Since;
use crate::units::{Bytes, Millis};

/// Node and devices on which a job may start.
pub(super) struct Place {
    pub(super) devices: Vec<usize>,
    /// The machine of a job without GPUs.
    pub(super) host: usize,
    pub(super) score: Score,
    /// Reason of a planner that chose it.
    pub(super) why: Option<String>,
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
        self.kept_memory.clear();
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
        let record = self.first_within_limits().and_then(|id| self.jobs.get(&id));
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
        let mut head: Option<JobId> = None;
        let (mut failed, depth) = (0, self.settings.order.depth);
        let (mut room, mut kept_off) = (Room::default(), KeptOff::new(depth));
        let mut heads = self.queue.heads(self.now, &self.settings.order, &self.ledger);
        while let Some(id) = heads.next(&self.queue) {
            if let Err(barred) = self.take_room(&mut room, id) {
                // Later jobs of the same user do not pass this one, and no devices are kept for it.
                if barred.bars_later() || kept_off.is_full(self.user_of(id)) {
                    heads.skip_user();
                }
                continue;
            }
            if head.is_none() || !self.is_as_it_was(id) {
                let Err(wait) = self.try_start(id, head, out) else {
                    started = true;
                    if one {
                        return true;
                    }
                    continue;
                };
                let is_behind = matches!(wait, Wait::Reserved { why: Obstacle::Quota, .. });
                self.waits(id, wait);
                if head.is_none() && self.retry_at(id).is_none() {
                    if self.keeps_for(id, out) {
                        head = Some(id);
                        if !self.settings.order.backfill {
                            break;
                        }
                    } else {
                        // Its user, or a group of that user, gives it room by what ends, and not by what starts.
                        self.keep_memory(id);
                    }
                }
                if is_behind {
                    // In no other user's way, however many of them there are.
                    if kept_off.is_full(self.user_of(id)) {
                        heads.skip_user();
                    }
                    continue;
                }
            }
            failed += 1;
            if failed > depth {
                break;
            }
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

    /// Number of changes of devices so far.
    fn upto(&self) -> u64 {
        self.changes_from + u64::try_from(self.changes.len()).unwrap_or(0)
    }

    /// Returns true if nothing changed for a job since it was searched a place behind the first blocked one: it waits as it did.
    fn is_as_it_was(&self, id: JobId) -> bool {
        let version = self.reservation.as_ref().map_or(0, |reservation| reservation.version);
        let same = |failed: &Failed| failed.upto == self.upto() && failed.under == version;
        self.jobs.get(&id).is_some_and(|record| {
            record.failed.as_ref().is_some_and(same)
                && self.stage == Stage::Rest
                && record.job.gpus > 0
                && record.gathers().is_none()
                && record.image.is_none()
                // With time it may come to borrow what is kept.
                && record.job.time_limit.is_none()
        })
    }

    fn waits(&mut self, id: JobId, wait: Wait) {
        let upto = self.upto();
        let version = self.reservation.as_ref().map_or(0, |reservation| reservation.version);
        // What was kept from it for this pass alone says nothing of the next one.
        let is_behind = self.jobs.get(&id).is_some_and(|record| self.is_behind(record.job.user));
        let has_searched = self.retry_at(id).is_none() && !is_behind;
        if matches!(wait, Wait::Reserved { .. })
            && self.stage == Stage::Rest
            && let Some(at) = self.reservation.as_ref().and_then(|kept| self.borrows_at(kept, id))
        {
            self.timers.insert((at, super::Timer::Pace));
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            let (fits, closest) = (std::mem::take(&mut self.fits), self.closest.take());
            record.failed = has_searched.then_some(Failed { upto, under: version, fits, closest });
            record.wait = Some(wait);
        }
    }

    /// Keeps devices for a blocked job. Returns false if that one does not count as the first: there are none to be kept for it,
    /// because of an advance reservation or of memory that its own user has. So the next that waits is the first.
    fn keeps_for(&mut self, id: JobId, out: &mut Vec<Decision>) -> bool {
        let has_quotas = self.jobs.get(&id).is_some_and(|record| !record.quotas.is_empty());
        if self.advance.is_empty() && self.kept_memory.is_empty() && !has_quotas {
            self.keep_for(id, out);
            return true;
        }
        let before = self.reservation.clone().filter(|kept| kept.ask.job != id);
        self.keep_for(id, out);
        let is_first = self.reservation.is_some();
        if !is_first {
            // The job behind it for which they are kept has them still.
            self.reservation = before;
        }
        is_first
    }

    /// Keeps the devices for the first blocked job: those it had, while it stays first and waits for
    /// a job there to leave.
    fn keep_for(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let leaves = |job: &JobId| {
            self.jobs.get(job).is_some_and(|r| matches!(r.phase, Phase::Stopping | Phase::Suspending))
        };
        // Jobs that were asked to leave for it leave.
        let is_own = |kept: &Reservation| {
            let own = |at: &usize| {
                waits_for_own(&self.settings, &self.devices[*at], &kept.ask)
                    || self.memory_kept_from(kept.ask.user, *at).is_some()
            };
            kept.devices.iter().any(own) && !kept.blockers.iter().any(leaves)
        };
        let waits = |kept: &Reservation| {
            kept.ask.job == id
                && !kept.blockers.is_empty()
                && self.are_open(&kept.devices, id)
                && !is_own(kept)
        };
        if !self.reservation.as_ref().is_some_and(waits) {
            self.reservation = self.reserve(id);
        } else {
            self.renew_reservation();
        }
        self.make_room(id, out);
    }

    fn try_start(&mut self, id: JobId, head: Option<JobId>, out: &mut Vec<Decision>) -> Result<(), Wait> {
        if self.retry_at(id).is_some() {
            return Err(Wait::RestoreFailed { every: RETRY_RESUME });
        }
        let Some(record) = self.jobs.get(&id) else { return Ok(()) };
        // While no job is blocked, no devices are kept.
        let reservation = if head.is_some() { self.reservation.take() } else { None };
        let version = reservation.as_ref().map_or(0, |reservation| reservation.version);
        let group = record.gathers();
        // What was considered in another stage shows nothing of this one.
        let is_comparable = record.job.gpus > 0 && group.is_none() && self.stage == Stage::Rest;
        let failed = self.jobs.get_mut(&id).and_then(|record| record.failed.take());
        let place = match failed.filter(|_| is_comparable) {
            Some(failed) => self.find_among_changed(id, failed, version, reservation.as_ref()),
            None => self.find(id, reservation.as_ref()),
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
        let Some(record) = self.jobs.get(&id) else { return Err(Wait::NoDevice) };
        let before = record.wait.clone();
        let may_borrow =
            record.job.time_limit.is_some() && kept.is_some_and(|kept| self.may_borrow(kept, id));
        let mut since = std::mem::take(&mut self.since);
        let is_known = self.list_since(&mut since, &failed, version, kept);
        // With time a job may come to borrow what is kept.
        let borrowed = kept.filter(|_| may_borrow && is_known);
        let some = match borrowed {
            None => since.devices(),
            Some(kept) => since.with(&kept.devices),
        };
        let found = match is_known && some.len() <= self.devices.len() / 2 + 1 {
            false => self.find(id, kept),
            true if some.is_empty() => {
                (self.fits, self.closest) = (failed.fits, failed.closest);
                Err(before.unwrap_or(Wait::NoDevice))
            }
            true => {
                // What a device that changed lacked then says nothing of it now.
                let holds = failed.closest.is_none_or(|at| !some.contains(&at));
                let before = before.filter(|_| holds).map(|wait| (failed.closest, wait));
                self.find_among(id, some, failed.fits, before, kept)
            }
        };
        self.since = since;
        found
    }

    /// Lists the devices on which something changed for jobs since they found no place. Returns false if that is not known any more.
    fn list_since(
        &self,
        since: &mut Since,
        failed: &Failed,
        version: u64,
        kept: Option<&Reservation>,
    ) -> bool {
        let key = [failed.upto, self.upto(), failed.under, version];
        if since.is_of(key) {
            return true;
        }
        let Some(skip) = failed.upto.checked_sub(self.changes_from) else { return false };
        let changed = self.changes.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX));
        let is_other = failed.under != version && failed.under > 0;
        let held = if is_other { self.held_under(failed.under) } else { None };
        if is_other && held.is_none() {
            return false;
        }
        // What is near a blocker still is kept from each job still.
        let is_free = |at: &&usize| kept.is_none_or(|kept| kept.near.binary_search(at).is_err());
        let released =
            held.into_iter().flat_map(|held| held.own.iter().chain(held.near.iter().filter(is_free)));
        since.set(key, changed.chain(released).copied());
        true
    }

    /// A place among these devices, for a job of several devices together with those that would have done before.
    fn find_among(
        &mut self,
        id: JobId,
        some: &[usize],
        mut fits: Vec<usize>,
        before: Option<(Option<usize>, Wait)>,
        kept: Option<&Reservation>,
    ) -> Result<Place, Wait> {
        let Some(record) = self.jobs.get(&id) else { return Err(Wait::NoDevice) };
        let ask = self.own_ask(record);
        let mut search = Search::new(self, ask, kept);
        some.iter().for_each(|at| search.device(*at));
        if search.ask.gpus == 1 {
            let (found, scratch, wait) = (search.best_single(), search.scratch, search.wait);
            self.scratch = scratch;
            let (closest, wait) = match (before, wait) {
                (Some((Some(at), before)), Some(wait)) => {
                    let (at, wait) = closer((at, before), wait);
                    (Some(at), wait)
                }
                (_, Some((at, wait))) => (Some(at), wait),
                (before, None) => before.unwrap_or((None, Wait::NoDevice)),
            };
            self.closest = closest;
            return found.ok_or(wait);
        }
        let now: Vec<usize> = search.fits.iter().map(|(at, _)| *at).collect();
        fits.retain(|at| some.binary_search(at).is_err());
        fits.extend(&now);
        fits.sort_unstable();
        // No machine had enough of them, so only one of which a device changed can have them now.
        let node_of = |at: &usize| search.state.devices[*at].node;
        let mut nodes: Vec<usize> = now.iter().map(node_of).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| fits.iter().filter(|at| node_of(at) == *node).count() >= search.ask.gpus);
        let mut found = None;
        if !nodes.is_empty() {
            found = search.all(Some((&nodes, &fits)));
            let there = std::mem::take(&mut search.all_fits);
            fits.retain(|at| nodes.binary_search(&search.state.devices[*at].node).is_err());
            fits.extend(there);
            fits.sort_unstable();
        }
        let (scratch, wait, gpus) = (search.scratch, search.wait, search.ask.gpus);
        let most = self.most_of_node(&fits);
        (self.fits, self.scratch) = (fits, scratch);
        // Of devices that did not change and would not do either the reason of then still holds.
        let is_gang = |wait: &Wait| matches!(wait, Wait::Gang { .. });
        let before = before.filter(|(_, wait)| !is_gang(wait));
        let is_kept = |wait: &Wait| matches!(wait, Wait::Kept { kept } if kept.would_do);
        let (closest, wait) = match (most, before) {
            // An advance reservation alone was in the way, and is.
            (_, Some(before)) if is_kept(&before.1) => before,
            (1.., _) => {
                let cut = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
                (None, Wait::Gang { gpus: cut(gpus), fit: cut(most) })
            }
            (0, Some(before)) => before,
            (0, None) => wait.map_or((None, Wait::NoDevice), |(at, wait)| (Some(at), wait)),
        };
        self.closest = closest;
        found.ok_or(wait)
    }

    /// The most of these devices that one node has.
    fn most_of_node(&self, devices: &[usize]) -> usize {
        let mut nodes: Vec<usize> = devices.iter().map(|at| self.devices[*at].node).collect();
        nodes.sort_unstable();
        nodes.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap_or(0)
    }

    fn find(&mut self, id: JobId, kept: Option<&Reservation>) -> Result<Place, Wait> {
        let Some(record) = self.jobs.get(&id) else { return Err(Wait::NoDevice) };
        let ask = self.ask_of(record);
        if ask.gpus == 0 {
            return self.find_host(&ask, kept);
        }
        let mut search = Search::new(self, ask, kept);
        let place = search.all(None);
        let (mut fits, scratch, wait, gang) = (search.all_fits, search.scratch, search.wait, search.gang);
        fits.sort_unstable();
        (self.fits, self.scratch) = (fits, scratch);
        self.closest = wait.as_ref().filter(|_| gang.is_none()).map(|(at, _)| *at);
        place.ok_or_else(|| gang.or(wait.map(|(_, wait)| wait)).unwrap_or(Wait::NoDevice))
    }

    pub(super) fn find_host(&self, ask: &Ask, kept: Option<&Reservation>) -> Result<Place, Wait> {
        let fits = |node: usize| self.nodes[node].has(ask.host) && self.leaves_host_room(kept, node, ask);
        let only = ask.node;
        (0..self.nodes.len())
            .find(|node| only.is_none_or(|only| only == *node) && fits(*node))
            .map(|host| Place { devices: Vec::new(), host, score: Score::First, why: None })
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
    /// before that one in the queue, or because it is gone in time. That one waits for it, too. Returns the use it makes of
    /// these devices; `None`: it borrows them, and the ends of those before it are not known.
    fn note_in_the_way(&mut self, id: JobId, ask: &Ask, place: &Place, whole: bool) -> Option<Passing> {
        let Some(kept) = self.reservation.as_ref().filter(|kept| kept.ask.job != id) else {
            return Some(Passing::Elsewhere);
        };
        let is_kept = place.devices.iter().any(|at| kept.devices.contains(at));
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
        match (in_the_way, is_likely, is_kept) {
            (true, true, _) => None,
            (true, false, _) => Some(Passing::Ends),
            (false, _, true) => Some(Passing::Beside),
            (false, _, false) => Some(Passing::Elsewhere),
        }
    }

    /// Memory that is free on each of these devices.
    fn free_on(&self, devices: &[usize]) -> Bytes {
        let margin = self.settings.preconditions.margin;
        let free = |at: &usize| {
            let dev = &self.devices[*at];
            let margin = if dev.residents.is_empty() { Bytes::ZERO } else { margin };
            dev.spec.capacity.minus(dev.occupied()).minus(margin)
        };
        devices.iter().map(free).min().unwrap_or(Bytes::ZERO)
    }

    pub(super) fn start(&mut self, id: JobId, place: Place, head: Option<JobId>, out: &mut Vec<Decision>) {
        self.unqueue(id);
        let Some(record) = self.jobs.get(&id) else { return };
        let ask = self.own_ask(record);
        let retry = record.rung(&self.settings) == Some(crate::ladder::Rung::Exclusive);
        let joinable = retry && self.settings.recovery.joinable && !record.job.exclusive;
        let whole = (ask.whole && !joinable) || !self.settings.policy.shares();
        // The devices of a group are divided among its own by what each is to find.
        let open = ask.open && !whole && !place.devices.is_empty() && record.job.together.is_none();
        let reserved = match whole {
            true => None,
            false if open => {
                let free = self.free_on(&place.devices);
                Some(record.memory_most.map_or(free, |most| free.min(most)))
            }
            false => Some(ask.claim.unwrap_or(Bytes::ZERO)),
        };
        let joins = place.devices.iter().any(|at| !self.devices[*at].residents.is_empty());
        // A job of unknown need that ran out of memory is known to need more than that. What it takes beside others may not be
        // what these reserved.
        let unknown = record.floor > Bytes::ZERO || (open && joins);
        let enforce = record.job.need.as_ref().map_or(unknown, |need| need.enforce);
        let limit = reserved.filter(|_| self.settings.memory == Memory::Reserved && enforce);
        let most = record.memory_most.filter(|_| !place.devices.is_empty());
        let limit = limit.into_iter().chain(most).min();
        if place.devices.is_empty() {
            self.host_jobs.insert(id, place.host);
        } else if self.settings.policy.rules().decided_by() == DecidedBy::Turn && !self.idle_only {
            self.cursor = place.devices.last().map_or(0, |at| at + 1);
        }
        // The devices of a group are its own.
        let is_alone = whole || open || record.job.together.is_some();
        let passing = self.note_in_the_way(id, &ask, &place, is_alone);
        self.occupy(id, &place.devices, reserved, true);
        let (policy, now) = (self.settings.policy, self.now);
        let rung = self.jobs.get(&id).and_then(|record| record.rung(&self.settings));
        let devices: Vec<_> = place.devices.iter().map(|at| self.devices[*at].spec.id).collect();
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let reason = match (rung, head) {
            _ if place.why.is_some() => Reason::Chosen { why: place.why.unwrap_or_default() },
            _ if place.devices.is_empty() => Reason::HostOnly,
            (Some(rung), _) => Reason::Retried { rung, floor: record.floor },
            (None, Some(ahead)) => match passing {
                Some(passing) => Reason::Backfilled { policy, score: place.score, ahead, passing },
                None => {
                    let limit = record.job.time_limit.unwrap_or_default();
                    Reason::Borrowed { policy, score: place.score, ahead, limit }
                }
            },
            (None, None) => Reason::Placed { policy, score: place.score },
        };
        record.since = now;
        record.open = open;
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

/// Advantage in rank of an idle device that is kept for the job's user: more than any device has by itself (KiB at most).
const OWN_RESERVED: i64 = 1 << 44;

/// Disadvantage in rank of a device on which the job's user may have less memory than the job is to find: more than that advantage.
const SHORT_QUOTA: i64 = 1 << 46;

/// One job's search over devices.
struct Search<'a> {
    state: &'a State,
    kept: Option<&'a Reservation>,
    ask: Ask,
    limit: Option<Millis>,
    scratch: crate::place::Scratch,
    /// The reason of the device that came closest, and its index.
    wait: Option<(usize, Wait)>,
    /// The reason that no node has enough devices, where one has some.
    gang: Option<Wait>,
    fits: Vec<(usize, Fit)>,
    /// Of a job of several devices: those of all nodes that would do.
    all_fits: Vec<usize>,
    /// The node that was looked at last, and what the job would do there on the host.
    host: Option<(usize, HostEffect)>,
    /// The node whose idle devices were counted last, and how many it has.
    idle: Option<(usize, usize)>,
    /// The job, if there are advance reservations.
    who: Option<Claimant>,
    /// Devices of the node that would do but for advance reservations.
    closed: usize,
}

impl<'a> Search<'a> {
    fn new(state: &'a mut State, ask: Ask, kept: Option<&'a Reservation>) -> Self {
        let scratch = std::mem::take(&mut state.scratch);
        let alone = state.jobs.get(&ask.job).filter(|record| record.gathers().is_none());
        let limit = alone.and_then(|record| record.job.time_limit);
        let (wait, gang, fits, who) = (None, None, Vec::new(), state.claimant(ask.job));
        let (all_fits, host, idle, closed) = (Vec::new(), None, None, 0);
        Self { state, kept, ask, limit, scratch, wait, gang, fits, all_fits, host, idle, who, closed }
    }

    fn blocked(&mut self, at: usize, wait: Wait) {
        self.wait = Some(match self.wait.take() {
            Some(before) => closer(before, (at, wait)),
            None => (at, wait),
        });
    }

    /// The device, if it would do, goes to `fits`.
    fn device(&mut self, at: usize) {
        let state = self.state;
        let dev = &state.devices[at];
        if state.idle_only && !dev.residents.is_empty() {
            let may_use = dev.usable() && eligible(dev, &self.ask);
            return self.blocked(at, if may_use { Wait::Idle } else { Wait::NoDevice });
        }
        if let Some(job) = state.memory_kept_from(self.ask.user, at) {
            let may_use = dev.usable() && eligible(dev, &self.ask);
            let wait = Wait::Reserved { job, why: Obstacle::Quota };
            return self.blocked(at, if may_use { wait } else { Wait::NoDevice });
        }
        if !state.nodes[dev.node].has(self.ask.host)
            || !state.leaves_host_room(self.kept, dev.node, &self.ask)
        {
            return self.blocked(at, Wait::Host);
        }
        let host = match self.host {
            Some((node, host)) if node == dev.node => host,
            _ => state.nodes[dev.node].host.effect(self.ask.host_use, self.ask.priority),
        };
        self.host = Some((dev.node, host));
        let admitted = admits(&state.settings, dev, &self.ask, &host, state.now, &mut self.scratch);
        let closed = self.who.as_ref().and_then(|who| state.closed_by(at, who, state.now));
        match (admitted, closed) {
            // Not for this job at all, whatever becomes of it.
            (Err(Wait::NoDevice), _) => self.blocked(at, Wait::NoDevice),
            (admitted, Some(closed)) => {
                self.closed += usize::from(admitted.is_ok());
                self.blocked(at, reserved::wait(closed, admitted.is_ok()));
            }
            (Err(wait), None) => self.blocked(at, wait),
            (Ok(progress), None) => self.unless_kept(at, progress),
        }
    }

    fn unless_kept(&mut self, at: usize, progress: Progress) {
        let state = self.state;
        let dev = &state.devices[at];
        if let Some(kept) = self.kept {
            // What a job of unknown need leaves is not known before it ran.
            let whole = self.ask.whole || self.ask.open || !state.settings.policy.shares();
            let room = state.leaves_room(kept, at, &self.ask, whole, self.limit, &mut self.scratch);
            if let Err(why) = room {
                return self.blocked(at, Wait::Reserved { job: kept.ask.job, why });
            }
        }
        let count = state.devices.len();
        let distance = (at + count - state.cursor % count) % count;
        let idle_beside = if state.settings.policy.predicts() && dev.residents.is_empty() {
            self.idle_on(dev.node)
        } else {
            0
        };
        let mut fit = if state.idle_only {
            Fit { rank: (0, 0, i64::from(dev.spec.id.0)), score: Score::Idle { outside: dev.foreign } }
        } else {
            rank(&state.settings, dev, &self.ask, progress, distance, idle_beside)
        };
        // What is kept for its user is of no use to others.
        if dev.residents.is_empty() && self.who.as_ref().is_some_and(|who| state.is_kept_for(at, who)) {
            fit.rank.0 = fit.rank.0.saturating_sub(OWN_RESERVED);
        }
        if is_short(dev, &self.ask) {
            fit.rank.0 = fit.rank.0.saturating_add(SHORT_QUOTA);
        }
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
        Some(Place { devices: vec![best.0], host: 0, score: best.1.score, why: None })
    }

    /// The best place on all nodes, or among these devices, in order, of these nodes.
    fn all(&mut self, among: Option<(&[usize], &[usize])>) -> Option<Place> {
        // Nothing beats an idle device under `aware`, and a large cluster has many: they are
        // considered first, and the others only if there are not enough.
        if self.state.settings.policy.predicts() {
            // On a device where its user may have too little it is worse off than beside others.
            let limited = (!self.ask.quotas.is_empty()).then(|| self.ask.clone());
            let is_wanted = |dev: &Dev| {
                dev.residents.is_empty() && limited.as_ref().is_none_or(|ask| !is_short(dev, ask))
            };
            if let Some(place) = self.nodes(among, is_wanted) {
                return Some(place);
            }
        }
        self.nodes(among, |_| true)
    }

    fn nodes(
        &mut self,
        among: Option<(&[usize], &[usize])>,
        is_wanted: impl Fn(&Dev) -> bool,
    ) -> Option<Place> {
        let state = self.state;
        let gpus = self.ask.gpus;
        let (mut most, mut most_with_closed) = (0, 0);
        self.gang = None;
        let mut best: Option<((i64, i64, i64), Place)> = None;
        let mut singles = Vec::new();
        self.all_fits.clear();
        let count = among.map_or(state.nodes.len(), |(nodes, _)| nodes.len());
        for at in 0..count {
            let index = among.map_or(at, |(nodes, _)| nodes[at]);
            self.fits.clear();
            self.closed = 0;
            let devices = among.map_or(&state.nodes[index].devices[..], |(_, devices)| devices);
            for &at in devices {
                let dev = &state.devices[at];
                if dev.node == index && is_wanted(dev) {
                    self.device(at);
                }
            }
            most = most.max(self.fits.len());
            most_with_closed = most_with_closed.max(self.fits.len() + self.closed);
            if gpus == 1 {
                singles.extend(self.fits.iter().min_by_key(|(at, fit)| (fit.rank, *at)).copied());
                continue;
            }
            self.all_fits.extend(self.fits.iter().map(|(at, _)| *at));
            if self.fits.len() < gpus {
                continue;
            }
            self.fits.sort_by_key(|(at, fit)| (fit.rank, *at));
            self.fits.truncate(gpus);
            let total = self.fits.iter().fold((0i64, 0i64, 0i64), |sum, (_, fit)| {
                (
                    sum.0.saturating_add(fit.rank.0),
                    sum.1.saturating_add(fit.rank.1),
                    sum.2.saturating_add(fit.rank.2),
                )
            });
            if best.as_ref().is_none_or(|(rank, _)| total < *rank) {
                let mut devices: Vec<usize> = self.fits.iter().map(|(at, _)| *at).collect();
                devices.sort_unstable();
                best = Some((total, Place { devices, host: 0, score: self.fits[0].1.score, why: None }));
            }
        }
        if gpus == 1 {
            self.fits = singles;
            return self.best_single();
        }
        // Where reservations alone are in the way, one of them is the reason.
        if best.is_none() && most > 0 && most_with_closed < gpus {
            let cut = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
            self.gang = Some(Wait::Gang { gpus: cut(gpus), fit: cut(most) });
        }
        best.map(|(_, place)| place)
    }
}

/// Of two reasons why devices would not do, the one that says more: the device that came closer.
fn closer(a: (usize, Wait), b: (usize, Wait)) -> (usize, Wait) {
    let closeness = |wait: &Wait| match wait {
        Wait::Kept { kept } => (if kept.would_do { 9 } else { 1 }, 0),
        // The device itself is kept for no job.
        Wait::Reserved { why: Obstacle::Threads, .. } => (8, 1),
        Wait::Reserved { .. } => (8, 0),
        Wait::Slowdown { shortfall: Shortfall::MinSpeed { speed, .. }, .. } => {
            (7, (1 << 40) + i128::from(speed.0))
        }
        Wait::Slowdown { shortfall: Shortfall::MinGain { gain, .. }, .. } => (7, i128::from(gain.0)),
        Wait::Rule { .. } => (7, i128::MIN),
        Wait::Protected { low, .. } => (7, i128::from(low.0)),
        Wait::Busy { smact, .. } => (6, -i128::from(smact.0)),
        Wait::Unmeasured => (6, i128::MIN),
        Wait::Settling | Wait::Window { .. } => (5, 0),
        Wait::Memory { free, .. } => (4, i128::from(free.0)),
        Wait::UserMemory { left, .. } => (4, i128::from(left.0)),
        Wait::Share { left, .. } => (3, i128::from(left.0)),
        Wait::Partition => (3, -1),
        Wait::Host => (2, 0),
        Wait::Full { .. } => (1, 1),
        Wait::Idle => (1, 0),
        _ => (0, 0),
    };
    if closeness(&b.1) > closeness(&a.1) { b } else { a }
}
