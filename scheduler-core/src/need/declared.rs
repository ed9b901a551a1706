//! What the user says.

use serde::{Deserialize, Serialize};

use super::{Estimator, Features, Known, Need, Source};
use crate::units::{Bytes, Millis};

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
    /// Where it comes from, if the user does not stand for it: older versions send the words only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

impl Estimator for UserEstimate {
    fn name(&self) -> &'static str {
        "user's estimate"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let UserEstimate { bytes, upper, from } = job.estimate?;
        let source = match from.as_str() {
            "" => Source::UserEstimate,
            words => Source::Stated(words.to_owned()),
        };
        Some(Need::new(*bytes, *upper, None, source))
    }
}
