//! What a dry run of the job held on an emulated GPU.

use serde::{Deserialize, Serialize};

use super::{Estimator, Features, Need, Source};
use crate::units::{Bytes, Permille};

/// Of 18 trainings that were measured elsewhere 16 took at most half more than the dry run's figure for them: other
/// versions of framework and libraries choose other workspaces. The table is in docs/dry-run.md.
const UPPER: Permille = Permille(1500);
const CONFIDENCE: Permille = Permille(889);

/// A dry run that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// The peak on the GPU where it was highest.
    pub held: Bytes,
    /// Steps of the training.
    pub steps: u64,
    /// Model of the emulated GPU.
    pub gpu: String,
}

/// Takes the dry run's figure, and half more as its bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct DryRunEstimate;

impl Estimator for DryRunEstimate {
    fn name(&self) -> &'static str {
        "dry run"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let DryRun { held, steps, gpu } = job.dry_run?;
        let source = Source::DryRun { steps: *steps, gpu: gpu.clone() };
        Some(Need::new(*held, held.part(UPPER), Some(CONFIDENCE), source))
    }
}
