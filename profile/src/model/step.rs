//! Work of one optimizer step of a dry run, and its predicted time on cards.

use serde::{Deserialize, Serialize};

/// Rows of operations that a profile has; the work of all others is in their sums.
pub const MAX_ROWS: usize = 4096;

/// Operations up to which a profile has their order.
pub const MAX_ORDER: usize = 16_384;

/// Work of one optimizer step of a dry run, and its predicted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictedStep {
    /// Number of the step, from 1.
    pub number: u64,
    /// Processes whose step was recorded. The work is that of the process with the longest time.
    pub processes: u64,
    /// Model of the GPU that was emulated for it.
    pub card: String,
    /// Operations with known work, equal ones together, those with the largest sum of FLOP and bytes first.
    pub work: Vec<WorkRow>,
    /// Operations whose work is unknown: by operator, how often.
    pub unknown: Vec<(String, u64)>,
    /// Operations of the step that use the GPU, unknown ones included.
    pub operations: u64,
    /// FLOP of all known operations.
    pub flop: f64,
    /// Bytes that all known operations read and write.
    pub bytes: f64,
    /// CPU time of a later step of the dry run, which was not recorded, s; `None` if there was none.
    pub host_seconds: Option<f64>,
    /// Reasons why the sum of the operations is not the whole step, as clauses.
    pub incomplete: Vec<String>,
    /// Predicted time on `card` by kind of operation, longest first.
    pub kinds: Vec<KindTime>,
    /// Predicted times by card; cards that lack a type of the step are left out.
    pub cards: Vec<StepTime>,
    /// Operations with known work in the order of their calls, as places in `work`. Empty for a step of more than [`MAX_ORDER`]
    /// operations or [`MAX_ROWS`] rows.
    #[serde(default)]
    pub order: Vec<u32>,
}

impl PredictedStep {
    /// Predicted time on a card.
    #[must_use]
    pub fn on(&self, card: &str) -> Option<&StepTime> {
        self.cards.iter().find(|time| time.card == card)
    }

    /// Number of operations whose work is unknown.
    #[must_use]
    pub fn unknown_operations(&self) -> u64 {
        self.unknown.iter().map(|(_, count)| count).sum()
    }
}

/// Equal operations of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkRow {
    /// Kind, such as `gemm` or `norm-backward`.
    pub kind: String,
    /// Type of the operands, such as `bf16`.
    pub operand: String,
    /// Type of the result.
    pub result: String,
    /// Sizes in the order of the kind's definition (docs/clock.md).
    pub sizes: Vec<f64>,
    /// Number of operations.
    pub count: u64,
    /// FLOP of one.
    pub flop: f64,
    /// Bytes that one reads.
    pub read: f64,
    /// Bytes that one writes.
    pub written: f64,
    /// Predicted time of one on the step's card, s; `None`: it has none.
    #[serde(default)]
    pub seconds: Option<f64>,
}

/// Predicted time of the operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindTime {
    /// Kind.
    pub kind: String,
    /// Number of operations.
    pub operations: u64,
    /// FLOP of all.
    pub flop: f64,
    /// Bytes of all.
    pub bytes: f64,
    /// Time of those with a prediction, s.
    pub seconds: f64,
    /// Part of that time that is assumed and not measured on any card, s.
    pub assumed_seconds: f64,
    /// Number of those without a prediction on this card.
    pub without_time: u64,
}

/// Resource that a step waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepLimit {
    /// The GPU.
    Gpu,
    /// The host: launches come too late.
    Host,
    /// One or the other.
    #[default]
    Unclear,
}

/// Predicted time of a step on a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Card.
    pub card: String,
    /// Expected time, s; `None` if only a lower end is known.
    pub seconds: Option<f64>,
    /// Lower end, s: the step takes at least that.
    pub low: f64,
    /// Upper end, s; `None` if there is none.
    pub high: Option<f64>,
    /// Part of such bounds that hold, 0 to 1: that of the measured kinds.
    pub coverage: f64,
    /// Resource that the step waits for.
    pub limit: StepLimit,
    /// Time of the operations with a prediction, s, with its lower and upper end.
    pub gpu_seconds: [f64; 3],
    /// Part of that time that is assumed and not measured on any card, 0 to 1.
    pub assumed: f64,
    /// Number of operations without a time on this card.
    pub without_time: u64,
    /// SM activity and DRAM activity over the GPU's time, 0 to 1.
    pub activity: [f64; 2],
    /// Energy of the operations with a prediction, J, with its lowest and highest measured value; no coverage is known.
    pub joules: [f64; 3],
}
