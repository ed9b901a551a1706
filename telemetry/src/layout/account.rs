//! Figures of one process on one GPU.

use crate::sync::AtomicU64;
use radrm_base::KIND_COUNT;

/// Figures of one kind of memory on one GPU: one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct KindCell {
    /// Bytes now.
    pub now: AtomicU64,
    /// Most bytes.
    pub peak: AtomicU64,
    /// Allocations.
    pub allocs: AtomicU64,
    /// Releases.
    pub frees: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 4],
}

/// The kinds at the moment of the peak of the total.
#[repr(C)]
#[derive(Debug)]
pub struct PeakCell {
    /// Odd: being written.
    pub seq: AtomicU64,
    /// Total that the kinds belong to.
    pub total: AtomicU64,
    /// When, ns.
    pub ns: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 4],
    /// Bytes by kind.
    pub kinds: [AtomicU64; KIND_COUNT],
}

/// Figures of one process on one GPU.
#[repr(C)]
#[derive(Debug)]
pub struct AccountCell {
    /// Device total now, bytes.
    pub total_now: AtomicU64,
    /// Largest device total, bytes.
    pub total_peak: AtomicU64,
    /// Bit n: chunk n of the timeline is allocated.
    pub chunks: AtomicU64,
    /// Failed requests.
    pub failed: AtomicU64,
    /// Watermarks of ranges that an allocation raises, a bit each: see [`crate::ranges`].
    pub watermarks: [AtomicU64; 2],
    /// 1 when the post-mortems are allocated.
    pub postmortems: AtomicU64,
    /// How often the peak was raised while call stacks were recorded.
    pub peak_epoch: AtomicU64,
    /// By kind.
    pub kinds: [KindCell; KIND_COUNT],
    /// At the peak.
    pub at_peak: PeakCell,
    /// Time on the GPU from the first timed launch to the end of the last one, ns.
    pub timed_span_ns: AtomicU64,
    /// Contexts now.
    pub contexts: AtomicU64,
    /// Requests for the GPU's memory that had been granted when one was last refused for lack of it, plus 1; 0: none was.
    pub granted_at_refusal: AtomicU64,
    /// Unused.
    pub spare1: [AtomicU64; 29],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<KindCell>() == 64);
    assert!(size_of::<PeakCell>() == 128);
    assert!(size_of::<AccountCell>() == 1024);
    // What every allocation reads lies in one cache line.
    assert!(std::mem::offset_of!(AccountCell, kinds) == 64);
};
