//! Samples of NVML, and events.

use super::{GpuIndex, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// One sample of a GPU by NVML. Where samples were thinned, the one with the
/// most memory in use of its span was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlSample {
    /// Time of the sample.
    pub t: Nanos,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Memory in use, by anybody.
    pub used: Bytes,
    /// The device's memory.
    pub total: Bytes,
    /// Share of the last sampling period in which a kernel ran, percent.
    pub utilization: Option<u8>,
    /// Share in which memory was read or written, percent.
    pub memory_utilization: Option<u8>,
    /// Power, milliwatt.
    pub power_mw: Option<u32>,
    /// Temperature, degrees Celsius.
    pub temperature: Option<u32>,
    /// Memory of this job's processes.
    pub processes: Vec<ProcessUse>,
    /// Memory of all other processes that NVML lists.
    pub others: Bytes,
    /// Number of those processes.
    pub others_count: u32,
}

/// Memory of a process on a GPU as NVML states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Process id.
    pub pid: u32,
    /// Its memory; `None` where the driver does not report it.
    pub used: Option<Bytes>,
}

/// A rare, notable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time of the sample.
    pub t: Nanos,
    /// Process of the event.
    pub process: ProcessKey,
    /// The GPU, if it concerns one.
    pub gpu: Option<GpuIndex>,
    /// Kind of event.
    pub kind: EventKind,
}

/// Kind of event. Unknown numbers are kept as they are, so that a newer shim can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A process joined the job.
    Joined,
    /// A context was made.
    ContextCreated,
    /// A context was destroyed.
    ContextDestroyed,
    /// A module or library was loaded.
    ModuleLoaded,
    /// A graph was made ready to run.
    GraphInstantiated {
        /// Nodes that launch kernels.
        kernels: u64,
    },
    /// A large block was allocated.
    Allocated {
        /// Number of its [`super::Kind`].
        kind: u8,
        /// Its size.
        size: Bytes,
    },
    /// A large block was freed.
    Freed {
        /// Number of its [`super::Kind`].
        kind: u8,
        /// Its size.
        size: Bytes,
    },
    /// A memory request was refused.
    Refused {
        /// Number of the [`super::Kind`] asked for.
        kind: u8,
        /// Size asked for.
        size: Bytes,
    },
    /// Something this version has no name for.
    Other {
        /// Its number.
        number: u32,
        /// Its value.
        value: u64,
    },
}
