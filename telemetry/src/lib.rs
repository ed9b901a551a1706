//! The shared-memory segment of a job: layout, writer and reader.
//!
//! One sparse file per job holds what its processes do on GPUs. The launcher makes it ([`SegmentFile`]), every
//! process of the job writes into a slot of its own ([`Writer`]), and every process that may read the file
//! reads it ([`Segment`]). A slot outlives its process: what a killed program wrote is still there.
//!
//! * The writer's side lives in other people's programs: it allocates nothing, takes no lock, does not panic,
//!   and makes system calls only where its documentation says "cold".
//! * The reader's side copies with `pread`, never maps: a page that was not allocated is not allocated by
//!   reading it, a full file system cannot kill the reader, and what it copied cannot change while it is
//!   being checked. It believes nothing that it reads.
#![cfg_attr(loom, allow(missing_docs))]

mod account;
mod blocks;
pub mod budget;
mod clock;
mod event;
mod failures;
pub mod gate;
mod gpu_index;
mod join;
mod join_failure;
pub mod kernels;
mod kind;
pub mod lanes;
pub mod layout;
pub mod ledger;
mod lock;
mod notices;
mod pids;
pub mod postmortem;
pub mod process;
pub mod ranges;
mod reader;
pub mod ring;
pub mod samples;
mod segment;
pub mod stacks;
pub mod strata;
mod sync;
mod sys;
pub mod timeline;
mod vdso;
mod writer;

pub use blocks::{Block, BlockKey, BlockTable, Inserted, Namespace};
pub use event::Event;
pub use failures::{FailedRequest, QuotaRefusal};
pub use gpu_index::GpuIndex;
pub use join::JoinError;
pub use join_failure::JoinFailure;
pub use kernels::{KernelAttributes, KernelId};
pub use kind::{Bypass, EndReason, EventKind, Scope, TIMELINE_KINDS, framework};
pub use lanes::{GraphLaunches, Lane, OwnCounts, Row};
pub use ledger::{Ledger, LedgerRow};
pub use notices::{Notice, NoticeSeen};
#[cfg(not(loom))]
pub use notices::{NoticeBoard, post};
pub use radrm_base::{KIND_COUNT, Kind};
pub use ranges::{NameId, RangeRecord, RangeText};
pub use reader::{
    Account, Answers, Candidate, Copies, GpuInfo, Holder, JobInfo, KernelSnapshot, KindFigures, Later,
    LeftOut, LiveBlock, Liveness, OpenRange, OtherProcess, Overhead, Peak, Postmortem, ProcessSnapshot,
    QuotaFigures, RangeGpu, RangeName, RangeReader, RangeSnapshot, RefusalSnapshot, RingReader, SampleReader,
    Segment, SegmentError, SiteSnapshot, SlotInfo, StackCode, StackModule, StackSnapshot, Throttled,
    TimelinePoint, Uses,
};
pub use samples::LaunchSample;
pub use segment::{CreateError, SegmentFile, SegmentName};
pub use stacks::{Frame, SiteId};
pub use strata::{CopyWay, Filling, KernelsMode, SizeClass, Stratum, estimate::KernelTime};
pub use sys::monotonic_ns;
pub use writer::{OwnMemory, Writer};
