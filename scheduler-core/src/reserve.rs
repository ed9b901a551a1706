//! The reservation of the first job that cannot start: no job behind it takes from it what
//! it needs, or holds up those whose leaving it waits for.

use std::collections::BTreeSet;

use crate::job::{HostNeed, JobId};
use crate::place::{Ask, Resident, Scratch, eligible, joins, newcomer, waits_for_own};
use crate::reason::Obstacle;
use crate::settings::{Memory, Settings};
use crate::state::{Phase, Record, State};
use crate::units::Millis;

/// Devices that are kept for a job, and who must leave them first.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) ask: Ask,
    /// The machine's index.
    pub(crate) node: usize,
    /// Device indices, in order.
    pub(crate) devices: Vec<usize>,
    /// Jobs whose leaving makes room.
    pub(crate) blockers: BTreeSet<JobId>,
    /// Devices, in order, on which a newcomer could slow a blocker: those of the blockers, of jobs that
    /// share one with them, and so on.
    pub(crate) near: Vec<usize>,
    /// Likely time at which the last of the blockers is gone, if all have enforced limits: never later than those, nor than the
    /// lower ends of predicted run times.
    pub(crate) by: Option<Millis>,
    /// Number of this reservation among all so far, from 1.
    pub(crate) version: u64,
}

/// Devices that a reservation kept from jobs behind it, or of which it may have kept one of them.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    version: u64,
    /// Its own, and all of its node where its part of the host keeps jobs off.
    pub(crate) own: Vec<usize>,
    /// Those on which a newcomer could slow a blocker, in order: these are kept from each job behind it.
    pub(crate) near: Vec<usize>,
}

/// Reservations whose devices are remembered. A job that was refused under an older one is searched a place anew.
const MAX_HELD: usize = 64;

/// Longest time for which a job borrows kept devices where nothing is known of when their job can start.
const MAX_BORROWED: Millis = Millis::from_mins(10);

/// Prospect of room for a job; the lowest is best.
/// Fields: true if unmanaged processes have to leave, the time at which the last blocker has left, and the number of
/// blockers.
type Prospect = (bool, Millis, usize);
/// A machine for a job: when, its index, devices, blockers.
type Candidate = (Prospect, usize, Vec<usize>, BTreeSet<JobId>);

/// Returns true if residents alone, without what a monitor sees, determine when there is room.
pub(crate) fn predictable(settings: &Settings) -> bool {
    settings.memory == Memory::Reserved && settings.preconditions.smact.is_none()
}

impl State {
    /// Reservation of the devices on which the job will find room first, as far as that can be predicted.
    /// Returns `None` if there are none at present.
    pub(crate) fn reserve(&mut self, job: JobId) -> Option<Reservation> {
        let record = self.jobs.get(&job)?;
        let ask = self.ask_of(record);
        let predictable = predictable(&self.settings);
        let mut best: Option<Candidate> = None;
        let mut scratch = std::mem::take(&mut self.scratch);
        let who = self.claimant(job);
        let is_closed =
            |at: usize, from: Millis| who.as_ref().is_some_and(|who| self.closed_by(at, who, from).is_some());
        for (index, node) in self.nodes.iter().enumerate() {
            if ask.node.is_some_and(|only| only != index) {
                continue;
            }
            let host = node.host.effect(ask.host_use, ask.priority);
            let mut places: Vec<(Prospect, usize, Vec<JobId>)> = Vec::new();
            for &at in &node.devices {
                let dev = &self.devices[at];
                if dev.drained || !eligible(dev, &ask) || is_closed(at, self.now) {
                    continue;
                }
                // Others would wait for what its own user has, or is not to take yet.
                if waits_for_own(&self.settings, dev, &ask) || self.memory_kept_from(ask.user, at).is_some() {
                    continue;
                }
                let mut residents: Vec<(Millis, Resident)> =
                    dev.residents.iter().map(|r| (self.likely_end(r.job), *r)).collect();
                residents.sort_by_key(|(end, resident)| (*end, resident.job));
                let mut leave = 0;
                while leave < residents.len() {
                    let stay = residents[leave..].iter().map(|(_, resident)| resident);
                    if predictable && joins(&self.settings, dev, stay, &ask, &host, &mut scratch).is_ok() {
                        break;
                    }
                    leave += 1;
                }
                let gone = &residents[..leave];
                let when = gone.iter().map(|(end, _)| *end).max().unwrap_or(Millis::ZERO);
                // By then it may be too late for the job.
                if when < Millis::MAX && is_closed(at, self.now.max(when)) {
                    continue;
                }
                // When unmanaged processes leave is unknown: rather wait for any job.
                let free = dev.spec.capacity.minus(dev.foreign);
                let unmanaged = self.settings.memory == Memory::Reserved
                    && leave == residents.len()
                    && ask.claim.is_some_and(|need| need > free);
                let gone = gone.iter().map(|(_, resident)| resident.job).collect();
                places.push(((unmanaged, when, leave), at, gone));
            }
            if places.len() < ask.gpus {
                continue;
            }
            places.sort_by_key(|place| (place.0, place.1));
            places.truncate(ask.gpus);
            let unmanaged = places.iter().any(|place| place.0.0);
            let mut blockers: BTreeSet<JobId> =
                places.iter().flat_map(|place| place.2.iter().copied()).collect();
            if !self.add_host_blockers(index, ask.host, &mut blockers) {
                continue;
            }
            let when = blockers.iter().map(|job| self.likely_end(*job)).max().unwrap_or(Millis::ZERO);
            let prospect = (unmanaged, when, blockers.len());
            if best.as_ref().is_none_or(|(best, ..)| prospect < *best) {
                let mut devices: Vec<usize> = places.iter().map(|place| place.1).collect();
                devices.sort_unstable();
                best = Some((prospect, index, devices, blockers));
            }
        }
        self.scratch = scratch;
        let (_, node, devices, blockers) = best?;
        Some(self.reservation(ask, node, devices, blockers))
    }

    pub(crate) fn reservation(
        &mut self,
        ask: Ask,
        node: usize,
        devices: Vec<usize>,
        blockers: BTreeSet<JobId>,
    ) -> Reservation {
        self.reservations += 1;
        let (near, by) = (self.near(&blockers), self.gone_by(&blockers));
        let kept = Reservation { ask, node, devices, blockers, near, by, version: self.reservations };
        self.remember(&kept);
        kept
    }

    /// Remembers what a new version of a reservation keeps from others.
    pub(crate) fn remember(&mut self, kept: &Reservation) {
        let node = &self.nodes[kept.node];
        // Its part of the host keeps jobs from all of the node.
        let is_node = node.bound.is_some() || kept.ask.host_use.is_some();
        let own = if is_node { &node.devices } else { &kept.devices };
        let (own, near) = (own.clone(), kept.near.clone());
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
        }
        self.held.push_back(Held { version: kept.version, own, near });
    }

    /// The only devices that a job may find free that was refused all of them under this version of a reservation, unless they
    /// changed; `None`: that is not known any more.
    pub(crate) fn held_under(&self, version: u64) -> Option<&Held> {
        let at = self.held.binary_search_by_key(&version, |held| held.version).ok()?;
        self.held.get(at)
    }

    /// Devices of these jobs, of those that share one with them, and so on: how fast anybody there
    /// runs may depend on who joins any of them.
    fn near(&self, jobs: &BTreeSet<JobId>) -> Vec<usize> {
        let (mut known, mut todo) = (jobs.clone(), jobs.iter().copied().collect::<Vec<_>>());
        let mut near = BTreeSet::new();
        while let Some(job) = todo.pop() {
            for &at in self.jobs.get(&job).map_or(&[][..], |record| &record.devices) {
                if near.insert(at) {
                    let others = self.devices[at].residents.iter().map(|resident| resident.job);
                    todo.extend(others.filter(|other| known.insert(*other)));
                }
            }
        }
        near.into_iter().collect()
    }

    /// Likely time at which the last of them is gone.
    /// Returns `None` if one has no limit, or is asked to leave already: that job leaves before.
    fn gone_by(&self, jobs: &BTreeSet<JobId>) -> Option<Millis> {
        let end = |job: &JobId| {
            let record = self.jobs.get(job)?;
            let leaves = matches!(record.phase, Phase::Stopping | Phase::Suspending);
            (!leaves && record.enforced_end().is_some()).then(|| record.earliest_end())
        };
        jobs.iter().map(end).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Brings the reservation up to date with who is still in the way, and who runs beside whom.
    pub(crate) fn renew_reservation(&mut self) {
        let Some(mut kept) = self.reservation.take() else { return };
        let (near, by) = (self.near(&kept.blockers), self.gone_by(&kept.blockers));
        if (&near, by) != (&kept.near, kept.by) {
            (kept.near, kept.by) = (near, by);
            self.reservations += 1;
            kept.version = self.reservations;
            self.remember(&kept);
        }
        self.reservation = Some(kept);
    }

    /// Adds the jobs that must leave for the host part, those that will be gone first. False if
    /// the machine is too small.
    pub(crate) fn add_host_blockers(
        &self,
        node: usize,
        need: HostNeed,
        blockers: &mut BTreeSet<JobId>,
    ) -> bool {
        let Some(bound) = self.nodes[node].bound else { return true };
        let mut there: Vec<(Millis, JobId)> =
            self.jobs_on(node).into_iter().map(|job| (self.likely_end(job), job)).collect();
        there.sort_unstable();
        let host = |job: JobId| self.jobs.get(&job).map(|record| record.job.host).unwrap_or_default();
        let (mut cpu, mut memory) = (need.cpu_milli, need.memory);
        for (_, job) in there.iter().filter(|(_, job)| !blockers.contains(job)) {
            cpu = cpu.saturating_add(host(*job).cpu_milli);
            memory = memory.plus(host(*job).memory);
        }
        for (_, job) in there {
            if cpu <= bound.cpu_milli && memory <= bound.memory {
                break;
            }
            if blockers.insert(job) {
                cpu = cpu.saturating_sub(host(job).cpu_milli);
                memory = memory.minus(host(job).memory);
            }
        }
        cpu <= bound.cpu_milli && memory <= bound.memory
    }

    fn likely_end(&self, job: JobId) -> Millis {
        self.jobs.get(&job).map_or(Millis::MAX, |record| record.likely_end())
    }

    /// Checks that a job that came behind may be started on a device.
    /// It may not run beside a blocker, which it could slow. On a device that is kept, the job for which it is kept
    /// must still fit beside it when the blockers have left, or it is surely gone by then.
    pub(crate) fn leaves_room(
        &self,
        kept: &Reservation,
        at: usize,
        ask: &Ask,
        whole: bool,
        limit: Option<Millis>,
        scratch: &mut Scratch,
    ) -> Result<(), Obstacle> {
        if kept.near.binary_search(&at).is_ok() {
            return Err(Obstacle::NearBlocker);
        }
        // Threads that it brings to the node could keep the job from joining others there.
        let node = self.devices[at].node;
        if node == kept.node && !self.nodes[node].host.has_room_for(ask.host_use, kept.ask.host_use) {
            return Err(Obstacle::Threads);
        }
        if kept.devices.binary_search(&at).is_err() {
            return Ok(());
        }
        if let (Some(by), Some(limit)) = (kept.by, limit)
            && self.now.plus(limit).plus(self.settings.eviction.kill_after) <= by
        {
            return Ok(());
        }
        let may = self.may_borrow(kept, ask.job) || self.fits_beside(kept, at, ask, whole, scratch);
        if may { Ok(()) } else { Err(Obstacle::Device) }
    }

    /// Longest use of kept devices by a job that borrows them.
    /// `None`: the job has no limit, or joins a group; or it is a retry, which waits for the first job like any other, so that
    /// a program that fails again and again does not come back to the same devices.
    fn borrows_for(&self, id: JobId) -> Option<Millis> {
        let record = self.jobs.get(&id).filter(|record| record.gathers().is_none())?;
        let is_retry = record.rung(&self.settings).is_some();
        record.job.time_limit.filter(|_| !is_retry).map(|limit| limit.plus(self.settings.eviction.kill_after))
    }

    /// Returns true if a job may use devices that are kept for another one of which no start is known: it is gone before that
    /// one is likely to start.
    pub(crate) fn may_borrow(&self, kept: &Reservation, id: JobId) -> bool {
        kept.by.is_none() && self.borrows_for(id).is_some_and(|takes| takes <= self.likely_wait(kept))
    }

    /// Time for which the job that devices are kept for is likely to wait for the last of its blockers.
    ///
    /// Blockers without a limit may end at any time, so a job that borrows may delay the one that it passes: never by more than its
    /// own limit, and where nothing is known of a blocker's run time never by more than [`MAX_BORROWED`]. Of a predicted run time
    /// the lower end counts; once that has passed the job may end at any time, and by its likely end.
    fn likely_wait(&self, kept: &Reservation) -> Millis {
        let left = |record: &Record| match record.earliest_end() {
            _ if matches!(record.phase, Phase::Stopping | Phase::Suspending) => Millis::ZERO,
            end if end > self.now && end < Millis::MAX => end.minus(self.now),
            // As long again as it has run: what ran for long is seldom about to end.
            _ => {
                let likely = Some(record.likely_end()).filter(|end| *end > self.now);
                let left = likely.map_or(Millis::MAX, |end| end.minus(self.now));
                record.runtime(self.now).min(MAX_BORROWED).min(left)
            }
        };
        kept.blockers.iter().filter_map(|job| self.jobs.get(job)).map(left).max().unwrap_or(Millis::ZERO)
    }

    /// Time at which a job may use kept devices, if it is only too early for that.
    pub(crate) fn borrows_at(&self, kept: &Reservation, id: JobId) -> Option<Millis> {
        let takes = self.borrows_for(id).filter(|takes| kept.by.is_none() && *takes <= MAX_BORROWED)?;
        let runs = |record: &&Record| record.phase == Phase::Running && record.likely_end() == Millis::MAX;
        let blockers = kept.blockers.iter().filter_map(|job| self.jobs.get(job)).filter(runs);
        let at = |record: &Record| self.now.plus(takes.minus(record.runtime(self.now)));
        blockers.map(at).min().filter(|at| *at > self.now)
    }

    /// Returns true if the job for which a device is kept fits there beside this one, when the blockers have left.
    pub(crate) fn fits_beside(
        &self,
        kept: &Reservation,
        at: usize,
        ask: &Ask,
        whole: bool,
        scratch: &mut Scratch,
    ) -> bool {
        // What is only assumed of a job may turn out to leave too little.
        let assumed = self.settings.policy.predicts()
            && self.jobs.get(&ask.job).is_none_or(|record| record.job.activity.is_none());
        if !predictable(&self.settings) || whole || assumed {
            return false;
        }
        let dev = &self.devices[at];
        let newcomer = newcomer(ask, whole);
        let stay = dev.residents.iter().filter(|resident| !kept.blockers.contains(&resident.job));
        let host = self.nodes[dev.node].host.effect(kept.ask.host_use, kept.ask.priority);
        joins(&self.settings, dev, stay.chain(std::iter::once(&newcomer)), &kept.ask, &host, scratch).is_ok()
    }
}
