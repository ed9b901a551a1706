//! Devices jobs are placed on, and what is seen of them.

use std::fmt;

use radrm_base::HostUse;
use serde::{Deserialize, Serialize};

use crate::interference::Activity;
use crate::units::{Bytes, Millis, Permille};

/// A device: a GPU or a MIG instance, by a number that the caller gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A machine: the devices of one job are all on the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// A machine's resources beside its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Thousandths of CPU cores.
    pub cpu_milli: u64,
    /// Host memory for jobs.
    pub memory: Bytes,
    /// Most memory traffic, bytes in a second; `None`: not known, so no job is predicted to be slowed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bandwidth: Option<u64>,
}

/// A GPU or a MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub id: DeviceId,
    /// Its machine. A node that was never announced has no bound on CPUs and memory.
    pub node: NodeId,
    /// Its model, as jobs may ask for it.
    pub model: String,
    /// Memory that jobs can use, contexts included.
    pub capacity: Bytes,
    /// The GPU this is a MIG instance of. A GPU with instances takes no jobs itself. Instances are
    /// used as they are found, never made or taken apart.
    pub parent: Option<DeviceId>,
    /// May several jobs be on it at once? Instances are usually used by one job.
    pub shared: bool,
}

/// Observation of a device by a monitor: means over its window, except for memory. Activities are `None` where nothing measures
/// them: a utilisation, which counts the time in which any kernel ran, is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Memory in use by anybody, now.
    pub used: Bytes,
    /// SM activity.
    pub smact: Option<Permille>,
    /// The highest sample of SM activity in the window.
    #[serde(default)]
    pub peak: Option<Permille>,
    /// Time for which the device has been observed since its jobs changed, no longer than the window.
    #[serde(default = "whole_window")]
    pub window: Millis,
    /// SM occupancy.
    pub smocc: Option<Permille>,
    /// DRAM activity.
    pub drama: Option<Permille>,
}

/// Logs without it have means over whole windows.
fn whole_window() -> Millis {
    Millis::MAX
}

/// A device that was measured, and is idle.
impl Default for Observation {
    fn default() -> Self {
        let idle = Some(Permille::ZERO);
        Self { used: Bytes::ZERO, smact: idle, peak: idle, window: whole_window(), smocc: idle, drama: idle }
    }
}

impl Observation {
    /// A device of which nothing but its memory is measured.
    #[must_use]
    pub const fn unmeasured(used: Bytes) -> Self {
        Self { used, smact: None, peak: None, window: Millis::ZERO, smocc: None, drama: None }
    }

    /// The same device when its last job has left, until its next observation: one that a monitor sees is taken to be idle.
    pub(crate) fn without_jobs(self) -> Self {
        if self.smact.is_some() { Self::default() } else { Self::unmeasured(Bytes::ZERO) }
    }
}

/// Metrics of one job on one of its devices, as a monitor saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobObservation {
    /// Memory it holds there, now.
    pub used: Bytes,
    /// Its highest so far.
    pub peak: Bytes,
    /// Its own speed against running alone, if that can be told.
    pub speed: Option<Permille>,
    /// Its own part of what the device does, in the company it has, if that can be told.
    pub activity: Option<Activity>,
    /// Host use where nothing there slows the job, if that can be determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_use: Option<HostUse>,
}
