//! `tiresias`: two queues by the GPU time that jobs got so far, each in the order of submission; jobs of the second give their
//! devices back as soon as one of the first waits.
//!
//! Gu, Chowdhury, Shin, Zhu, Jeon, Qian, Liu, Guo: Tiresias, NSDI '19 (discretized two-dimensional least attained service: GPU
//! time is running time by the number of GPUs; no run time is known). Each job has its GPUs to itself. The end of the first
//! queue is an operator's choice; an hour of GPU time is the example of the published simulator. Left out: promotion of jobs
//! that wait for long (off by default there), placement by the skew of a model's tensors (all GPUs of a machine are alike
//! here), and what a checkpoint costs: a replay takes all jobs for ones that can be suspended.

use super::{Candidate, DeviceUse, Fit, Rules, at_once};
use crate::settings::Settings;
use crate::units::Millis;

/// GPU time in the first queue.
const FIRST_QUEUE: Millis = Millis::from_secs(3600);

pub(super) struct Tiresias;

impl Rules for Tiresias {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (0, 0, place.id), score: place.idle() }
    }

    fn device_use(&self) -> DeviceUse {
        DeviceUse::Preemptive
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
        settings.order.demote_after = Some(FIRST_QUEUE);
    }
}
