//! Replay of traces: the same decisions as in the daemon, on a machine that is only a model.
//!
//! Nothing here does input or output. [`replay`] takes jobs ([`TraceJob`]), devices ([`Cluster`])
//! and [`Options`], and gives a [`Report`]; equal arguments give equal reports.

mod bound;
mod curve;
pub mod events;
mod model;
mod profiles;
pub mod read;
mod recorded;
mod report;
mod sim;
mod trace;

pub use bound::{Bounds, bounds};
pub use curve::{Curve, Piece};
pub use model::{Mode, Model};
pub use profiles::{Profiles, Program};
pub use read::{Filling, LeftOut, ReadError, Trace, read};
pub use recorded::Recorded;
pub use report::{Bar, Followed, Interval, JobResult, Metrics, Report};
pub use sim::{Custom, Knowledge, Options, Source, Watch, replay, replay_custom};
pub use trace::{Cluster, TraceJob};
