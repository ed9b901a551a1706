//! The recorder of ranges and marks: names, what is open, what has ended, and where they lie in a slot.

use super::stacks::{SITES_USED_AT, STACK_TEXTS_AT, STACK_TEXTS_BYTES};
use super::{GPUS, LANES, SLOT_STRIDE};
use crate::sync::AtomicU64;

/// Names with figures of their own; number 0 is "(other)".
pub const RANGE_NAMES: usize = 1024;
/// Places for the hashes of names: twice as many, so that a search is short.
pub const RANGE_KEYS: usize = 2048;
/// Bytes kept of a name.
pub const RANGE_NAME_BYTES: usize = 368;
/// Ranges of a thread that can be open inside each other.
pub const RANGE_DEPTH: usize = 52;
/// Ranges that can be open apart from their threads' nesting.
pub const RANGE_STARTS: usize = 256;
/// Watermarks of a GPU: one for each lane, then those of the first ranges of [`RANGE_STARTS`].
pub const RANGE_WATERMARKS: usize = 128;
/// Cells of the ring of ranges and marks that have ended.
pub const RANGE_CELLS: usize = 2048;
/// Words of the recorder in a slot's head.
pub const RANGE_WORDS: usize = 16;

/// Entry of the hash table of names.
#[repr(C)]
#[derive(Debug)]
pub struct RangeKey {
    /// Hash; 0: free.
    pub hash: AtomicU64,
    /// Number of the name plus 1, 1 where it has none of its own; 0: not handed out yet.
    pub number: AtomicU64,
}

/// One name, and what its ranges and marks took.
#[repr(C)]
#[derive(Debug)]
pub struct RangeNameCell {
    /// Bytes of the name plus 1; bit 32 set if it was longer; 0: not written.
    pub text_len: AtomicU64,
    /// Ranges that have ended.
    pub ranges: AtomicU64,
    /// Marks.
    pub marks: AtomicU64,
    /// Time that the ranges took together, ns.
    pub total_ns: AtomicU64,
    /// Time of the longest, ns.
    pub longest_ns: AtomicU64,
    /// `u64::MAX` less the time of the shortest, ns.
    pub shortest_ns: AtomicU64,
    /// `u64::MAX` less the time at which the first began, ns.
    pub first_ns: AtomicU64,
    /// Time at which the last one began, ns.
    pub last_ns: AtomicU64,
    /// Time at which the last one ended, ns.
    pub end_ns: AtomicU64,
    /// Ranges without a watermark: the peak inside them is not known.
    pub unmarked: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 8],
    /// The name.
    pub text: [AtomicU64; RANGE_NAME_BYTES / 8],
}

/// Memory of one GPU in the ranges of one name: one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct RangeGpuCell {
    /// Odd: the two words after the peak are being written.
    pub seq: AtomicU64,
    /// Largest device total inside a range.
    pub peak: AtomicU64,
    /// Device total where that range began.
    pub entry_at_peak: AtomicU64,
    /// Device total where it ended.
    pub exit_at_peak: AtomicU64,
    /// Device total where the last range began.
    pub last_entry: AtomicU64,
    /// Device total where it ended.
    pub last_exit: AtomicU64,
    /// Sum of what the ranges ended with less what they began with, two's complement.
    pub change: AtomicU64,
    /// Ranges that are in these figures.
    pub ranges: AtomicU64,
}

/// A range that is open in a thread.
#[repr(C)]
#[derive(Debug)]
pub struct RangeFrame {
    /// Number of the name.
    pub name: AtomicU64,
    /// Start, ns of the segment's clock.
    pub start_ns: AtomicU64,
    /// Identifier of its domain, different from that of others.
    pub domain: AtomicU64,
    /// Number of the step plus 1; 0: it has none.
    pub step: AtomicU64,
    /// GPUs whose memory was read at its beginning, a bit each.
    pub gpus: AtomicU64,
    /// Unused.
    pub spare: AtomicU64,
    /// Device total of each GPU at its beginning.
    pub entry: [AtomicU64; GPUS],
    /// Watermark of each GPU of the range around it.
    pub around: [AtomicU64; GPUS],
}

/// The open ranges of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct RangeLane {
    /// Number of open ranges.
    pub depth: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 7],
    /// The outermost first.
    pub frames: [RangeFrame; RANGE_DEPTH],
}

/// A range that any thread may end.
#[repr(C)]
#[derive(Debug)]
pub struct RangeStart {
    /// 0: free; odd: being changed; even: its number, by which it is ended.
    pub state: AtomicU64,
    /// Numbers handed out here so far.
    pub tickets: AtomicU64,
    /// Number of the name.
    pub name: AtomicU64,
    /// Start, ns of the segment's clock.
    pub start_ns: AtomicU64,
    /// Number of the step plus 1; 0: it has none.
    pub step: AtomicU64,
    /// GPUs whose memory was read at its beginning, a bit each.
    pub gpus: AtomicU64,
    /// Lane of the thread that began it.
    pub lane: AtomicU64,
    /// Unused.
    pub spare: AtomicU64,
    /// Device total of each GPU at its beginning.
    pub entry: [AtomicU64; GPUS],
    /// Unused.
    pub spare2: [AtomicU64; 8],
}

/// Hashes of the names.
pub const RANGE_KEYS_AT: u64 = 464 << 20;
/// Their bytes.
pub const RANGE_KEYS_BYTES: u64 = (RANGE_KEYS * 16) as u64;
/// The watermarks, GPU by GPU.
pub const RANGE_WATERMARKS_AT: u64 = RANGE_KEYS_AT + RANGE_KEYS_BYTES;
/// Their bytes.
pub const RANGE_WATERMARKS_BYTES: u64 = (GPUS * RANGE_WATERMARKS * 8) as u64;
/// Ranges that any thread may end.
pub const RANGE_STARTS_AT: u64 = RANGE_WATERMARKS_AT + RANGE_WATERMARKS_BYTES;
/// Their bytes.
pub const RANGE_STARTS_BYTES: u64 = (RANGE_STARTS * 256) as u64;
/// The ring.
pub const RANGE_RING_AT: u64 = RANGE_STARTS_AT + RANGE_STARTS_BYTES;
/// Its bytes.
pub const RANGE_RING_BYTES: u64 = (RANGE_CELLS * 64) as u64;
/// Bytes of all that is allocated with the first range or mark.
pub const RANGE_FIRST_BYTES: u64 = RANGE_RING_AT + RANGE_RING_BYTES - RANGE_KEYS_AT;
/// The names.
pub const RANGE_NAMES_AT: u64 = 465 << 20;
/// Their bytes.
pub const RANGE_NAMES_BYTES: u64 = (RANGE_NAMES * 512) as u64;
/// Memory in ranges, GPU by GPU.
pub const RANGE_GPUS_AT: u64 = 466 << 20;
/// Bytes of one GPU.
pub const RANGE_GPU_BYTES: u64 = (RANGE_NAMES * 64) as u64;
/// Open ranges, thread by thread.
pub const RANGE_LANES_AT: u64 = 468 << 20;
/// Bytes of one thread.
pub const RANGE_LANE_BYTES: u64 = 16 << 10;

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<RangeKey>() == 16 && size_of::<RangeNameCell>() == 512);
    assert!(size_of::<RangeGpuCell>() == 64 && size_of::<RangeStart>() == 256);
    assert!(size_of::<RangeLane>() <= RANGE_LANE_BYTES as usize);
    assert!(RANGE_NAMES <= 1 << 16 && RANGE_STARTS <= 1 << 8 && LANES <= 64);
};
const _: () = {
    assert!(STACK_TEXTS_AT + STACK_TEXTS_BYTES <= RANGE_KEYS_AT);
    assert!(RANGE_KEYS_AT + RANGE_FIRST_BYTES <= RANGE_NAMES_AT);
    assert!(RANGE_NAMES_AT + RANGE_NAMES_BYTES <= RANGE_GPUS_AT);
    assert!(RANGE_GPUS_AT + GPUS as u64 * RANGE_GPU_BYTES <= RANGE_LANES_AT);
    assert!(RANGE_LANES_AT + LANES as u64 * RANGE_LANE_BYTES <= SITES_USED_AT && SITES_USED_AT < SLOT_STRIDE);
};
