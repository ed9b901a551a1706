//! What jobs hold of their devices over time.

use super::Sim;
use crate::device::JobObservation;
use crate::event::Event;
use crate::job::JobId;
use crate::outcome::{Evidence, Outcome};
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
        if last {
            let unknown = self.state.job(JobId(job.into())).is_some_and(|view| view.job.need.is_none());
            let devices = self.runs.get(&job).map(|run| run.devices.clone()).unwrap_or_default();
            for at in devices.into_iter().filter(|_| unknown) {
                let seen = JobObservation { used: peak, peak, ..JobObservation::default() };
                self.step(Event::JobObserved { job: JobId(job.into()), device: self.ids[at], seen });
            }
        }
    }

    /// The job asks for memory up to `total` on each device. False: it ran out and is over.
    pub(super) fn take(&mut self, job: u32, total: Bytes) -> bool {
        let Some(run) = self.runs.get(&job) else { return false };
        let room = run.devices.iter().map(|at| self.gpus[*at].capacity.minus(self.gpus[*at].used)).min();
        let most = run.used.plus(room.unwrap_or(Bytes::MAX)).min(run.limit.unwrap_or(Bytes::MAX));
        let more = total.minus(run.used);
        if total > most {
            self.results[job as usize].ooms += 1;
            self.over(job, Outcome::OutOfMemory { seen: total, evidence: Evidence::Shim, code: 1 });
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
