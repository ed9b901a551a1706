//! The reservation of the first job that cannot start: nobody who starts later takes from it what
//! it needs.

use std::collections::BTreeSet;

use crate::job::{HostNeed, JobId};
use crate::place::{Ask, Resident, Scratch, eligible, joins};
use crate::settings::{Memory, Settings};
use crate::state::State;
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
    /// When the last of them is gone by its enforced limit, if all have one.
    pub(crate) by: Option<Millis>,
    /// Which of the reservations so far this is; from 1.
    pub(crate) version: u64,
}

/// A machine for a job: when its last blocker is gone, how many there are, its index, devices, blockers.
type Candidate = (Millis, usize, usize, Vec<usize>, BTreeSet<JobId>);

/// Whether residents alone, without what a monitor sees, tell when there is room.
fn predictable(settings: &Settings) -> bool {
    settings.memory == Memory::Reserved && settings.preconditions.smact.is_none()
}

impl State {
    /// Where the job will find room first, as far as can be told. `None`: nowhere at present.
    pub(crate) fn reserve(&mut self, job: JobId) -> Option<Reservation> {
        let record = self.jobs.get(&job)?;
        let ask = record.ask(&self.settings, self.largest(record.job.model.as_deref()));
        let predictable = predictable(&self.settings);
        let mut best: Option<Candidate> = None;
        let mut scratch = std::mem::take(&mut self.scratch);
        for (index, node) in self.nodes.iter().enumerate() {
            if ask.node.is_some_and(|only| only != index) {
                continue;
            }
            let mut places: Vec<(Millis, usize, usize, Vec<JobId>)> = Vec::new();
            for &at in &node.devices {
                let dev = &self.devices[at];
                if dev.drained || !eligible(dev, &ask) {
                    continue;
                }
                let mut residents: Vec<(Millis, Resident)> =
                    dev.residents.iter().map(|r| (self.likely_end(r.job), *r)).collect();
                residents.sort_by_key(|(end, resident)| (*end, resident.job));
                let mut leave = 0;
                while leave < residents.len() {
                    let stay = residents[leave..].iter().map(|(_, resident)| resident);
                    if predictable && joins(&self.settings, dev, stay, &ask, &mut scratch).is_ok() {
                        break;
                    }
                    leave += 1;
                }
                let gone = &residents[..leave];
                let when = gone.iter().map(|(end, _)| *end).max().unwrap_or(Millis::ZERO);
                places.push((when, leave, at, gone.iter().map(|(_, resident)| resident.job).collect()));
            }
            if places.len() < ask.gpus {
                continue;
            }
            places.sort_by_key(|place| (place.0, place.1, place.2));
            places.truncate(ask.gpus);
            let mut blockers: BTreeSet<JobId> =
                places.iter().flat_map(|place| place.3.iter().copied()).collect();
            if !self.add_host_blockers(index, ask.host, &mut blockers) {
                continue;
            }
            let when = blockers.iter().map(|job| self.likely_end(*job)).max().unwrap_or(Millis::ZERO);
            let leave = blockers.len();
            if best.as_ref().is_none_or(|(best, count, ..)| (when, leave) < (*best, *count)) {
                let mut devices: Vec<usize> = places.iter().map(|place| place.2).collect();
                devices.sort_unstable();
                best = Some((when, leave, index, devices, blockers));
            }
        }
        self.scratch = scratch;
        let (_, _, node, devices, blockers) = best?;
        let ends = blockers.iter().map(|job| self.jobs.get(job).and_then(|record| record.enforced_end()));
        let by = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
        self.reservations += 1;
        Some(Reservation { ask, node, devices, blockers, by, version: self.reservations })
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

    /// Whether a job may be started on a device although it is kept for another one: that one must
    /// still fit beside it when the blockers have left, or it is surely gone by then.
    pub(crate) fn leaves_room(
        &self,
        reservation: &Reservation,
        at: usize,
        newcomer: Resident,
        limit: Option<Millis>,
        scratch: &mut Scratch,
    ) -> bool {
        if reservation.devices.binary_search(&at).is_err() {
            return true;
        }
        if let (Some(by), Some(limit)) = (reservation.by, limit)
            && self.now.plus(limit).plus(self.settings.eviction.kill_after) <= by
        {
            return true;
        }
        if !predictable(&self.settings) || newcomer.whole {
            return false;
        }
        let dev = &self.devices[at];
        let stay = dev.residents.iter().filter(|resident| !reservation.blockers.contains(&resident.job));
        let with = stay.chain(std::iter::once(&newcomer));
        joins(&self.settings, dev, with, &reservation.ask, scratch).is_ok()
    }
}
