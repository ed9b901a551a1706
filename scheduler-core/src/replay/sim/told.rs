//! What the scheduler is told: by the monitor of devices, by the shim of jobs, by runs that ended.

use super::{Knowledge, Sim, What};
use crate::device::{JobObservation, Observation};
use crate::event::Event;
use crate::interference::Sharer;
use crate::job::JobId;
use crate::units::{Millis, Permille};

impl Sim<'_> {
    /// A monitor without a window sees each change.
    pub(super) fn seen_at_once(&mut self) {
        if self.monitored && self.model.window == Millis::ZERO {
            self.tell();
        }
    }

    /// The monitor's window is over: it tells the means over it, and the memory in use now.
    pub(super) fn tell(&mut self) {
        for at in 0..self.gpus.len() {
            self.settle(at);
            let gpu = &mut self.gpus[at];
            let window = self.model.window.0 as f64;
            let mean = if self.model.window == Millis::ZERO {
                [gpu.smact, gpu.smocc, gpu.drama]
            } else {
                std::mem::take(&mut gpu.window).map(|sum| sum / window)
            };
            let [smact, smocc, drama] = mean.map(Permille::from_fraction);
            gpu.told = Observation { used: gpu.used, smact, smocc, drama };
            self.feed(at);
        }
    }

    /// The scheduler knows of a device what the monitor told last. Whether a device is idle is seen
    /// at any time, so nothing old is told of one that is.
    pub(super) fn feed(&mut self, at: usize) {
        let gpu = &mut self.gpus[at];
        let seen = if gpu.jobs.is_empty() { Observation::default() } else { gpu.told };
        if gpu.fed != seen {
            gpu.fed = seen;
            let device = self.ids[at];
            self.step(Event::DeviceObserved { device, seen });
        }
    }

    /// Whether it is told how jobs slow each other: where nothing was measured before, and of what runs.
    pub(super) fn learns_sharing(&self) -> bool {
        self.options.knowledge == Knowledge::Learned
            && self.model.read > Millis::ZERO
            && self.options.settings.policy.rules().predicts()
    }

    /// The jobs on a device have run beside each other for a while: their launch rates against those of earlier runs
    /// of their programs, if each had one.
    pub(super) fn read_rates(&mut self, at: usize, company: u32) {
        if self.gpus[at].company != company {
            return;
        }
        let jobs = self.gpus[at].jobs.iter().filter(|job| self.runs.get(job).is_some_and(|run| run.active));
        let sharer = |job: &u32| {
            let run = &self.runs[job];
            let place = run.devices.iter().position(|device| *device == at)?;
            let known = self.state.job(JobId((*job).into()))?.job;
            // What a budget holds back says nothing of neighbours.
            (run.cap >= 1.0 && self.has_run(*job)).then_some(())?;
            let speed = Permille::from_fraction(run.speeds[place]);
            Some(Sharer { program: known.program?, activity: known.activity?, speed })
        };
        let Some(jobs) = jobs.map(sharer).collect::<Option<Vec<_>>>() else { return };
        let model = self.models[at].clone();
        self.step(Event::SharingObserved { model, jobs });
    }

    pub(super) fn read(&mut self, job: u32, attempt: u32) {
        let Some(run) = self.runs.get(&job).filter(|run| run.attempt == attempt) else { return };
        let (activity, used, active) = (self.activity(job), run.used, run.active);
        let seen: Vec<_> = run.devices.iter().copied().zip(run.speeds.iter().copied()).collect();
        for (at, speed) in seen.into_iter().filter(|_| active) {
            let device = self.ids[at];
            let seen = JobObservation {
                used,
                peak: used,
                activity: Some(activity.scaled(speed)),
                ..Default::default()
            };
            self.step(Event::JobObserved { job: JobId(job.into()), device, seen });
        }
        self.push(self.now.plus(self.model.read), What::Read { job, attempt });
    }
}
