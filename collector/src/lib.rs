//! Attaches to segments, samples GPUs, writes profiles and keeps the dataset.
//!
//! [`JobWatch`] is what a launcher holds while a job runs: it reads the job's
//! segment, asks NVML on a thread of its own, and keeps the profile up to
//! date. Nothing in here prints, waits for long or fails the job: what cannot
//! be done becomes a warning, one sentence, said once.
//!
//! The way of a figure: segment -> `source` -> `watch` (what changed,
//! and is it time to write?) -> `output` -> profile. [`dataset`] adds a row
//! when the job is over.

pub mod dataset;

mod activity;
mod blocks;
mod dcgm;
mod delta;
mod digest;
mod exits;
mod frameworks;
mod host;
mod job;
mod job_watch;
mod launches;
mod limits;
pub mod ncu;
mod nvml;
mod output;
mod pace;
mod postmortem;
mod ranges;
mod remainder;
mod segment_source;
mod source;
mod stacks;
mod timings;
mod watch;

pub use dcgm::{Activities, DcgmError, DcgmSource, GpuActivity, NodeDcgm};
pub use frameworks::STAND_INS;
pub use host::{HostCounters, MemoryCount, MemoryError, MemoryMeter, Usage};
pub use job::describe_job;
pub use job_watch::JobWatch;
pub use nvml::NvmlSource;
pub use output::ProfileFile;
pub use ranges::steps;
pub use segment_source::EntryName;
pub use timings::work;
pub use watch::{Finished, InitWords, WatchOptions};
