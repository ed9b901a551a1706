//! Header, GPU table and directory of slots: mapped by every process of the job.

use super::directory::DirEntry;
use super::notices::{NOTICES, NoticeTable};
use super::numbers::{GPUS, SLOTS};
use crate::sync::AtomicU64;

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
