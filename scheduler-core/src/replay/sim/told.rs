//! What the scheduler is told: by the monitor of devices, by the shim of jobs, by runs that ended.

use super::{Sim, What};
use crate::device::{JobObservation, Observation};
use crate::event::Event;
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
