//! Figures of a job's dry run on an emulated GPU.

use radrm_base::{Bytes, ProgramKind};
use serde::{Deserialize, Serialize};

/// A dry run that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DryRun {
    /// Peak on the GPU where it was highest.
    pub held: Bytes,
    /// Kind of program, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ProgramKind>,
    /// Optimizer steps; 0: not recorded.
    pub steps: u64,
    /// Model of the emulated GPU.
    pub gpu: String,
    /// Frameworks with their versions, as the dataset names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// Memory of the emulated GPU, where it is the one that the job runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Bytes>,
    /// Why its figure has no upper bound; `None`: it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_bound: Option<String>,
    /// Made by the daemon in the background.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl DryRun {
    /// For a job on this model of GPU: the emulated GPU's memory bounds a job only on GPUs of its model.
    #[must_use]
    pub(super) fn on(mut self, gpu_model: Option<&str>) -> Self {
        self.card = self.card.filter(|_| gpu_model.is_none_or(|model| model == self.gpu));
        self
    }

    /// The figures that the memory model reads.
    pub(super) fn figure(&self) -> radrm_estimator::memory::DryRunFigure {
        radrm_estimator::memory::DryRunFigure { held: self.held.0 as f64, kind: self.kind }
    }
}
