//! Summaries of profiles: data only. [`crate::view`] shows them; no code in here depends on it.

mod activity;
mod build;
pub mod compare;
mod features;
pub(crate) mod filling;
mod findings;
mod footprint;
mod gpu;
mod kernels;
pub(crate) mod launches;
mod limits;
mod load;
pub(crate) mod names;
pub mod oom;
mod own;
mod process;
pub mod profiled;
mod quota;
pub(crate) mod ranges;
mod recorded;
pub(crate) mod signals;
pub mod stacks;
mod summary;
pub mod tensors;
mod training;
mod uncounted;
mod window;

pub use activity::Activity;
pub use features::Feature;
pub use findings::findings;
pub use footprint::{Footprint, RefusedRequests, footprint};
pub use gpu::{Beside, EstimateSummary, GpuSummary, KindSummary, LeftOver, NvmlSummary};
pub use kernels::{CopySummary, GpuTime, KernelSummary};
pub use limits::LimitSummary;
pub use load::{CounterSummary, HostSummary, LoadSummary};
pub use oom::{HeldSummary, LeftOutSummary, PostmortemSummary, QuotaSummary};
pub use own::OwnSummary;
pub use process::{
    BlockSummary, BypassSummary, EndSummary, FrameworkSummary, ProcessGpuSummary, ProcessSummary,
};
pub use quota::{LimitInForce, LimitSpan};
pub use ranges::{OpenRangeSummary, RangeGpuSummary, RangeSummary, RangesSummary, StepsSummary};
pub use stacks::{
    HeldSite, JobStacksSummary, OtherMemorySummary, RefusalSummary, RefusedSite, StacksSummary,
};
pub use summary::{
    DryRunSummary, FailureSummary, JobSummary, OutcomeSummary, SCHEMA, Summary, ThrottlingSummary,
};
pub use tensors::TensorsSummary;
pub use training::{Predicted, Prices, Training, TrainingSummary, TrainingTime};
pub use uncounted::{InitFailureSummary, UncountedMemorySummary, UncountedSummary};
pub use window::WindowSummary;

use radrm_profile::model::Kind;

/// The stable name of a kind by its number.
fn kind_key(number: u8) -> &'static str {
    Kind::from_raw(number).map_or("unknown", Kind::key)
}

fn clamped(bytes: i128) -> i64 {
    i64::try_from(bytes).unwrap_or(if bytes < 0 { i64::MIN } else { i64::MAX })
}
