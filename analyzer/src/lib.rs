//! Summaries and reports of profiles: text for people, JSON for programs, a
//! page with pictures.
//!
//! [`Summary::from_profile`] draws the conclusions; the reports only show
//! them. Nothing in here does input or output.

mod columns;
pub mod compare;
mod filling;
mod html;
mod kernels;
mod launches;
mod names;
mod perfetto;
mod signals;
mod summary;
mod svg;
mod text;

pub use compare::{Comparison, comparison_text};
pub use html::html;
pub use names::{demangle, readable};
pub use perfetto::perfetto;
pub use signals::signal_name;
pub use summary::oom;
pub use summary::{
    Beside, BlockSummary, BypassSummary, CopySummary, CounterSummary, EndSummary, EstimateSummary,
    FailureSummary, Feature, FrameworkSummary, GpuSummary, GpuTime, HostSummary, JobSummary, KernelSummary,
    KindSummary, LeftOver, LimitSummary, LoadSummary, NvmlSummary, OutcomeSummary, ProcessGpuSummary,
    ProcessSummary, SCHEMA, Summary,
};
pub use svg::escaped;
pub use text::oom::oom_text;
pub use text::{TextOptions, text};

/// The summary as JSON: pretty-printed, with a line end. The keys are the
/// fields of [`Summary`] and are stable within one value of `schema`; a key
/// may be added, none is renamed or changes its unit.
pub fn json(summary: &Summary) -> String {
    pretty(summary)
}

/// The part of it that is about refused requests.
pub fn oom_json(summary: &Summary) -> String {
    pretty(&oom::OomReport::of(summary))
}

fn pretty(value: &impl serde::Serialize) -> String {
    // Serialising to a string fails only for maps with keys that are not
    // strings; there are none.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|_| String::from("{}"));
    text.push('\n');
    text
}
