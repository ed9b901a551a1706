//! Kernels and their launches.

use crate::sync::AtomicU64;

/// One kernel.
#[repr(C)]
#[derive(Debug)]
pub struct KernelCell {
    /// 1 when the rest is complete.
    pub ready: AtomicU64,
    /// Offset of the name in the arena.
    pub name_at: AtomicU64,
    /// Bytes of the name kept; bit 32 set if it was longer.
    pub name_len: AtomicU64,
    /// Registers per thread.
    pub registers: AtomicU64,
    /// Static shared memory per block, bytes.
    pub static_shared: AtomicU64,
    /// Local memory per thread, bytes.
    pub local_bytes: AtomicU64,
    /// Most threads per block.
    pub max_threads: AtomicU64,
    /// Unused.
    pub spare: AtomicU64,
}

/// Counters of one kernel in one lane: one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct LaneRow {
    /// Launches.
    pub launches: AtomicU64,
    /// Sum of blocks.
    pub blocks: AtomicU64,
    /// Sum of threads.
    pub threads: AtomicU64,
    /// Sum of dynamic shared memory, bytes per block; launches as a node of a graph included.
    pub dynamic_shared: AtomicU64,
    /// Launches as a node of a graph.
    pub graph_launches: AtomicU64,
    /// Sum of their blocks.
    pub graph_blocks: AtomicU64,
    /// Sum of their threads.
    pub graph_threads: AtomicU64,
    /// Row 0 only: launches of graphs.
    pub graphs: AtomicU64,
}

/// Launches of one kernel of about one size, and the times of some of them: two cache lines.
#[repr(C)]
#[derive(Debug)]
pub struct StratumCell {
    /// Odd: the words from `samples` on are being written.
    pub seq: AtomicU64,
    /// Launches, as far as their threads have said.
    pub launches: AtomicU64,
    /// Timings begun.
    pub begun: AtomicU64,
    /// Times known.
    pub samples: AtomicU64,
    /// Launches that they stand for.
    pub weight: AtomicU64,
    /// Sum of the squares of those.
    pub weight_squares: AtomicU64,
    /// Sum of weight times duration, ns; this and the next two are the bits of an `f64`.
    pub ns: AtomicU64,
    /// Sum of weight times duration squared.
    pub ns_squares: AtomicU64,
    /// Part of `ns` that is in doubt: shares of graphs' times that kernels' own times do not settle.
    pub doubt_ns: AtomicU64,
    /// Part of `ns` of which the next two are known.
    pub placed_ns: AtomicU64,
    /// Sum of weight times duration times share of active multiprocessors.
    pub active_ns: AtomicU64,
    /// Sum of weight times duration times share of resident warps.
    pub resident_ns: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 4],
}
