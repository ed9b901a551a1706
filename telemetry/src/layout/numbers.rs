//! Versions, and how many of each thing a segment has room for.

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
