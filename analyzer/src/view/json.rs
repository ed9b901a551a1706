//! JSON for programs.

use crate::model::compare::Comparison;
use crate::model::{OutcomeSummary, PostmortemSummary, SCHEMA, Summary};
use radrm_text::Untrusted;
use serde::Serialize;

/// The summary as JSON: pretty-printed, with a line end. The keys are the
/// fields of [`Summary`] and are stable within one value of `schema`; a key
/// may be added, none is renamed or changes its unit.
pub fn json(summary: &Summary) -> String {
    pretty(summary)
}

/// The part of it that is about refused requests.
pub fn oom_json(summary: &Summary) -> String {
    pretty(&OomReport::of(summary))
}

impl Comparison {
    /// As JSON: pretty-printed, with a line end.
    pub fn json(&self) -> String {
        pretty(self)
    }
}

/// The report of a job's refused requests alone: `radrm report --oom --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct OomReport<'s> {
    /// [`SCHEMA`].
    schema: u32,
    /// Specification of the emulated machine; null on real GPUs.
    emulated: Option<&'s str>,
    /// Program and arguments.
    command: &'s [Untrusted],
    /// Outcome of the job.
    outcome: &'s OutcomeSummary,
    /// Number of refused memory requests.
    failed_requests_total: u64,
    /// The refusals of which more is known.
    postmortems: &'s [PostmortemSummary],
}

impl<'s> OomReport<'s> {
    /// The part of a summary that is about refusals.
    fn of(summary: &'s Summary) -> OomReport<'s> {
        OomReport {
            schema: SCHEMA,
            emulated: summary.emulated.as_deref(),
            command: &summary.job.command,
            outcome: &summary.outcome,
            failed_requests_total: summary.failed_requests_total,
            postmortems: &summary.postmortems,
        }
    }
}

fn pretty(value: &impl Serialize) -> String {
    // Serialising to a string fails only for maps with keys that are not
    // strings; there are none.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|_| String::from("{}"));
    text.push('\n');
    text
}
