//! Devices come, go and are seen.

use radrm_base::HostUse;

use super::{NodeState, State, Timer};
use crate::action::{Decision, Signal, Verdict};
use crate::device::{Device, DeviceId, JobObservation, Node, NodeId, Observation};
use crate::host::HostJobs;
use crate::interference::{Activity, Resident as Neighbour, Sharer};
use crate::job::JobId;
use crate::leaving::After;
use crate::partitions;
use crate::place::Dev;
use crate::reason::{Basis, Reason};
use crate::settings::Memory;
use crate::sharing_mode::SharingMode;
use crate::state::record::{Phase, Record, Step, Stop};
use crate::units::{Bytes, Millis, Permille};

/// Jobs are not taken to be slower than this where what they would do alone follows from their speed.
pub(super) const MIN_SPEED: f64 = 0.01;

impl State {
    pub(super) fn add_node(&mut self, node: Node) {
        let at = self.node_index(node.id);
        self.nodes[at].bound = Some(node);
        self.nodes[at].host.bound(node.cpu_milli, node.memory_bandwidth);
        self.pass_due = true;
    }

    fn node_index(&mut self, id: NodeId) -> usize {
        if let Some(&at) = self.node_numbers.get(&id) {
            return at;
        }
        let at = self.nodes.len();
        self.nodes.push(NodeState {
            bound: None,
            cpu_milli: 0,
            memory: Bytes::ZERO,
            devices: Vec::new(),
            host: HostJobs::default(),
        });
        self.node_numbers.insert(id, at);
        at
    }

    pub(super) fn add_device(&mut self, device: Device) {
        let node = self.node_index(device.node);
        let known = self.numbers.get(&device.id).copied();
        if let Some(at) = known {
            // A device that was lost and is back; its jobs of then may still be on their way out.
            if !self.devices[at].lost {
                return;
            }
            self.lost -= 1;
            self.devices[at].lost = false;
            self.devices[at].seen = Observation::unmeasured(Bytes::ZERO);
            self.devices[at].foreign = Bytes::ZERO;
            let instances = self.instances_of(device.id);
            match (std::mem::replace(&mut self.devices[at].instances, instances), instances) {
                (0, 1..) => self.count_size(at, -1),
                (1.., 0) => self.count_size(at, 1),
                _ => {}
            }
            self.changed(at);
            return self.take_up_aside();
        }
        let at = self.devices.len();
        let instances = self.instances_of(device.id);
        self.numbers.insert(device.id, at);
        self.nodes[node].devices.push(at);
        let predictor = self.sharing.of(&device.model);
        self.devices.push(Dev {
            node,
            drained: false,
            lost: false,
            instances,
            residents: Vec::new(),
            seen: Observation::unmeasured(Bytes::ZERO),
            foreign: Bytes::ZERO,
            settled: Millis::ZERO,
            predictor,
            outside: self.outside.clone(),
            spec: device,
        });
        if instances == 0 {
            self.count_size(at, 1);
        }
        let parent = self.devices[at].spec.parent.and_then(|parent| self.numbers.get(&parent)).copied();
        if let Some(parent) = parent {
            self.devices[parent].instances += 1;
            if self.devices[parent].instances == 1 {
                self.count_size(parent, -1);
            }
        }
        self.changed(at);
        self.take_up_aside();
    }

    /// Instances a GPU is divided into. One that is lost does not make it whole again: only when
    /// the GPU itself comes back is it asked anew.
    fn instances_of(&self, id: DeviceId) -> u32 {
        let children = self.devices.iter().filter(|dev| dev.spec.parent == Some(id) && !dev.lost);
        u32::try_from(children.count()).unwrap_or(u32::MAX)
    }

    /// Counts the devices of each size that take jobs, lost ones too: `by` is 1 or -1.
    fn count_size(&mut self, at: usize, by: i64) {
        let spec = &self.devices[at].spec;
        let sized = (spec.model.clone(), spec.capacity);
        let number = self.sizes.entry(sized.clone()).or_default();
        *number = u32::try_from(i64::from(*number) + by).unwrap_or(0);
        if *number == 0 {
            self.sizes.remove(&sized);
        }
    }

    pub(super) fn lose_device(&mut self, device: DeviceId, out: &mut Vec<Decision>) {
        let Some(&at) = self.numbers.get(&device) else { return };
        if self.devices[at].lost {
            return;
        }
        self.devices[at].lost = true;
        self.lost += 1;
        self.set_lost_aside();
        if self.reservation.as_ref().is_some_and(|reservation| reservation.devices.contains(&at)) {
            self.reservation = None;
        }
        self.pass_due = true;
        let jobs: Vec<JobId> = self.devices[at].residents.iter().map(|resident| resident.job).collect();
        for job in jobs {
            let Some(record) = self.jobs.get_mut(&job) else { continue };
            // A job that is to end for another reason still ends for that one.
            let is_final = |stop: &Stop| matches!(stop.then, After::End(_)) || !stop.is_unheard();
            let then = record.stop.filter(is_final).map_or(After::DeviceLost, |stop| stop.then);
            if !matches!(then, After::End(_)) {
                record.losses += 1;
            }
            record.phase = Phase::Stopping;
            record.stop = Some(Stop::new(record.stop, then, Step::Kill, Millis::MAX));
            self.signal(job, Signal::Kill, Reason::DeviceLost, out);
            self.set_timer(job);
        }
    }

    pub(super) fn drain_device(&mut self, device: DeviceId, drained: bool) {
        let Some(&at) = self.numbers.get(&device) else { return };
        self.devices[at].drained = drained;
        if drained && self.reservation.as_ref().is_some_and(|reservation| reservation.devices.contains(&at)) {
            self.reservation = None;
        }
        self.changed(at);
    }

    pub(super) fn observe_device(&mut self, device: DeviceId, seen: Observation, out: &mut Vec<Decision>) {
        let Some(&at) = self.numbers.get(&device) else { return };
        let dev = &mut self.devices[at];
        let before = dev.seen;
        dev.seen = seen;
        // Unmanaged processes hold what is in use beyond what our jobs hold. Of a job that was not seen yet
        // it is not known how much it holds already: up to all that is set aside for it.
        let ours: Bytes = dev
            .residents
            .iter()
            .map(|resident| if resident.used > Bytes::ZERO { resident.used } else { resident.claim })
            .sum();
        let mut foreign = seen.used.minus(ours);
        if self.settings.memory == Memory::Observed && !dev.residents.is_empty() {
            // Where needs are not added up, what is beyond them says nothing of unmanaged processes.
            foreign = foreign.min(dev.foreign);
        }
        let fell = |now: Option<Permille>, before: Option<Permille>| {
            now.is_some() && before.is_none_or(|before| now < Some(before))
        };
        let window = self.settings.preconditions.window;
        let better = foreign < dev.foreign
            || (self.settings.memory == Memory::Observed && seen.used < before.used)
            || (self.settings.preconditions.smact.is_some()
                && before.window < window
                && seen.window > before.window)
            || fell(seen.smact, before.smact)
            || fell(seen.peak, before.peak)
            || fell(seen.smocc, before.smocc)
            || fell(seen.drama, before.drama);
        dev.foreign = foreign;
        if better {
            self.changed(at);
        }
        self.relieve_memory(at, out);
        self.throttle(at, out);
    }

    pub(super) fn observe_job(
        &mut self,
        job: JobId,
        device: DeviceId,
        seen: JobObservation,
        out: &mut Vec<Decision>,
    ) {
        let Some(&at) = self.numbers.get(&device) else { return };
        let Some(record) = self.jobs.get_mut(&job) else { return };
        let Some(resident) = self.devices[at].residents.iter_mut().find(|resident| resident.job == job)
        else {
            return;
        };
        // Less in use than before makes room only where use counts beyond the claim.
        let freed = seen.used < resident.used && resident.used > resident.claim;
        resident.used = seen.used;
        record.peak = record.peak.max(seen.peak.max(seen.used));
        if seen.speed.is_some() {
            record.speed = seen.speed;
        }
        if freed {
            self.changed(at);
        }
        if let Some(part) = seen.activity {
            self.learn_activity(job, at, part);
        }
        if let Some(seen) = seen.host_use {
            self.learn_host_use(job, at, seen);
        }
        self.loosen_if_broken(job, out);
        self.throttle(at, out);
    }

    /// Learns the activity of a job of which nothing was known.
    /// The observed activity is lower than alone, by the speed that the neighbours leave it.
    fn learn_activity(&mut self, job: JobId, at: usize, part: Activity) {
        let residents = &self.devices[at].residents;
        let Some(index) = residents.iter().position(|resident| resident.job == job) else { return };
        let learns = |record: &&Record| record.job.activity.is_none() && record.phase == Phase::Running;
        if self.jobs.get(&job).filter(learns).is_none() {
            return;
        }
        let all: Vec<Neighbour> = residents.iter().map(|resident| resident.neighbour()).collect();
        let now = part.scaled(1.0 / self.speeds_on(at, &all)[index].max(MIN_SPEED));
        if let Some(record) = self.jobs.get_mut(&job) {
            record.shown = Some(now);
        }
        self.is_as_active(at, index, now, Basis::Measured);
        self.learn_of_program(job, at, now);
    }

    /// Speeds of jobs with these activities that would be the residents of a device.
    pub(super) fn speeds_on(&self, at: usize, all: &[Neighbour]) -> Vec<f64> {
        let dev = &self.devices[at];
        if let Some(outside) = &dev.outside {
            let mut speeds = Vec::new();
            outside.speeds_into(all, &mut speeds);
            return speeds;
        }
        let predicted = || dev.predictor.speeds(all).iter().map(|speed| speed.value).collect();
        match self.settings.sharing_of(dev.spec.id.0) {
            SharingMode::Mps => predicted(),
            SharingMode::TimeSlices => {
                let activities = all.iter().map(|neighbour| neighbour.activity);
                vec![self.settings.time_slices.speed(activities); all.len()]
            }
            SharingMode::Partitions if dev.residents.iter().all(|resident| resident.share == 0) => {
                predicted()
            }
            SharingMode::Partitions => {
                let activities: Vec<Activity> = all.iter().map(|neighbour| neighbour.activity).collect();
                let shares: Vec<u32> = dev.residents.iter().map(|resident| resident.share).collect();
                let mut speeds = Vec::new();
                partitions::speeds(&activities, &shares, &self.settings.partitions, &mut speeds);
                speeds
            }
        }
    }

    /// A resident has this activity, on this basis.
    pub(super) fn is_as_active(&mut self, at: usize, index: usize, now: Activity, basis: Basis) {
        // Small changes decide nothing; a scheduling pass for each would cost time.
        let moved = |a: Permille, b: Permille| a.0.abs_diff(b.0) >= 20;
        let resident = &mut self.devices[at].residents[index];
        resident.basis = basis;
        let before = resident.activity;
        if moved(before.smact, now.smact) || moved(before.drama, now.drama) {
            resident.activity = now;
            self.changed(at);
        }
    }

    /// Learns the host use of a job of which nothing was known.
    fn learn_host_use(&mut self, job: JobId, at: usize, seen: HostUse) {
        let Some(record) = self.jobs.get_mut(&job).filter(|record| record.job.host_use.is_none()) else {
            return;
        };
        record.host_shown = Some(seen);
        let node = self.devices[at].node;
        if self.nodes[node].host.set(job, record.job.priority, Some(seen)) {
            self.node_changed(node);
        }
    }

    /// Another job may find another place on this node now.
    pub(super) fn node_changed(&mut self, node: usize) {
        for at in self.nodes[node].devices.clone() {
            self.changed(at);
        }
    }

    /// Jobs were seen to share a device of this model.
    pub(super) fn observe_sharing(&mut self, model: &str, jobs: &[Sharer]) {
        let Some(predictor) = self.sharing.observe(model, jobs) else { return };
        for at in 0..self.devices.len() {
            if self.devices[at].spec.model == model {
                self.devices[at].predictor = predictor.clone();
                // A job may pay there now that did not before.
                self.changed(at);
            }
        }
    }

    /// No other job for a while, where free memory is what a monitor sees.
    pub(super) fn settle(&mut self, at: usize) {
        if self.settings.memory == Memory::Observed {
            let until = self.now.plus(self.settings.preconditions.settle);
            self.devices[at].settled = until;
            self.timers.insert((until, Timer::Device(at)));
        }
    }

    /// Jobs that have a part of a machine.
    pub(crate) fn jobs_on(&self, node: usize) -> std::collections::BTreeSet<JobId> {
        let devices = self.nodes[node].devices.iter();
        let residents =
            devices.flat_map(|at| self.devices[*at].residents.iter().map(|resident| resident.job));
        let host = self.host_jobs.iter().filter(|(_, at)| **at == node).map(|(job, _)| *job);
        residents.chain(host).collect()
    }

    /// Ends a job that is not on any device.
    pub(super) fn remove(&mut self, job: JobId, verdict: Verdict, reason: Reason, out: &mut Vec<Decision>) {
        self.unqueue(job);
        self.gathering.remove(&job);
        if let Some(mut record) = self.jobs.remove(&job) {
            let user = record.job.user;
            if let Some(jobs) = self.users.get_mut(&user) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.users.remove(&user);
                }
            }
            if let Some(at) = record.timer.take() {
                self.timers.remove(&(at, Timer::Job(job)));
            }
            if self.reservation.as_ref().is_some_and(|reservation| reservation.ask.job == job) {
                self.reservation = None;
                self.pass_due = true;
            }
            record.note(self.now, reason.clone());
            self.ended.push(record);
            out.push(Decision { action: crate::action::Action::End { job, verdict }, reason });
        }
    }
}
