//! Figures of a job's dry run on an emulated GPU.

use radrm_base::{Bytes, ProgramKind};
use serde::{Deserialize, Serialize};

use super::StepPrediction;

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
    /// Predicted step on the emulated GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Box<StepPrediction>>,
    /// Made by the daemon in the background.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl DryRun {
    /// For a job on this model of GPU: the emulated GPU's memory bounds a job only on GPUs of its model, and the predicted step
    /// is one on such a GPU.
    #[must_use]
    pub(super) fn on(self, gpu_model: Option<&str>) -> Self {
        let is_its_model = gpu_model.is_none_or(|model| model == self.gpu);
        let (card, step) = (self.card.filter(|_| is_its_model), self.step.filter(|_| is_its_model));
        Self { card, step, ..self }
    }

    /// The figures that the memory model reads.
    pub(super) fn figure(&self) -> radrm_estimator::memory::DryRunFigure {
        radrm_estimator::memory::DryRunFigure { held: self.held.0 as f64, kind: self.kind }
    }
}
