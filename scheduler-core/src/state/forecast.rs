//! Expected starts of waiting jobs, for those who ask: no decision depends on them.
//!
//! The first jobs in the order of the queue are placed one after another by what is expected of those before them: each where,
//! by the same checks and likely ends as a reservation, it finds room first and until its own likely end. Jobs that are
//! submitted later, end early or turn out to need less change that.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use super::reserved::Claimant;
use crate::allowance::Room;
use crate::expected::ExpectedStart;
use crate::host::HostEffect;
use crate::job::JobId;
use crate::place::{Ask, Resident, Scratch, admits, eligible, joins, newcomer};
use crate::reason::Wait;
use crate::reserve::predictable;
use crate::settings::Memory;
use crate::state::record::{Phase, Record};
use crate::units::Millis;

/// Jobs whose start is expected: an answer takes no longer in a longer queue.
const MAX_JOBS: usize = 64;
/// Devices and times that are tried for all of them: an answer takes no longer on a node of more GPUs and jobs.
const MAX_TRIALS: u32 = 2500;
/// Times that are tried for a job of several GPUs.
const MAX_TIMES: usize = 64;

/// A job that is on a device, or is expected to come there.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: Millis,
    until: Millis,
    resident: Resident,
}

/// Devices for a job, and its time there.
struct Slot {
    at: Millis,
    devices: Vec<usize>,
}

impl State {
    /// Expected start of a job that is among the first in the queue; `None`: it is not, or something else keeps it than what
    /// others hold, such as a limit of its user.
    #[must_use]
    pub fn expected_start(&self, id: JobId) -> Option<ExpectedStart> {
        self.answers.expected_start(id, self.now, || Plan::new(self).forecast())
    }

    /// Expected start of the job that devices are kept for.
    fn reserved_start(&self, id: JobId) -> Option<(ExpectedStart, &[usize])> {
        let kept = self.reservation.as_ref().filter(|kept| kept.ask.job == id)?;
        let last = kept.blockers.iter().map(|job| (self.expected_end(*job), *job)).max();
        let expected = match last? {
            (Millis::MAX, job) => ExpectedStart::NoEnd { job },
            (at, _) => ExpectedStart::At(at),
        };
        Some((expected, kept.devices.as_slice()))
    }

    /// Expected end of a job on devices. One that was asked to leave does so already.
    fn expected_end(&self, job: JobId) -> Millis {
        let leaves = |record: &&Record| matches!(record.phase, Phase::Stopping | Phase::Suspending);
        let stays = self.jobs.get(&job).filter(|record| !leaves(record));
        stays.map_or(self.now, |record| record.likely_end().max(self.now))
    }
}

/// Devices over time.
struct Plan<'a> {
    state: &'a State,
    /// By device.
    stays: Vec<Vec<Stay>>,
    /// The job of unknown start that a device is kept for.
    kept: Vec<Option<JobId>>,
    /// No job starts before this.
    floor: Millis,
    /// Number of further trials.
    trials: u32,
    scratch: Scratch,
}

impl<'a> Plan<'a> {
    fn new(state: &'a State) -> Self {
        let stay = |resident: &Resident| Stay {
            from: Millis::ZERO,
            until: state.expected_end(resident.job),
            resident: *resident,
        };
        let stays = state.devices.iter().map(|dev| dev.residents.iter().map(stay).collect()).collect();
        let kept = vec![None; state.devices.len()];
        Self { state, stays, kept, floor: state.now, trials: MAX_TRIALS, scratch: Scratch::default() }
    }

    fn forecast(mut self) -> BTreeMap<JobId, ExpectedStart> {
        let state = self.state;
        let (mut found, mut room, mut barred) = (BTreeMap::new(), Room::default(), BTreeSet::new());
        for id in state.queue.first(MAX_JOBS, state.now, &state.settings.order, &state.ledger) {
            let Some(record) = state.jobs.get(&id) else { continue };
            let user = record.job.user;
            if let Some(first) = record.gathers().map(|group| group.first).filter(|first| *first != id) {
                found.extend(found.get(&first).copied().map(|expected| (id, expected)));
                continue;
            }
            if barred.contains(&user) {
                continue;
            }
            if let Err(why) = state.take_room(&mut room, id) {
                if why.bars_later() {
                    barred.insert(user);
                }
                continue;
            }
            // Neither its part of the host nor a job without GPUs is planned.
            if record.job.gpus == 0 || matches!(record.wait, Some(Wait::Host)) {
                continue;
            }
            let expected = match self.trials {
                0 => Some(ExpectedStart::Unplanned),
                _ => self.place(id, record),
            };
            if let Some(expected) = expected.filter(|of| *of != ExpectedStart::At(state.now)) {
                found.insert(id, expected);
            }
            if !state.settings.order.backfill {
                match expected {
                    Some(ExpectedStart::At(at)) => self.floor = at,
                    _ => break,
                }
            }
        }
        found
    }

    /// Expected start of the next job, which takes its place from there on. One at once is none: it would have started.
    fn place(&mut self, id: JobId, record: &Record) -> Option<ExpectedStart> {
        let state = self.state;
        let (ask, takes) = (state.ask_of(record), takes(record));
        if let Some((expected, devices)) = state.reserved_start(id) {
            match expected {
                ExpectedStart::At(at) => self.take(&ask, &Slot { at, devices: devices.to_vec() }, takes),
                _ => devices.iter().for_each(|at| self.kept[*at] = Some(id)),
            }
            return Some(expected);
        }
        match self.find(&ask, takes) {
            // What was not tried any more may have had room.
            _ if self.trials == 0 => Some(ExpectedStart::Unplanned),
            Ok(slot) => {
                self.take(&ask, &slot, takes);
                Some(ExpectedStart::At(slot.at))
            }
            Err(expected) => expected,
        }
    }

    fn take(&mut self, ask: &Ask, slot: &Slot, takes: Millis) {
        let whole = ask.whole || ask.open || !self.state.settings.policy.shares();
        let stay = Stay { from: slot.at, until: slot.at.plus(takes), resident: newcomer(ask, whole) };
        slot.devices.iter().for_each(|at| self.stays[*at].push(stay));
    }

    /// The first time at which enough devices of one node have room, or what makes that unknown.
    fn find(&mut self, ask: &Ask, takes: Millis) -> Result<Slot, Option<ExpectedStart>> {
        let state = self.state;
        let who = state.claimant(ask.job);
        let (mut best, mut unknown): (Option<Slot>, Option<ExpectedStart>) = (None, None);
        for (index, node) in state.nodes.iter().enumerate() {
            if ask.node.is_some_and(|only| only != index) {
                continue;
            }
            let host = node.host.effect(ask.host_use, ask.priority);
            let search = Search { ask, takes, host: &host, who: who.as_ref() };
            let mut free = Vec::new();
            for &at in &node.devices {
                match self.first_time(at, &search) {
                    Ok(time) => free.push(time),
                    Err(why) => unknown = unknown.or(why),
                }
            }
            free.sort_unstable();
            let Some(first) = ask.gpus.checked_sub(1).and_then(|last| free.get(last)).copied() else {
                continue;
            };
            let mut times = vec![first];
            if ask.gpus > 1 {
                let ends = node.devices.iter().flat_map(|at| &self.stays[*at]).map(|stay| stay.until);
                times.extend(ends.filter(|end| *end > first && *end < Millis::MAX));
                times.sort_unstable();
                times.dedup();
                times.truncate(MAX_TIMES);
            }
            for at in times {
                let mut devices = node.devices.clone();
                devices.retain(|device| self.is_free(*device, at, &search));
                if devices.len() < ask.gpus {
                    continue;
                }
                devices.truncate(ask.gpus);
                if best.as_ref().is_none_or(|best| at < best.at) {
                    best = Some(Slot { at, devices });
                }
                break;
            }
        }
        best.ok_or(unknown)
    }

    /// The first time at which a device has room for the job, or what makes that unknown.
    fn first_time(&mut self, at: usize, search: &Search<'_>) -> Result<Millis, Option<ExpectedStart>> {
        let dev = &self.state.devices[at];
        if dev.drained || !eligible(dev, search.ask) {
            return Err(None);
        }
        if let Some(job) = self.kept[at] {
            return Err(Some(ExpectedStart::Behind { job }));
        }
        let ends = self.stays[at].iter().map(|stay| stay.until);
        let mut times: Vec<Millis> = ends.filter(|end| *end > self.floor && *end < Millis::MAX).collect();
        times.push(self.floor);
        times.sort_unstable();
        times.dedup();
        match times.into_iter().find(|time| self.is_free(at, *time, search)) {
            Some(time) => Ok(time),
            None => {
                let endless = self.stays[at].iter().filter(|stay| stay.until == Millis::MAX);
                Err(endless.map(|stay| ExpectedStart::NoEnd { job: stay.resident.job }).next())
            }
        }
    }

    /// Returns true if the job has room on a device from this time on.
    fn is_free(&mut self, at: usize, time: Millis, search: &Search<'_>) -> bool {
        let Self { state, stays, kept, trials, scratch, .. } = self;
        let Some(left) = trials.checked_sub(1) else { return false };
        *trials = left;
        let (dev, settings) = (&state.devices[at], &state.settings);
        let Search { ask, takes, host, who } = search;
        let is_closed = || who.is_some_and(|who| state.closed_by(at, who, time).is_some());
        if dev.drained || kept[at].is_some() || !eligible(dev, ask) || is_closed() {
            return false;
        }
        let end = time.plus(*takes);
        let beside =
            stays[at].iter().filter(|stay| stay.from < end && stay.until > time).map(|stay| &stay.resident);
        if beside.clone().next().is_none() {
            let free = dev.spec.capacity.minus(dev.foreign);
            return settings.memory == Memory::Blind || ask.claim.is_none_or(|need| need <= free);
        }
        if time <= state.now {
            // As the scheduler would start it, by what is seen too.
            return admits(settings, dev, ask, host, state.now, scratch).is_ok()
                && joins(settings, dev, beside, ask, host, scratch).is_ok();
        }
        predictable(settings) && joins(settings, dev, beside, ask, host, scratch).is_ok()
    }
}

/// Likely run time of a job that waits; without a limit and a known run time it has no end.
fn takes(record: &Record) -> Millis {
    let ran = if record.image.is_some() { record.ran } else { Millis::ZERO };
    let all = record.job.expected.into_iter().chain(record.job.time_limit);
    all.min().map_or(Millis::MAX, |takes| takes.minus(ran))
}

/// Request of a job, as a search for its place needs it.
struct Search<'a> {
    ask: &'a Ask,
    takes: Millis,
    host: &'a HostEffect,
    who: Option<&'a Claimant>,
}
