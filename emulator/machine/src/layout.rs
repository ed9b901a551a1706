//! The file's layout: what stands where, and nothing about what it means.

use radrm_base::machine_file;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::charge::CHARGES;

/// Most GPUs of one machine.
pub const MAX_GPUS: usize = 16;
/// Most processes whose ledgers are kept at a time; dead ones are overwritten, oldest first, when all
/// places are taken.
pub const MAX_PROCESSES: usize = 4096;
/// Most allocations that are shared between processes at a time.
pub const MAX_OBJECTS: usize = 4096;

pub(crate) const VERSION: u32 = 6;
pub(crate) const TEXT_BYTES: usize = 124 * 1024;

/// First page. Everything but `slots_used`, `lost` and the counters is written before the file gets its
/// name and never again.
#[repr(C, align(4096))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub text_len: AtomicU32,
    pub size: AtomicU64,
    pub seed: AtomicU64,
    pub created_mono_ns: AtomicU64,
    pub created_real_ns: AtomicU64,
    /// One more than the highest slot ever claimed.
    pub slots_used: AtomicU32,
    /// One more than the highest object ever claimed.
    pub objects_used: AtomicU32,
    /// Order in which slots were claimed, and names for anything that must be unique.
    pub next_unique: AtomicU64,
    /// GPUs that fell off the bus, a bit each.
    pub lost: AtomicU64,
    /// One more than the highest control group ever claimed.
    pub groups_used: AtomicU32,
}

/// One word per process and GPU, dense so that a sum over processes reads few cache lines.
pub(crate) type Words = [[AtomicU64; MAX_PROCESSES]; MAX_GPUS];

/// Columns of one kind in one ledger.
#[repr(C)]
pub(crate) struct KindPage {
    pub requested_now: AtomicU64,
    pub requested_peak: AtomicU64,
    pub held_now: AtomicU64,
    pub held_peak: AtomicU64,
    pub allocations: AtomicU64,
    pub frees: AtomicU64,
}

/// One process's ledger on one GPU.
#[repr(C, align(64))]
pub(crate) struct Ledger {
    pub kinds: [KindPage; CHARGES],
    pub total_requested_now: AtomicU64,
    pub total_requested_peak: AtomicU64,
    pub total_held_peak: AtomicU64,
    pub failed: AtomicU64,
    pub failed_bytes: AtomicU64,
    pub launches: AtomicU64,
    pub busy_ns: AtomicU64,
    pub copy_ns: AtomicU64,
    pub contexts: AtomicU64,
    pub curve: Curve,
}

/// Points of a curve.
pub(crate) const CURVE_KNOTS: usize = 24;

/// Work of a process on a GPU over GPU time; see `activity`.
#[repr(C)]
pub(crate) struct Curve {
    /// Odd while it is written.
    pub seq: AtomicU64,
    /// Points that count.
    pub used: AtomicU64,
    /// 1 if it is on a GPU's time, which gets on with the wall clock.
    pub clocked: AtomicU64,
    /// GPU time at which the process was gone; 0 while it lives.
    pub cut_at: AtomicU64,
    /// GPU time, sum of active multiprocessors, sum of resident warps.
    pub knots: [[AtomicU64; 3]; CURVE_KNOTS],
}

/// A process. `state` is (generation << 8 | state).
#[repr(C, align(4096))]
pub(crate) struct Slot {
    pub state: AtomicU64,
    pub pid: AtomicU32,
    pub uid: AtomicU32,
    pub start_time: AtomicU64,
    pub image: AtomicU64,
    pub stack: AtomicU64,
    /// Pid namespace in which `pid` means this process.
    pub namespace: AtomicU64,
    /// 1: its lock is held for as long as it lives, see `lock`.
    pub locked: AtomicU64,
    pub order: AtomicU64,
    pub joined_mono_ns: AtomicU64,
    pub calls: AtomicU64,
    pub unsupported: AtomicU64,
    pub exe_len: AtomicU32,
    pub command_len: AtomicU32,
    pub exe: [AtomicU64; 32],
    pub command: [AtomicU64; 128],
    /// Phase of a checkpoint, and the caller that makes it; see `checkpoint`.
    pub checkpoint: AtomicU64,
    /// Calls under way.
    pub in_flight: AtomicU64,
    /// 1 while work is queued that waits for something.
    pub pending: AtomicU64,
    /// Bits of `Mark`.
    pub marks: AtomicU64,
    /// Memory that a checkpoint took off each GPU, bytes.
    pub saved: [AtomicU64; MAX_GPUS],
    pub ledgers: [Ledger; MAX_GPUS],
}

/// A GPU's time: how far it had got at the last look (CLOCK_MONOTONIC, ns; 0: none yet), and in how much of the
/// wall clock's time up to then it had work.
#[repr(C, align(64))]
pub(crate) struct Timeline {
    pub at_ns: AtomicU64,
    pub passed_ns: AtomicU64,
    pub worked_ns: AtomicU64,
    /// Work of processes whose places went to others.
    pub gone_active: AtomicU64,
    pub gone_resident: AtomicU64,
}

/// An allocation that other processes may open. `state` is (generation << 8 | state).
#[repr(C, align(128))]
pub(crate) struct Object {
    pub state: AtomicU64,
    pub owner_slot: AtomicU32,
    pub gpu: AtomicU32,
    pub owner_generation: AtomicU64,
    pub kind: AtomicU64,
    pub size: AtomicU64,
    pub address: AtomicU64,
    pub extra: AtomicU64,
}

/// Most control groups with limits at a time.
pub(crate) const MAX_GROUPS: usize = 256;
/// Longest path of one.
pub(crate) const GROUP_PATH_BYTES: usize = 1024;

/// Limits of a control group; see `groups`. `state` is `FREE`, `CLAIMING` or `LIVE`.
#[repr(C, align(64))]
pub(crate) struct Group {
    pub state: AtomicU64,
    pub inode: AtomicU64,
    pub path_len: AtomicU32,
    pub path: [AtomicU64; GROUP_PATH_BYTES / 8],
    pub soft: [AtomicU64; MAX_GPUS],
    /// The hard limit with all bits inverted: 0 is no limit.
    pub not_hard: [AtomicU64; MAX_GPUS],
}

// A reader that knows only these recognizes the file.
const _: () = assert!(std::mem::offset_of!(Header, magic) == 0 && std::mem::offset_of!(Layout, header) == 0);
const _: [(); machine_file::BYTES as usize] = [(); size_of::<Layout>()];

/// The whole file.
#[repr(C)]
pub(crate) struct Layout {
    pub header: Header,
    pub text: [AtomicU64; TEXT_BYTES / 8],
    /// Charged bytes.
    pub held: Words,
    /// Time (monotonic, ns) until which a process keeps the GPU busy.
    pub busy_until: Words,
    /// Demand on the GPU meanwhile: streams << 32 | share of the SMs in permille.
    pub busy_demand: Words,
    /// GPU time up to which a process has work; see `timeline`.
    pub work_until: Words,
    /// The share of the GPU that it asks for meanwhile, in permille.
    pub work_weight: Words,
    pub timelines: [Timeline; MAX_GPUS],
    pub objects: [Object; MAX_OBJECTS],
    pub groups: [Group; MAX_GROUPS],
    pub slots: [Slot; MAX_PROCESSES],
}

pub(crate) const FREE: u64 = 0;
pub(crate) const CLAIMING: u64 = 1;
pub(crate) const LIVE: u64 = 2;
pub(crate) const REAPING: u64 = 3;
pub(crate) const ENDED: u64 = 4;

pub(crate) const fn tag(generation: u64, state: u64) -> u64 {
    generation << 8 | state
}

pub(crate) const fn state_of(word: u64) -> u64 {
    word & 0xff
}

pub(crate) const fn generation_of(word: u64) -> u64 {
    word >> 8
}
