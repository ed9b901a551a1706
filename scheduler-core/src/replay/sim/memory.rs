//! Memory that jobs hold on their devices over time.

use super::Sim;
use crate::device::JobObservation;
use crate::event::Event;
use crate::job::JobId;
use crate::outcome::{Evidence, Outcome};
use crate::settings::Memory;
use crate::units::Bytes;

impl Sim<'_> {
    pub(super) fn memory(&mut self, job: u32, attempt: u32, last: bool) {
        if self.runs.get(&job).is_none_or(|run| run.attempt != attempt) {
            return;
        }
        let peak = self.trace[job as usize].peak;
        let part = Bytes((peak.0 as f64 * self.model.early) as u64);
        if !self.take(job, if last { peak } else { part }) {
            return;
        }
        let held = if last { peak } else { part };
        if self.shows(job, held, last) {
            let devices = self.runs.get(&job).map(|run| run.devices.clone()).unwrap_or_default();
            for at in devices {
                let seen = JobObservation { used: held, peak: held, ..JobObservation::default() };
                self.step(Event::JobObserved { job: JobId(job.into()), device: self.ids[at], seen });
            }
        }
    }

    /// Returns true if the memory that a job holds changes a decision.
    /// That is so if nothing was known of it, or if it is more than what is reserved. Where needs are not reserved the
    /// device's monitor alone shows it.
    fn shows(&self, job: u32, held: Bytes, last: bool) -> bool {
        let Some(view) = self.state.job(JobId(job.into())) else { return false };
        let is_reserved = self.options.settings.memory == Memory::Reserved;
        (last && view.job.need.is_none())
            || (is_reserved && view.reserved.is_some_and(|reserved| held > reserved))
    }

    /// The job asks for memory up to `total` on each device. False: it ran out and is over.
    pub(super) fn take(&mut self, job: u32, total: Bytes) -> bool {
        let Some(run) = self.runs.get(&job) else { return false };
        let room = run.devices.iter().map(|at| self.gpus[*at].capacity.minus(self.gpus[*at].used)).min();
        let most = run.used.plus(room.unwrap_or(Bytes::MAX)).min(run.limit.unwrap_or(Bytes::MAX));
        let more = total.minus(run.used);
        if total > most {
            // What is reserved for it was its own, so another job took from it.
            let reserved = self.state.job(JobId(job.into())).and_then(|view| view.reserved);
            let result = &mut self.results[job as usize];
            result.ooms += 1;
            result.harmed += u32::from(reserved.is_some_and(|reserved| total <= reserved));
            self.over(job, Outcome::OutOfMemory { seen: Some(total), evidence: Evidence::Shim, code: 1 });
            return false;
        }
        self.settle_devices(job);
        let Some(run) = self.runs.get_mut(&job) else { return false };
        run.used = run.used.plus(more);
        for at in run.devices.clone() {
            self.gpus[at].used = self.gpus[at].used.plus(more);
        }
        true
    }
}
