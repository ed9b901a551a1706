//! The reader's side. Everything is copied with `pread` and checked as a copy.

mod candidate;
mod elsewhere;
mod overheads;
mod postmortem;
mod quotas;
mod ranges;
mod raw;
mod ring;
mod segment;
mod snapshot;
mod stacks;
mod strata;
mod timeline;
mod uses;

pub use candidate::Candidate;
pub use elsewhere::Answers;
pub use overheads::Overhead;
pub use postmortem::{Holder, Later, LeftOut, OtherProcess, Postmortem};
pub use quotas::QuotaFigures;
pub use ranges::{OpenRange, RangeGpu, RangeName, RangeSnapshot};
pub use ring::{RangeReader, RingReader, SampleReader};
pub use segment::{GpuInfo, JobInfo, Liveness, Segment, SegmentError, SlotInfo, Throttled};
pub use snapshot::{Account, KernelSnapshot, KindFigures, LiveBlock, Peak, ProcessSnapshot};
pub use stacks::{RefusalSnapshot, SiteSnapshot, StackCode, StackModule, StackSnapshot};
pub use strata::Copies;
pub use timeline::TimelinePoint;
pub use uses::Uses;
