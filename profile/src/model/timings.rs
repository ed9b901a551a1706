//! Times of launches on the GPU, and copies.

use super::{GpuIndex, GpuTime, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Launches of a process on the GPU's clock, and its copies, since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Key of the process.
    pub key: ProcessKey,
    /// Kernels of which launches were timed, by id.
    pub kernels: Vec<KernelTime>,
    /// Time of all of them, those that are not listed included.
    pub gpu_time: GpuTime,
    /// Copies and memsets, by way.
    pub copies: Vec<Copies>,
    /// Time in use, per GPU.
    pub spans: Vec<TimedSpan>,
    /// Timed launches whose time was lost.
    pub lost: u64,
    /// Time that the host spent on timing.
    pub cost: Nanos,
}

/// Time of a kernel on the GPU, over all its launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelTime {
    /// Number of the kernel within the process.
    pub id: u32,
    /// Estimate of the total.
    pub total: Nanos,
    /// Half the width of its 95 % confidence interval.
    pub half_width: Nanos,
    /// Launches that were timed.
    pub samples: u64,
}

/// Copies of one way, or memsets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// The way: `host_to_device`, `device_to_host`, `device_to_device`, `peer`,
    /// `host_to_host`, `unspecified` (the driver went by the addresses) or
    /// `memset`.
    pub way: String,
    /// Number of copies or memsets.
    pub count: u64,
    /// Bytes, each copied byte once.
    pub bytes: Bytes,
}

/// Time on one GPU, by the GPU's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedSpan {
    /// The GPU.
    pub gpu: GpuIndex,
    /// From the first timed launch to the end of the last launch; what came after the latest timed one is estimated.
    pub span: Nanos,
    /// The part that is not estimated: to the end of the latest timed launch; zero if it is not known.
    pub timed: Nanos,
}

impl Timings {
    /// Launches that were timed.
    pub fn samples(&self) -> u64 {
        self.kernels.iter().fold(0, |sum, kernel| sum.saturating_add(kernel.samples))
    }

    /// The time of a kernel.
    pub fn kernel(&self, id: u32) -> Option<&KernelTime> {
        self.kernels.binary_search_by_key(&id, |kernel| kernel.id).ok().and_then(|at| self.kernels.get(at))
    }

    /// Returns true if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty() && self.copies.is_empty()
    }
}
