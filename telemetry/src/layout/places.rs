//! Where the parts of a segment and of a slot lie.

use super::numbers::*;

/// Offset of the GPU table, bytes.
pub const GPUS_AT: u64 = 4096;
/// Offset of the directory, bytes.
pub const DIRECTORY_AT: u64 = GPUS_AT + (GPUS * 256) as u64;
/// Bytes of the header area.
pub const HEADER_BYTES: u64 = DIRECTORY_AT + (SLOTS * 32) as u64;
/// Offset of the quota ledger, bytes.
pub const LEDGER_AT: u64 = 64 << 10;
/// Offset of slot 0, bytes.
pub const SLOTS_AT: u64 = 2 << 20;

/// Bytes of a slot's base.
pub const BASE_BYTES: u64 = 4096
    + 2 * TEXT_BYTES as u64
    + (ENTRIES * 8) as u64
    + (GPUS * 1024) as u64
    + ((2 * FAILURE_CELLS + RING_CELLS) * 64) as u64;
/// Offsets inside a slot.
pub const HASHES_AT: u64 = 128 << 10;
/// Hashes of the kernels' names, one word each.
pub const HASHES_BYTES: u64 = (KERNELS * 8) as u64;
/// The kernel table.
pub const KERNELS_AT: u64 = HASHES_AT + HASHES_BYTES;
/// Bytes of the kernel table.
pub const KERNELS_BYTES: u64 = (KERNELS * 64) as u64;
/// The name arena.
pub const NAMES_AT: u64 = 512 << 10;
/// Bytes of the name arena: no name can fail to find room.
pub const NAMES_BYTES: u64 = (KERNELS * 1024) as u64;
/// The lanes.
pub const LANES_AT: u64 = 8 << 20;
/// Bytes of a lane's [`LaneCounts`], which come before its rows.
pub const LANE_COUNTS_BYTES: u64 = PAGE as u64;
/// Bytes of a lane.
pub const LANE_BYTES: u64 = LANE_COUNTS_BYTES + (KERNELS * 64) as u64;
/// Keys of the strata, one word each.
pub const STRATA_KEYS_AT: u64 = 25 << 20;
/// Bytes of the keys.
pub const STRATA_KEYS_BYTES: u64 = (STRATA * 8) as u64;
/// The strata.
pub const STRATA_AT: u64 = STRATA_KEYS_AT + STRATA_KEYS_BYTES;
/// Bytes of the strata.
pub const STRATA_BYTES: u64 = (STRATA * 128) as u64;
/// The ring of launches that were timed.
pub const SAMPLES_AT: u64 = 28 << 20;
/// Its bytes.
pub const SAMPLES_BYTES: u64 = (SAMPLE_CELLS * 64) as u64;
/// The timelines.
pub const TIMELINES_AT: u64 = 32 << 20;
/// Bytes of a timeline.
pub const TIMELINE_BYTES: u64 = (TIMELINE_BUCKETS * 128) as u64;
/// The block table.
pub const LEVELS_AT: u64 = 64 << 20;
/// Distance of two slots.
pub const SLOT_STRIDE: u64 = 512 << 20;
/// Size of a segment.
pub const TOTAL_BYTES: u64 = SLOTS_AT + SLOTS as u64 * SLOT_STRIDE;

/// Offset of a slot in the segment.
pub const fn slot_at(slot: usize) -> u64 {
    SLOTS_AT + slot as u64 * SLOT_STRIDE
}

/// Buckets of a level of the block table.
pub const fn level_buckets(level: usize) -> usize {
    LEVEL0_BUCKETS << (2 * level)
}

/// Offset of a level in its slot.
pub const fn level_at(level: usize) -> u64 {
    // Sum of a geometric series: 64 * (4^level - 1) / 3 buckets come before.
    LEVELS_AT + ((level_buckets(level) - LEVEL0_BUCKETS) / 3 * 256) as u64
}
