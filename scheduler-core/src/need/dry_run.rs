//! What a dry run of the job held on an emulated GPU.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A dry run that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// The peak on the GPU where it was highest.
    pub held: Bytes,
    /// Steps of the training.
    pub steps: u64,
    /// Model of the emulated GPU.
    pub gpu: String,
    /// The daemon made it by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}
