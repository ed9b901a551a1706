//! The layout of a segment: every constant, every structure, every offset.
//!
//! ```text
//! 0            Header, GPU table, directory of slots
//! 64 KiB       reserved for the quota ledger
//! 2 MiB        slot 0: base | kernel hashes | kernels | names | lanes | strata | launch samples | timelines | post-mortems |
//!              block levels | stacks | ranges and marks | stacks at refused requests
//! 2 MiB + S    slot 1 ...
//! ```
//!
//! The file is sparse. The header area is allocated when the segment is made, a slot's base when a process
//! joins, everything else in pieces when it is first needed, always before it is touched.
//! All words are in the machine's byte order: a segment never leaves its machine.

use crate::sync::AtomicU64;

mod account;
mod directory;
mod notices;
mod ranges;
mod stacks;

pub use account::{AccountCell, COUNTED_KINDS, KindCounts, LaneCounts, PeakCell};
pub use directory::{DirEntry, SlotNamespace, SlotState, entry_at};
pub use notices::{NOTICES, NoticeCell, NoticeTable};
pub use ranges::*;
pub use stacks::*;

/// First word of a segment: "RADRMSEG".
pub const MAGIC: u64 = u64::from_le_bytes(*b"RADRMSEG");
/// Layout version. Any change of this file's structures or offsets raises it.
pub const VERSION: u64 = 1;

/// GPUs that a segment can name.
pub const GPUS: usize = 16;
/// Processes that a segment can hold at a time.
pub const SLOTS: usize = 1024;
/// Named reasons for a bypass.
pub const BYPASSES: usize = 32;
/// Entry points whose calls are counted one by one.
pub const ENTRIES: usize = 1024;
/// Bytes kept of the path of the executable and of the command line, each.
pub const TEXT_BYTES: usize = 4096;
/// Cells of the event ring: rare events only, so this is hours for most programs.
pub const RING_CELLS: usize = 1024;
/// Cells of the ring of launches that were timed: more than six seconds' worth at the rate that the shim keeps to.
pub const SAMPLE_CELLS: usize = 1024;
/// Failed requests kept from the beginning, and as many from the end.
pub const FAILURE_CELLS: usize = 32;
/// Kernels with counters of their own; number 0 is "(other)".
pub const KERNELS: usize = 4096;
/// Bytes kept of a kernel's name.
pub const KERNEL_NAME_BYTES: usize = 1023;
/// Strata of timed launches; number 0 is never used.
pub const STRATA: usize = 8192;
/// Ways of copies and memsets that are counted apart.
pub const COPY_WAYS: usize = 8;
/// Lanes that threads can own.
pub const LANES: usize = 64;
/// Counter rows that a lane grows by: one page.
pub const LANE_GROWTH: usize = 64;
/// Keys in a bucket of the block table: with the spare word one cache line.
pub const BUCKET_KEYS: usize = 7;
/// Buckets of the first level of the block table: 16 KiB, so that a small program stays small.
pub const LEVEL0_BUCKETS: usize = 64;
/// Levels of the block table; each has four times the buckets of the one before. 9.6 million keys.
pub const LEVELS: usize = 8;
/// Buckets in the timeline of one GPU: enough for nine years.
pub const TIMELINE_BUCKETS: usize = 8192;
/// Buckets of a timeline that are allocated together (16 KiB): one bit of a word each.
pub const TIMELINE_CHUNK: usize = TIMELINE_BUCKETS / 64;

/// Unit in which the pieces of a segment are made, bytes: the smallest page of a kernel. A kernel with larger pages
/// allocates in those: see `sys::populate`.
pub const PAGE: usize = 4096;
/// The largest page of a kernel that segments are made for, bytes. All that is mapped of one lies at multiples of it.
pub const MAX_PAGE: usize = 64 << 10;

/// One cell of a ring: a sequence word and the words of a record. In a segment a cell is a cache line.
#[repr(C)]
#[derive(Debug)]
pub struct Cell<const W: usize = 7> {
    /// Even: `2 * laps written`; odd: being written.
    pub seq: AtomicU64,
    /// The record.
    pub words: [AtomicU64; W],
}

/// One GPU of the job.
#[repr(C)]
#[derive(Debug)]
pub struct GpuCell {
    /// 0, or a hash of the uuid: the process that sets it owns the index for that uuid.
    pub tag: AtomicU64,
    /// 1 when the rest is complete.
    pub ready: AtomicU64,
    /// Memory of the GPU in bytes.
    pub total_bytes: AtomicU64,
    /// Unused.
    pub spare0: [AtomicU64; 5],
    /// The driver's uuid.
    pub uuid: [AtomicU64; 2],
    /// PCI bus id as text, padded with zeros.
    pub pci: [AtomicU64; 4],
    /// Unused.
    pub spare1: [AtomicU64; 2],
    /// Name, padded with zeros.
    pub name: [AtomicU64; 8],
    /// Unused.
    pub spare2: [AtomicU64; 8],
}

/// The first bytes of a segment.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`]; written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU64,
    /// [`TOTAL_BYTES`].
    pub total_bytes: AtomicU64,
    /// Process that made the segment.
    pub launcher_pid: AtomicU64,
    /// Its start time.
    pub launcher_start: AtomicU64,
    /// `CLOCK_MONOTONIC` at creation, ns. All other times count from here.
    pub created_mono_ns: AtomicU64,
    /// `CLOCK_REALTIME` at creation, ns.
    pub created_real_ns: AtomicU64,
    /// Number that the launcher gave the job.
    pub job_id: AtomicU64,
    /// Pid namespace of the process that made the segment; 0: not known.
    pub namespace: AtomicU64,
    /// Slots handed out so far: where the next process searches first.
    pub next_slot: AtomicU64,
    /// Unused.
    pub spare0: [AtomicU64; 6],
    /// The job's launch budget ([`crate::budget::Budget`]); 0: none. Its cache line has what launches wait for, nothing else.
    pub budget: AtomicU64,
    /// The requests of other jobs that launches wait for, and the job's own.
    pub gate: crate::gate::GateWords,
    /// Notices of processes without a slot.
    pub notices: NoticeTable,
    /// Unused.
    pub spare1: [AtomicU64; 477 + 16 - 8 - 4 * NOTICES],
}

/// Header, GPU table and directory: mapped by every process of the job.
#[repr(C)]
#[derive(Debug)]
pub struct HeaderArea {
    /// The header.
    pub header: Header,
    /// The GPUs of the job.
    pub gpus: [GpuCell; GPUS],
    /// The slots.
    pub directory: [DirEntry; SLOTS],
}

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

/// Record of one block in the block table.
#[repr(C)]
#[derive(Debug)]
pub struct BlockCell {
    /// Size in the low 48 bits, then kind, then GPU.
    pub what: AtomicU64,
    /// Time at which the block was made, ns.
    pub ns: AtomicU64,
    /// Context or pool.
    pub aux: AtomicU64,
}

/// Bucket of the block table: a line of keys, three lines of what they stand for.
#[repr(C)]
#[derive(Debug)]
pub struct BlockBucket {
    /// Keys; 0 = free, [`KEY_BUSY`] = being changed.
    pub keys: [AtomicU64; BUCKET_KEYS],
    /// Keys whose first choice this is and that lie in their second one.
    pub spilled: AtomicU64,
    /// Blocks in the order of the keys.
    pub blocks: [BlockCell; BUCKET_KEYS],
    /// Unused.
    pub spare1: [AtomicU64; 3],
}

/// Key of an entry that is being changed.
pub const KEY_BUSY: u64 = u64::MAX;

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

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 64);
    assert!(size_of::<GpuCell>() == 256);
    assert!(size_of::<DirEntry>() == 32);
    assert!(size_of::<Header>() == PAGE);
    assert!(std::mem::offset_of!(Header, budget).is_multiple_of(64));
    assert!(size_of::<HeaderArea>() == HEADER_BYTES as usize);
    assert!(std::mem::offset_of!(HeaderArea, gpus) == GPUS_AT as usize);
    assert!(std::mem::offset_of!(HeaderArea, directory) == DIRECTORY_AT as usize);
    assert!(size_of::<TimelineBucket>() == 128);
    assert!(size_of::<ClockCell>() == 64);
    assert!(size_of::<SlotHead>() == 4096);
    assert!(size_of::<SlotBase>() == BASE_BYTES as usize);
    assert!(size_of::<KernelCell>() == 64);
    assert!(size_of::<LaneRow>() == 64);
    assert!(size_of::<BlockBucket>() == 256);
    assert!(BASE_BYTES <= HASHES_AT && BASE_BYTES.is_multiple_of(PAGE as u64));
    assert!(KERNELS_AT + KERNELS_BYTES <= NAMES_AT);
    assert!(NAMES_AT + NAMES_BYTES <= LANES_AT);
    assert!(size_of::<StratumCell>() == 128);
    assert!(LANES_AT + (LANES as u64 + 1) * LANE_BYTES <= STRATA_KEYS_AT);
    assert!(STRATA_AT + STRATA_BYTES <= SAMPLES_AT);
    assert!(SAMPLES_AT + SAMPLES_BYTES <= TIMELINES_AT);
    assert!(TIMELINES_AT + GPUS as u64 * TIMELINE_BYTES <= LEVELS_AT);
    assert!(HEADER_BYTES <= LEDGER_AT && LEDGER_AT < SLOTS_AT);
    assert!(LEDGER_AT.is_multiple_of(MAX_PAGE as u64) && SLOTS_AT.is_multiple_of(MAX_PAGE as u64));
    assert!(SLOT_STRIDE.is_multiple_of(MAX_PAGE as u64));
};
