//! Figures of one process on one GPU.

use super::GPUS;
use crate::kind::TIMELINE_KINDS;
use crate::sync::AtomicU64;
use radrm_base::KIND_COUNT;

/// Allocations and releases of one kind on one GPU.
#[repr(C)]
#[derive(Debug)]
pub struct KindCounts {
    /// Allocations.
    pub allocs: AtomicU64,
    /// Releases.
    pub frees: AtomicU64,
}

/// Kinds that a lane has room for: a power of two, so that a look-up needs no multiplication.
pub const COUNTED_KINDS: usize = KIND_COUNT.next_power_of_two();

/// Allocations and releases that the thread of a lane has counted: one page. A process's figure is the sum over its
/// lanes and its account.
#[repr(C)]
#[derive(Debug)]
pub struct LaneCounts {
    /// By GPU, then by kind.
    pub gpus: [[KindCounts; COUNTED_KINDS]; GPUS],
}

/// The kinds at the moment of the peak of the total.
#[repr(C)]
#[derive(Debug)]
pub struct PeakCell {
    /// Odd: being written.
    pub seq: AtomicU64,
    /// Total that the kinds belong to.
    pub total: AtomicU64,
    /// Time of the peak, ns.
    pub ns: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 4],
    /// Bytes by kind.
    pub kinds: [AtomicU64; KIND_COUNT],
}

/// Figures of one process on one GPU.
///
/// Each part begins with a cache line. What every allocation and release changes is one line for all kinds of the device
/// total, so that threads which allocate at once take one line from each other; what they only read lies in another.
/// Allocations and releases write no bucket of the timeline: the first one after a bucket's end writes what has changed in it.
#[repr(C)]
#[derive(Debug)]
pub struct AccountCell {
    /// Device total now, bytes.
    pub total_now: AtomicU64,
    /// Bytes now, by kind.
    pub now: [AtomicU64; KIND_COUNT],
    /// Unused.
    pub spare0: [AtomicU64; 6],
    /// Bit n: chunk n of the timeline is allocated.
    pub chunks: AtomicU64,
    /// Watermarks of ranges that an allocation raises, a bit each: see [`crate::ranges`].
    pub watermarks: [AtomicU64; 2],
    /// Largest device total, bytes.
    pub total_peak: AtomicU64,
    /// Most bytes, by kind.
    pub peak: [AtomicU64; KIND_COUNT],
    /// Bucket of the timeline that changes are counted in.
    pub open: AtomicU64,
    /// End of that bucket, ns; 0: none is open yet.
    pub until: AtomicU64,
    /// Unused.
    pub spare1: AtomicU64,
    /// Allocations and releases that no lane has counted, by kind.
    pub counts: [KindCounts; KIND_COUNT],
    /// Failed requests.
    pub failed: AtomicU64,
    /// 1 when the post-mortems are allocated.
    pub postmortems: AtomicU64,
    /// Number of times that the peak was raised while call stacks were recorded.
    pub peak_epoch: AtomicU64,
    /// Time on the GPU from the first timed launch to the end of the last one, ns.
    pub timed_span_ns: AtomicU64,
    /// Contexts now.
    pub contexts: AtomicU64,
    /// Requests for the GPU's memory that had been granted when one was last refused for lack of it, plus 1; 0: none was.
    pub granted_at_refusal: AtomicU64,
    /// At the peak.
    pub at_peak: PeakCell,
    /// Bytes by kind up to which changes are in the timeline's buckets.
    pub settled: [AtomicU64; TIMELINE_KINDS],
    /// Unused.
    pub spare2: [AtomicU64; 56 - TIMELINE_KINDS],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<LaneCounts>() == super::PAGE);
    assert!(size_of::<PeakCell>() == 128);
    assert!(size_of::<AccountCell>() == 1024);
    assert!(offset_of!(AccountCell, now) == 8 && offset_of!(AccountCell, chunks) == 128);
    assert!(offset_of!(AccountCell, counts) == 256 && offset_of!(AccountCell, at_peak) == 448);
    assert!(offset_of!(AccountCell, settled) == 576);
};
