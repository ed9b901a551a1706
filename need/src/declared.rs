//! What the user says.

use radrm_base::{Bytes, Millis, Permille};
use serde::{Deserialize, Serialize};

use super::{Estimator, Features, Known, Need, Source};

/// The user declares it: a limit holds the job to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declared;

impl Estimator for Declared {
    fn name(&self) -> &'static str {
        "declared"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let bytes = job.declared.or(job.declared_upper)?;
        Some(Need::new(bytes, job.declared_upper.unwrap_or(bytes), None, Source::Declared))
    }

    fn run_time(&self, job: &Features<'_>) -> Option<Known<Millis>> {
        job.declared_time.map(|value| Known { value, source: Source::Declared })
    }
}

/// The user's estimate, which counts until a run was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEstimate {
    /// The figure to expect.
    pub bytes: Bytes,
    /// What is reserved.
    pub upper: Bytes,
    /// How often runs stay at or under `upper`, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Permille>,
    /// Source of the figure in the user's own dataset; `None`: the user's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

impl UserEstimate {
    /// A need that was resolved from the user's own dataset, for a daemon that has not seen its runs.
    #[must_use]
    pub fn of_own(need: &Need) -> Self {
        let Need { bytes, upper, confidence, source, .. } = need.clone();
        Self { bytes, upper, confidence, source: Some(source) }
    }
}

impl Estimator for UserEstimate {
    fn name(&self) -> &'static str {
        "user's estimate"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let UserEstimate { bytes, upper, confidence, source } = job.estimate?;
        // Runs that only the user's dataset holds confirm no limit: this node has not seen them.
        let source = match source {
            None => Source::UserEstimate,
            Some(own) => Source::OwnDataset(Box::new(own.clone())),
        };
        Some(Need::new(*bytes, *upper, *confidence, source))
    }
}
