//! A need as the user estimates it.

use radrm_base::{Bytes, Permille};
use serde::{Deserialize, Serialize};

use super::{Need, Source};

/// The user's estimate, which counts until a run was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEstimate {
    /// The figure to expect.
    pub bytes: Bytes,
    /// Bound; it is reserved.
    pub upper: Bytes,
    /// Part of the runs that stay at or under `upper`, where that was measured.
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
