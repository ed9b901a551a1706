//! Loads of jobs on GPUs that they have to themselves, reported to the scheduler.

use std::collections::HashMap;

use radrm_base::SeenActivity;
use radrm_protocol::wire::ActivitySource;
use radrm_scheduler_core::{Bytes, Event, JobId, JobObservation};

use super::Engine;
use crate::gpus::Sample;
use crate::load;
use crate::pace::Company;
use crate::store::Entry;
use crate::suspend::Step;

impl Engine {
    /// Company of a job on its GPUs.
    pub(super) fn company(&self, job: &Entry, running: &[&Entry]) -> Company {
        let meets = |other: &&&Entry| other.devices.iter().any(|device| job.devices.contains(device));
        match running.iter().filter(|other| other.id != job.id).find(meets) {
            _ if self.slots.concerns(job.id) => Company::HeldBack,
            Some(_) => Company::Others,
            None => Company::Alone,
        }
    }

    /// Jobs with GPUs, and whether each is alone on them and may do what it likes there, as far as the daemon knows.
    fn alone(&self) -> Vec<(u64, bool)> {
        let running = self.jobs.on_gpus();
        let alone = |job: &Entry| {
            job.suspension.step == Step::Running
                && self.company(job, &running) == Company::Alone
                && self.node.unmanaged().iter().all(|found| !job.devices.contains(&found.gpu))
        };
        running.iter().filter(|job| !job.devices.is_empty()).map(|job| (job.id, alone(job))).collect()
    }

    /// Reads what jobs launched that are alone.
    pub(super) fn measure_loads(&mut self) {
        let now = self.now.mono;
        for (job, is_alone) in self.alone() {
            let Some((entry, live)) = self.jobs.live_with_entry(job) else { continue };
            let observed = &mut live.observed;
            if !is_alone {
                observed.loads.values_mut().for_each(load::Load::pause);
                continue;
            }
            let due =
                entry.devices.iter().any(|uuid| observed.loads.get(uuid).is_none_or(|load| load.is_due(now)));
            if !due {
                continue;
            }
            let read = self.read_times.read(entry.uid, now, |time| observed.work(time));
            let Some(mut seen) = read else { continue };
            for uuid in &entry.devices {
                let gpu = self.node.gpus().list.iter().find(|gpu| gpu.uuid == *uuid);
                let mine =
                    gpu.and_then(|gpu| seen.as_mut().map(|seen| seen.remove(&gpu.bytes).unwrap_or_default()));
                observed.loads.entry(uuid.clone()).or_default().observe(now, mine);
            }
            self.report_load(job);
        }
    }

    /// Counters of a GPU are those of the job that has it to itself.
    pub(super) fn count_loads(&mut self, samples: &[Sample]) {
        // Counters of a GPU with modelled time set that time against the host's.
        let samples: Vec<&Sample> = samples.iter().filter(|sample| !sample.is_modelled).collect();
        let now = self.now.mono;
        let alone = self.alone();
        for (job, _) in alone.into_iter().filter(|(_, is_alone)| *is_alone) {
            let Some((entry, live)) = self.jobs.live_with_entry(job) else { continue };
            for uuid in &entry.devices {
                let sample = samples.iter().find(|sample| sample.uuid == *uuid);
                if let Some([Some(smact), Some(smocc), Some(drama)]) = sample.map(|sample| sample.activity) {
                    live.observed.loads.entry(uuid.clone()).or_default().count(now, [smact, smocc, drama]);
                }
            }
        }
    }

    /// Fills in the activity of the jobs on each GPU by their timed launches, for GPUs that nothing else measures: the sum of what each
    /// did lately, or alone where that is not known. `None` parts where that is not known of all of them, or others use the GPU too.
    pub(super) fn by_launches(&self, samples: &mut [Sample]) {
        let now = self.now.mono;
        let on_gpus = self.jobs.on_gpus();
        for sample in samples.iter_mut().filter(|sample| sample.activity[0].is_none()) {
            let jobs: Vec<&&Entry> =
                on_gpus.iter().filter(|entry| entry.devices.contains(&sample.uuid)).collect();
            let is_shared = self.node.unmanaged().iter().any(|found| found.gpu == sample.uuid);
            if jobs.is_empty() || is_shared {
                continue;
            }
            let loads: Option<Vec<&load::Load>> =
                jobs.iter().map(|entry| self.jobs.live(entry.id)?.observed.loads.get(&sample.uuid)).collect();
            let Some(loads) = loads else { continue };
            let Some(all) = load::together(&loads, now, sample.utilization) else { continue };
            let sum = |at: usize| all.iter().map(|parts| parts[at]).sum::<Option<f64>>();
            sample.activity = [0, 1, 2].map(|at| sum(at).map(|sum| sum.min(1.0)));
            sample.source = sample.activity[0].map(|_| ActivitySource::Launches);
        }
    }

    /// Reports to the scheduler what changed.
    fn report_load(&mut self, job: u64) {
        let assumed = self.config.scheduler.assumed;
        let Some(live) = self.jobs.live_mut(job) else { return };
        let observed = &mut live.observed;
        let peak = Bytes(observed.peak);
        // What it holds was forgotten and not found again yet: it is not nothing.
        if observed.used.is_empty() && observed.peak > 0 {
            return;
        }
        let news: Vec<(String, SeenActivity)> =
            observed.loads.iter_mut().filter_map(|(uuid, load)| Some((uuid.clone(), load.news()?))).collect();
        let used: HashMap<String, u64> = observed.used.clone().into_iter().collect();
        let all: Vec<SeenActivity> = observed.loads.values().filter_map(load::Load::reported).collect();
        let Some((last, false)) = all.last().map(|last| (*last, news.is_empty())) else { return };
        // Where it has several GPUs, the busiest is what matters to neighbours.
        let busiest = all.into_iter().max_by_key(|activity| activity.smact).unwrap_or(last);
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.activity = Some(busiest);
        }
        self.touch(job);
        for (uuid, activity) in news {
            let Some(device) = self.node.device(&uuid) else { continue };
            let used = Bytes(used.get(&uuid).copied().unwrap_or_default());
            let activity = Some(activity.with_usual(assumed));
            let seen = JobObservation { used, peak, activity, ..JobObservation::default() };
            self.step(Event::JobObserved { job: JobId(job), device, seen });
        }
    }
}
