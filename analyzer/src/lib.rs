//! Summaries and reports of profiles: text for people, JSON for programs, a
//! page with pictures.
//!
//! [`Summary::from_profile`] draws the conclusions; the reports only show
//! them. Nothing in here does input or output.

mod model;
mod view;

pub use model::compare::{self, Comparison};
pub use model::names::{demangle, readable};
pub use model::oom;
pub use model::profiled;
pub use model::signals::signal_name;
pub use model::stacks::{Flame, Held, JobStacks, Memory, flames, flames_of, job_stacks, refusals};
pub use model::tensors::{TensorsBy, tensor_flames};
pub use model::{
    Activity, Beside, BlockSummary, BypassSummary, CopySummary, CounterSummary, DryRunSummary, EndSummary,
    EstimateSummary, FailureSummary, Feature, Footprint, FrameworkSummary, GpuSummary, GpuTime, HostSummary,
    JobSummary, KernelSummary, KindSummary, LeftOver, LimitInForce, LimitSpan, LimitSummary, LoadSummary,
    NvmlSummary, OpenRangeSummary, OutcomeSummary, OwnSummary, Predicted, Prices, ProcessGpuSummary,
    ProcessSummary, RangeGpuSummary, RangeSummary, RangesSummary, RefusedRequests, SCHEMA, StacksSummary,
    StepsSummary, Summary, Training, TrainingSummary, TrainingTime, findings, footprint,
};
pub use view::sheet;
pub use view::stacks::{folded, heap_profile, pprof};
pub use view::{
    Curve, Curves, TextOptions, comparison_html, comparison_text, escaped, explorer, fits_text, html, json,
    oom_json, oom_text, perfetto, text,
};
