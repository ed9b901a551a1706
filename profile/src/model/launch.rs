//! Single launches that were timed: a sample of a process's launches.

use super::{GpuIndex, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// A launch that was timed. Which ones are kept is decided by time alone: a few of each span, and spans get longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedLaunch {
    /// Key of the process.
    pub process: ProcessKey,
    /// Number of the kernel within the process; `None`: a graph, whose kernels' time it is.
    pub kernel: Option<u32>,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Number of the stream within the process, by first use.
    pub stream: u32,
    /// The host's time before the launch: it did not begin earlier.
    pub launched: Nanos,
    /// From then until the host found it to be over.
    pub seen_after: Nanos,
    /// Time on the GPU.
    pub duration: Nanos,
    /// Its end on the GPU's clock, since the first timing in its context, as far as that is known.
    pub end: Option<Nanos>,
    /// Distinguishes the contexts of a process: their clocks begin at different times.
    pub context: u16,
    /// Blocks; 0 for a graph.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub dynamic_shared: Bytes,
}
