//! Jobs on their way off their devices and back.

use super::{Sim, What};
use crate::device::DeviceId;
use crate::event::Event;
use crate::job::{JobId, Preemption};
use crate::policy::DeviceUse;
use crate::units::Millis;

impl Sim<'_> {
    /// Reports that a job can be suspended, once it uses a GPU, as in the daemon.
    pub(super) fn show_suspend(&mut self, job: u32) {
        let suspend = self.preemption(job).suspend;
        if suspend.is_ok() {
            self.step(Event::SuspendKnown { job: JobId(job.into()), suspend });
        }
    }

    /// Preemption of a job: as the trace states it, but by suspension under a policy that takes devices back.
    pub(super) fn preemption(&self, job: u32) -> Preemption {
        let from = self.trace[job as usize].preemption;
        match self.options.settings.policy.rules().device_use() == DeviceUse::Preemptive {
            true => Preemption { allowed: true, suspend: Ok(()), ..from },
            false => from,
        }
    }

    pub(super) fn freeze(&mut self, job: u32) {
        self.settle_devices(job);
        if let Some(run) = self.runs.get_mut(&job) {
            run.left -= run.speed * self.now.minus(run.at).0 as f64;
            run.at = self.now;
            run.active = false;
            run.speed = 0.0;
            run.generation += 1;
            self.population_changed(job);
        }
    }

    pub(super) fn suspended(&mut self, job: u32, attempt: u32) {
        self.settle_devices(job);
        let Some(run) = self.runs.get_mut(&job).filter(|run| run.attempt == attempt) else { return };
        run.suspended = Some(self.now);
        let devices = std::mem::take(&mut run.devices);
        let bytes = run.used;
        for &at in &devices {
            let gpu = &mut self.gpus[at];
            gpu.jobs.retain(|other| *other != job);
            gpu.used = gpu.used.minus(bytes);
        }
        for at in devices {
            self.recompute(at);
        }
        self.step(Event::Suspended { job: JobId(job.into()), attempt, bytes });
    }

    pub(super) fn resume(&mut self, job: u32, devices: &[DeviceId]) {
        let devices: Vec<usize> = devices.iter().filter_map(|id| self.numbers.get(id).copied()).collect();
        let Some(run) = self.runs.get_mut(&job) else { return };
        run.speeds = vec![1.0; devices.len()];
        run.devices = devices.clone();
        let (attempt, bytes) = (run.attempt, run.used);
        for at in devices {
            self.gpus[at].jobs.push(job);
            self.gpus[at].used = self.gpus[at].used.plus(bytes);
        }
        self.push(self.now.plus(self.model.suspension(bytes)), What::Resumed { job, attempt });
    }

    pub(super) fn resumed(&mut self, job: u32, attempt: u32) {
        let Some(run) = self.runs.get_mut(&job).filter(|run| run.attempt == attempt) else { return };
        run.active = true;
        run.at = self.now;
        let away = run.suspended.take().map_or(Millis::ZERO, |since| self.now.minus(since));
        run.away = run.away.plus(away);
        self.step(Event::Resumed { job: JobId(job.into()), attempt });
        self.population_changed(job);
    }
}
