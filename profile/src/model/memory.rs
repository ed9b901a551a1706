//! Memory of one process on one GPU: accounts, blocks, refusals, timeline.

use super::GpuIndex;
use crate::units::{Bytes, Nanos};
use radrm_base::{KIND_COUNT, Kind};
use serde::{Deserialize, Serialize};

/// Sum of the kinds that make up the device total.
pub fn device_total(kinds: &[Bytes; KIND_COUNT]) -> Bytes {
    Kind::DEVICE.iter().map(|kind| kinds[kind.index()]).sum()
}

/// One kind of memory in an [`Account`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindAccount {
    /// Held now.
    pub now: Bytes,
    /// Most that was ever held of this kind.
    pub peak: Bytes,
    /// Held of this kind at the moment when the device total peaked.
    pub at_peak: Bytes,
    /// Live blocks now.
    pub blocks: u64,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
}

/// Memory that one process holds on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The GPU.
    pub gpu: GpuIndex,
    /// Device total now.
    pub now: Bytes,
    /// Highest device total.
    pub peak: Bytes,
    /// Time at which it was reached.
    pub peak_at: Nanos,
    /// The kinds at the peak were read while other threads allocated: they
    /// need not add up to it. The peak itself is exact.
    pub kinds_approximate: bool,
    /// By kind; index with [`Kind::index`].
    pub kinds: [KindAccount; KIND_COUNT],
    /// Memory requests that the driver refused.
    pub failed: u64,
    /// Requests for the GPU's memory that were granted after one was last refused for lack of it; `None`: none was.
    pub granted_since_refusal: Option<u64>,
    /// Contexts on this GPU now.
    pub contexts: u32,
    /// Context overhead: memory that the driver itself takes for the process (its contexts, code), as it is charged
    /// under a quota, or else as known of the GPU's model where the process ended before it was measured.
    pub context_overhead: Option<Bytes>,
}

/// A live block of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Size.
    pub size: Bytes,
    /// Number of its [`Kind`].
    pub kind: u8,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Time of its allocation.
    pub since: Nanos,
}

/// A memory request that the driver refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// Time of the request.
    pub t: Nanos,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Number of the [`Kind`] asked for.
    pub kind: u8,
    /// The driver's entry point, such as `cuMemAlloc`.
    pub call: String,
    /// Size asked for.
    pub size: Bytes,
    /// Free memory that the driver reported, if it was asked.
    pub free: Option<Bytes>,
    /// The device's memory as the driver stated it then.
    pub total: Option<Bytes>,
    /// The driver's result code (2 = out of memory).
    pub result: u32,
}

/// The driver's result code for "out of memory".
pub const RESULT_OUT_OF_MEMORY: u32 = 2;

impl FailedRequest {
    /// True if the driver refused it for lack of memory.
    pub fn out_of_memory(&self) -> bool {
        self.result == RESULT_OUT_OF_MEMORY
    }
}

/// Memory of one process on one GPU over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The GPU.
    pub gpu: GpuIndex,
    /// By time, without overlaps. Spans in which nothing happened are absent:
    /// the last values of the point before hold.
    pub points: Vec<TimelinePoint>,
}

/// A span of time: the highest device total in it, and what was held when it
/// ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelinePoint {
    /// Start of the span.
    pub t: Nanos,
    /// Length of the span. Later spans are longer: the resolution is a
    /// constant share of the time that has passed.
    pub span: Nanos,
    /// Highest device total within the span (exact).
    pub max_total: Bytes,
    /// All kinds at that moment.
    pub at_max: [Bytes; KIND_COUNT],
    /// All kinds at the end of the span.
    pub last: [Bytes; KIND_COUNT],
}
