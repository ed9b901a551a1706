//! The recorder of call stacks: sites, the modules and functions of their frames, and where they lie in a slot.

use radrm_base::KIND_COUNT;

use super::cell::WORDS;
use super::{GPUS, LEVELS, PAGE, SLOT_STRIDE, level_at};
use crate::sync::AtomicU64;

/// Call sites: stacks of one GPU and kind of memory. The first [`SITES_RESERVED`] are not for stacks of their own.
pub const SITES: usize = 16384;
/// Site 0 is "not recorded"; then comes one for each GPU and kind, for stacks that found no place.
pub const SITES_RESERVED: usize = 1 + GPUS * KIND_COUNT;
/// Executables and libraries that frames can lie in.
pub const STACK_MODULES: usize = 2048;
/// Functions of interpreters that frames can name.
pub const STACK_CODES: usize = 16384;
/// Words of the recorder of call stacks in a slot's head.
pub const STACK_WORDS: usize = 12;

/// One call site: a stack with which memory of one kind was asked for on one GPU. One cache line.
#[repr(C)]
#[derive(Debug)]
pub struct SiteCell {
    /// Hash of stack, GPU and kind; 0: free.
    pub key: AtomicU64,
    /// Position of its frames in the arena, their number, GPU and kind; 0: not written.
    pub what: AtomicU64,
    /// Bytes now.
    pub live: AtomicU64,
    /// Bytes at the peak whose number is `epoch`.
    pub at_peak: AtomicU64,
    /// Number of the peak before the last change of `live`.
    pub epoch: AtomicU64,
    /// Allocations.
    pub allocs: AtomicU64,
    /// Requests that were refused.
    pub refused: AtomicU64,
    /// The largest of those, bytes.
    pub refused_bytes: AtomicU64,
}

/// An executable or library: one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleCell {
    /// 1 when the rest is complete.
    pub ready: AtomicU64,
    /// Position of its path in the texts.
    pub path_at: AtomicU64,
    /// Bytes of the path.
    pub path_len: AtomicU64,
    /// Bytes of the build id; 0: it has none.
    pub id_len: AtomicU64,
    /// The build id.
    pub id: [AtomicU64; 3],
    /// Unused.
    pub spare: AtomicU64,
}

/// A function of an interpreter.
#[repr(C)]
#[derive(Debug)]
pub struct CodeCell {
    /// Hash of file and name; 0: free.
    pub key: AtomicU64,
    /// Position of the file's name in the texts; the function's name follows.
    pub text_at: AtomicU64,
    /// Bytes of the file's name in the low half, of the function's in the high one.
    pub lens: AtomicU64,
    /// 1 when the rest is complete.
    pub ready: AtomicU64,
}

/// Refused requests with what was held from each site at that moment: the first one of each of so many sites.
pub const REFUSALS_FIRST: usize = 16;
/// The same, with the latest one of each GPU.
pub const REFUSALS_KEPT: usize = REFUSALS_FIRST + GPUS;

/// A refused request: who asked, and what was held at that moment. Eight cache lines.
#[repr(C)]
#[derive(Debug)]
pub struct RefusalCell {
    /// Odd: being written. 0: never was.
    pub seq: AtomicU64,
    /// The request, as in the lists of failures.
    pub request: [AtomicU64; WORDS],
    /// Number of the site that asked.
    pub site: AtomicU64,
    /// Device total of the request's GPU.
    pub total: AtomicU64,
    /// Bytes by kind.
    pub kinds: [AtomicU64; KIND_COUNT],
    /// Sites that held anything: words of what they held.
    pub count: AtomicU64,
    /// Pieces that are allocated for these.
    pub ready: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 64 - 5 - WORDS - KIND_COUNT],
}

/// The call sites.
pub const SITES_AT: u64 = 448 << 20;
/// Their bytes.
pub const SITES_BYTES: u64 = (SITES * 64) as u64;
/// The modules of frames.
pub const STACK_MODULES_AT: u64 = 449 << 20;
/// Their bytes.
pub const STACK_MODULES_BYTES: u64 = (STACK_MODULES * 64) as u64;
/// The functions of frames.
pub const STACK_CODES_AT: u64 = STACK_MODULES_AT + STACK_MODULES_BYTES;
/// Their bytes.
pub const STACK_CODES_BYTES: u64 = (STACK_CODES * 32) as u64;
/// The frames of all sites.
pub const FRAMES_AT: u64 = 450 << 20;
/// Their bytes.
pub const FRAMES_BYTES: u64 = 8 << 20;
/// Names of modules, files and functions.
pub const STACK_TEXTS_AT: u64 = FRAMES_AT + FRAMES_BYTES;
/// Their bytes.
pub const STACK_TEXTS_BYTES: u64 = 4 << 20;
/// A bit for each site that has frames.
pub const SITES_USED_AT: u64 = 472 << 20;
/// The refused requests.
pub const REFUSALS_AT: u64 = SITES_USED_AT + PAGE as u64;
/// Bytes of these and of the bits: allocated together.
pub const REFUSALS_BYTES: u64 = PAGE as u64 + (REFUSALS_KEPT * 512) as u64;
/// Offset in the slot of the bytes that each site held at refused requests: a word for each site.
pub const REFUSALS_HELD_AT: u64 = 473 << 20;
/// Its bytes for one request.
pub const REFUSAL_HELD_BYTES: u64 = (SITES * 8) as u64;
const _: () = {
    assert!(size_of::<RefusalCell>() == 512 && SITES / 8 <= PAGE);
    assert!(SITES_USED_AT + REFUSALS_BYTES <= REFUSALS_HELD_AT && REFUSALS_BYTES.is_multiple_of(PAGE as u64));
    assert!(REFUSALS_HELD_AT + REFUSALS_KEPT as u64 * REFUSAL_HELD_BYTES <= SLOT_STRIDE);
    assert!(size_of::<SiteCell>() == 64 && size_of::<ModuleCell>() == 64 && size_of::<CodeCell>() == 32);
    assert!(SITES <= 1 << 16 && SITES_RESERVED < SITES);
    assert!(SITES_AT + SITES_BYTES <= STACK_MODULES_AT);
    assert!(STACK_CODES_AT + STACK_CODES_BYTES <= FRAMES_AT);
    assert!(STACK_TEXTS_AT + STACK_TEXTS_BYTES <= SLOT_STRIDE);
    assert!(level_at(LEVELS) <= SITES_AT);
};
