//! Relation of the time of a job's GPUs to the host's time.

use serde::{Deserialize, Serialize};

/// Relation of the time that GPUs are at work to the host's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuClock {
    /// They are the same.
    #[default]
    Real,
    /// Kernels and copies have modelled durations, and waiting for them takes none of the host's time. Such durations
    /// can be set against each other; set against the host's time, as in load, power and what limits a job, they mean
    /// nothing.
    Modelled,
    /// Nothing is computed, so that nothing takes any time: a dry run.
    Absent,
}

impl GpuClock {
    /// Returns true if the times of GPUs and host can be set against each other.
    pub fn is_real(self) -> bool {
        self == Self::Real
    }
}
