//! What a dry run of the job held on an emulated GPU.

use radrm_base::ProgramKind;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A dry run that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// The peak on the GPU where it was highest.
    pub held: Bytes,
    /// The kind of program, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ProgramKind>,
    /// Steps of the training.
    pub steps: u64,
    /// Model of the emulated GPU.
    pub gpu: String,
    /// The daemon made it by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl DryRun {
    /// As the estimator takes it.
    pub(super) fn known(&self) -> radrm_estimator::memory::DryRun {
        radrm_estimator::memory::DryRun { held: self.held.0 as f64, kind: self.kind }
    }
}
