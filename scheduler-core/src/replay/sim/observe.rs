//! Observations of the scheduler.
//! It observes devices by their monitor, jobs by their shims, and how jobs slow each other.

use super::{Sim, What};
use crate::device::{JobObservation, Observation};
use crate::event::Event;
use crate::interference::{Activity, Sharer};
use crate::job::JobId;
use crate::units::{Millis, Permille};

impl Sim<'_> {
    /// A monitor without a window reports each change.
    pub(super) fn observe_at_once(&mut self) {
        if self.monitored && self.model.window == Millis::ZERO {
            self.observe();
        }
    }

    /// The monitor's window is over: it reports the means over it, and the memory in use now.
    pub(super) fn observe(&mut self) {
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
            // A mean over the whole window of the published monitor.
            let [smact, smocc, drama] = [smact, smocc, drama].map(Some);
            gpu.observed = Observation { used: gpu.used, smact, smocc, drama, ..Observation::default() };
            self.report_device(at);
        }
    }

    /// The scheduler has the monitor's last report of a device. Whether a device is idle it knows at any time, so no
    /// old report counts for one that is.
    pub(super) fn report_device(&mut self, at: usize) {
        let gpu = &mut self.gpus[at];
        let seen = if gpu.jobs.is_empty() { Observation::default() } else { gpu.observed };
        if gpu.reported != seen {
            gpu.reported = seen;
            let device = self.ids[at];
            self.step(Event::DeviceObserved { device, seen });
        }
    }

    /// Returns true if the scheduler learns from jobs that run beside each other.
    /// That is so where it knows only what ended in the trace, activity is read, and the policy predicts.
    pub(super) fn learns_sharing(&self) -> bool {
        self.options.knowledge.learns()
            && self.model.read > Millis::ZERO
            && self.options.settings.policy.predicts()
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

    /// Activity is read: of a job that has a device to itself its own, of one beside others the sum of all there.
    pub(super) fn read(&mut self, job: u32, attempt: u32) {
        let Some(run) = self.runs.get(&job).filter(|run| run.attempt == attempt) else { return };
        let (activity, used) = (self.activity(job), run.used);
        let seen: Vec<_> = run.devices.iter().copied().zip(run.speeds.iter().copied()).collect();
        let is_active = run.active;
        for (at, speed) in seen.into_iter().filter(|_| is_active) {
            let device = self.ids[at];
            let jobs = self.gpus[at].jobs.clone();
            if jobs.len() < 2 {
                let (peak, activity) = (used, Some(activity.scaled(speed)));
                let seen = JobObservation { used, peak, activity, ..JobObservation::default() };
                self.step(Event::JobObserved { job: JobId(job.into()), device, seen });
            } else if jobs
                .iter()
                .all(|job| self.runs.get(job).is_some_and(|run| run.active && run.cap >= 1.0))
            {
                let gpu = &self.gpus[at];
                let [smact, smocc, drama] =
                    [gpu.smact, gpu.smocc, gpu.drama].map(|sum| Permille::from_fraction(sum.min(1.0)));
                let together = Activity { smact, smocc, drama };
                let own = |job: &u32| {
                    let run = &self.runs[job];
                    let place = run.devices.iter().position(|of| *of == at).unwrap_or_default();
                    self.activity(*job).scaled(run.speeds[place]).smact
                };
                let each = jobs.iter().map(own).collect();
                let jobs = jobs.iter().map(|job| JobId((*job).into())).collect();
                self.step(Event::CompanyObserved { device, jobs, together, each });
            }
        }
        self.push(self.now.plus(self.model.read), What::Read { job, attempt });
    }
}
