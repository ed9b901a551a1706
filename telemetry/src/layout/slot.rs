//! The part of a slot that is allocated when a process joins, and its timelines.

use super::account::AccountCell;
use super::cell::Cell;
use super::numbers::{BYPASSES, COPY_WAYS, ENTRIES, FAILURE_CELLS, GPUS, LANES, RING_CELLS, TEXT_BYTES};
use super::ranges::RANGE_WORDS;
use super::stacks::STACK_WORDS;
use crate::sync::AtomicU64;

/// One bucket of a timeline: two cache lines.
#[repr(C)]
#[derive(Debug)]
pub struct TimelineBucket {
    /// Change of each kind in this bucket, two's complement. Of the open bucket it is what is missing to the account's bytes.
    pub change: [AtomicU64; 8],
    /// Largest total that an allocation in this bucket reached.
    pub max_total: AtomicU64,
    /// Kinds 1 to 7 at that moment; kind 0 is what is left of the total.
    pub at_max: [AtomicU64; 7],
}

/// A clock's last meeting with `CLOCK_MONOTONIC`: one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct ClockCell {
    /// Odd: being written.
    pub seq: AtomicU64,
    /// Time stamp counter at the anchor.
    pub tsc: AtomicU64,
    /// Segment time at the anchor, ns.
    pub ns: AtomicU64,
    /// ns per tick, 32.32 fixed point.
    pub mult: AtomicU64,
    /// Ticks for which the anchor holds; 0: not calibrated.
    pub window: AtomicU64,
    /// Counter at the start of the calibration.
    pub base_tsc: AtomicU64,
    /// Time at the start of the calibration.
    pub base_ns: AtomicU64,
    /// Unused.
    pub spare: AtomicU64,
}

/// First page of a slot.
#[repr(C)]
#[derive(Debug)]
pub struct SlotHead {
    /// Parent process.
    pub ppid: AtomicU64,
    /// Real user id.
    pub uid: AtomicU64,
    /// Time at which the process joined, ns.
    pub joined_ns: AtomicU64,
    /// Time at which the process left, ns; 0: not reported.
    pub ended_ns: AtomicU64,
    /// [`crate::EndReason`].
    pub end_reason: AtomicU64,
    /// Driver version as `cuDriverGetVersion` gives it; 0 = unknown.
    pub driver_version: AtomicU64,
    /// Bits of [`crate::framework`].
    pub frameworks: AtomicU64,
    /// Unused.
    pub spare0: AtomicU64,
    /// The clock.
    pub clock: ClockCell,
    /// Bytes of the executable's path.
    pub exe_len: AtomicU64,
    /// Bytes of the command line.
    pub cmdline_len: AtomicU64,
    /// Levels of the block table in use.
    pub levels: AtomicU64,
    /// Pieces of the kernel table that are allocated.
    pub kernel_pages: AtomicU64,
    /// Bytes of the name arena handed out.
    pub names_used: AtomicU64,
    /// Bytes of the name arena that are allocated.
    pub names_ready: AtomicU64,
    /// Failed requests so far: tickets of both failure lists.
    pub failures: AtomicU64,
    /// Unused.
    pub spare1: AtomicU64,
    /// Tickets drawn for the event ring.
    pub ring_head: AtomicU64,
    /// Events that found their cell taken.
    pub ring_dropped: AtomicU64,
    /// The same for the list of last failures.
    pub failure_head: AtomicU64,
    /// The same for the list of last failures.
    pub failure_dropped: AtomicU64,
    /// Effect of the job's launch budget on this process: 1 if its launches follow the budget; launches let through
    /// while one was set; launches that had to wait; their total wait, ns.
    pub budget: [AtomicU64; 4],
    /// Bypasses by reason.
    pub bypass: [AtomicU64; BYPASSES],
    /// Owner of each lane: thread id, 0 = free.
    pub lane_owner: [AtomicU64; LANES],
    /// Allocated rows of each lane; the last is the shared one.
    pub lane_rows: [AtomicU64; LANES + 1],
    /// [`crate::KernelsMode`].
    pub kernels_mode: AtomicU64,
    /// Pieces of the strata that are allocated.
    pub strata_pieces: AtomicU64,
    /// Timed launches whose time was lost, and time that the host spent on timing, ns.
    pub timing: [AtomicU64; 2],
    /// Copies and memsets by way: how many, bytes.
    pub copies: [[AtomicU64; 2]; COPY_WAYS],
    /// Tickets drawn for the ring of launches that were timed, those that found their cell taken, and 1 when the ring is
    /// allocated.
    pub samples: [AtomicU64; 3],
    /// The recorder of call stacks: see [`crate::stacks`].
    pub stacks: [AtomicU64; STACK_WORDS],
    /// The recorder of ranges and marks: see [`crate::ranges`].
    pub ranges: [AtomicU64; RANGE_WORDS],
    /// Unused.
    pub spare3:
        [AtomicU64; 512 - 32 - BYPASSES - 2 * LANES - 1 - 7 - 2 * COPY_WAYS - STACK_WORDS - RANGE_WORDS],
}

/// Part of a slot that is allocated when a process joins.
#[repr(C)]
#[derive(Debug)]
pub struct SlotBase {
    /// Identity and counters.
    pub head: SlotHead,
    /// Path of the executable.
    pub exe: [AtomicU64; TEXT_BYTES / 8],
    /// Command line, arguments separated by zeros.
    pub cmdline: [AtomicU64; TEXT_BYTES / 8],
    /// Calls by entry point.
    pub entries: [AtomicU64; ENTRIES],
    /// Figures by GPU.
    pub accounts: [AccountCell; GPUS],
    /// The first failed requests.
    pub first_failures: [Cell; FAILURE_CELLS],
    /// The last failed requests.
    pub last_failures: [Cell; FAILURE_CELLS],
    /// Events.
    pub ring: [Cell; RING_CELLS],
}
