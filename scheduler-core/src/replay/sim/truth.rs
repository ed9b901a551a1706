//! True behaviour of a job, whatever the scheduler knows of it.

use super::Sim;
use crate::interference::{Activity, Program};
use crate::policy::{DeviceUse, best_slices};
use crate::units::Permille;
use radrm_base::random::Rng;

impl Sim<'_> {
    /// The time until it holds its peak, ms.
    pub(super) fn ramp(&self, job: u32) -> u64 {
        let ramp = self.model.ramp.0 as f64;
        let by = self.model.ramp_jitter;
        let factor = self
            .options
            .seed
            .map_or(1.0, |seed| Rng::new(seed, 2_000_000_000 + u64::from(job)).between(1.0 - by, 1.0 + by));
        (ramp * factor) as u64
    }

    /// Speeds of jobs on one device, each with its activity and cap.
    pub(super) fn true_speeds(
        &self,
        at: usize,
        jobs: &[u32],
        activities: &[Activity],
        caps: &[f64],
        speeds: &mut Vec<f64>,
    ) {
        if self.options.settings.policy.rules().device_use() == DeviceUse::Sliced
            && let Some(found) = self.on_slices(at, jobs, activities)
        {
            *speeds = found;
            return;
        }
        self.model.speeds(activities, caps, self.gpus[at].part, speeds);
        if self.model.scatter > 1.0 && jobs.len() > 1 {
            self.model.scatter_into(activities, |one, other| self.scatter(jobs[one], jobs[other]), speeds);
        }
    }

    /// Speeds on slices that were made for these jobs: there they do not slow each other.
    fn on_slices(&self, at: usize, jobs: &[u32], activities: &[Activity]) -> Option<Vec<f64>> {
        let peaks = jobs.iter().map(|job| self.trace[*job as usize].peak);
        let all: Vec<_> = activities.iter().copied().zip(peaks).collect();
        best_slices(&all, self.gpus[at].capacity)
    }

    /// The factor on the slowdown of a job by another, of their programs and the seed alone.
    fn scatter(&self, job: u32, by: u32) -> f64 {
        let program = |job: u32| Program::named(&self.trace[job as usize].name).0;
        let pair = program(job).rotate_left(32) ^ program(by);
        let seed = self.options.seed.unwrap_or(0);
        self.model.scatter.powf(Rng::new(seed, pair).between(-1.0, 1.0))
    }

    pub(super) fn activity(&self, job: u32) -> Activity {
        let from = &self.trace[job as usize];
        from.activity.unwrap_or(match from.share {
            // A job that declares a part of a device uses that part.
            Some(share) => {
                Activity { smact: share, smocc: Permille(share.0 / 2), drama: Permille(share.0 / 2) }
            }
            None => self.model.unknown,
        })
    }
}
