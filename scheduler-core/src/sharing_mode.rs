//! Ways in which the programs of several jobs share a GPU, and how fast they are where the driver gives them slices of time in turn.

use serde::{Deserialize, Serialize};

use crate::interference::Activity;

/// Mode in which jobs share a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// NVIDIA's Multi-Process Service: kernels of several processes run at the same time.
    #[default]
    Mps,
    /// Plain processes: the driver gives each a slice of time in turn.
    TimeSlices,
    /// The Multi-Process Service with SM partitions: a job that states a share has SMs of its own, and one that states none has
    /// what is left where a GPU is divided.
    Partitions,
}

/// Constants of time slices. A job keeps a GPU busy for the part `base + slope * SM activity` of the time, at most all of it; where
/// those parts add up to more than the whole, all jobs slow down in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeSlices {
    /// Part of the time in which a job of no SM activity keeps a GPU busy.
    pub base: f64,
    /// Addition at full SM activity.
    pub slope: f64,
    /// Part of the time that changes from one process to another cost.
    pub switch: f64,
}

impl Default for TimeSlices {
    /// Chosen so that blind round-robin costs about the energy that the thesis published for it on 4 A100; not measured.
    fn default() -> Self {
        Self { base: 0.75, slope: 0.35, switch: 0.05 }
    }
}

impl TimeSlices {
    /// Speed of each job on a GPU with these activities, against running alone.
    pub(crate) fn speed(&self, jobs: impl ExactSizeIterator<Item = Activity>) -> f64 {
        if jobs.len() < 2 {
            return 1.0;
        }
        let busy = |job: Activity| (self.base + self.slope * job.smact.fraction()).clamp(0.0, 1.0);
        let sum: f64 = jobs.map(busy).sum();
        (1.0 - self.switch).clamp(0.0, 1.0) / sum.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Permille;

    #[test]
    fn busy_jobs_halve_each_other_and_light_ones_pass() {
        let job = |smact| Activity { smact: Permille(smact), ..Activity::default() };
        let slices = TimeSlices::default();
        let gain =
            |jobs: &[u32]| slices.speed(jobs.iter().map(|smact| job(*smact))) * jobs.len() as f64 - 1.0;
        assert!(gain(&[800, 800]) < 0.0, "{}", gain(&[800, 800]));
        assert!(gain(&[20, 20]) > 0.2, "{}", gain(&[20, 20]));
        assert_eq!(slices.speed([job(900)].into_iter()), 1.0);
    }
}
