//! How much GPU memory a job will need, before it runs.
//!
//! Every estimator answers with a figure, an upper bound, and how often the bound is kept; the
//! scheduler sets the bound aside. [`Chain`] asks the one that knows most first.

mod history;
mod horus;
mod summary;

use serde::{Deserialize, Serialize};

use crate::job::Need;
use crate::units::{Bytes, Permille};

pub use history::{History, Run};
pub use horus::Horus;
pub use summary::{Layer, ModelSummary, SummaryError};

/// What is known of a job before it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// What it runs: equal for runs that differ only in size (program, arguments without the batch
    /// size, model, dataset).
    pub program: String,
    /// Samples in a batch, on each GPU.
    pub batch: Option<u32>,
    /// The model, from a summary.
    pub model: Option<ModelSummary>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure to expect, on each GPU.
    pub bytes: Bytes,
    /// The bound.
    pub upper: Bytes,
    /// How often runs stay at or under the bound.
    pub confidence: Permille,
    /// An equal run was measured.
    pub measured: bool,
}

impl Estimate {
    /// As a job's need.
    #[must_use]
    pub fn need(self) -> Need {
        if self.measured {
            Need::Measured(self.upper)
        } else {
            Need::Estimated { bytes: self.bytes, upper: self.upper }
        }
    }
}

/// Something that estimates.
pub trait Estimator {
    /// Its name in files and on command lines.
    fn name(&self) -> &str;

    /// The answer, or `None` if it has none for such a job.
    fn estimate(&self, job: &Features) -> Option<Estimate>;
}

/// Several estimators; the first that has an answer gives it.
#[derive(Default)]
pub struct Chain(pub Vec<Box<dyn Estimator + Send + Sync>>);

impl Estimator for Chain {
    fn name(&self) -> &str {
        "chain"
    }

    fn estimate(&self, job: &Features) -> Option<Estimate> {
        self.0.iter().find_map(|estimator| estimator.estimate(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_asks_the_first_that_knows() {
        let mut history = History::default();
        history.add("a", Run { batch: Some(8), peak: Bytes::from_gib(3), complete: true });
        let chain = Chain(vec![Box::new(history), Box::new(Horus::default())]);
        let known = Features { program: "a".into(), batch: Some(8), model: None };
        assert_eq!(chain.estimate(&known).unwrap().need(), Need::Measured(Bytes::from_gib(3)));
        assert_eq!(chain.estimate(&Features { program: "b".into(), ..known.clone() }), None);
        let model = ModelSummary { parameters: 1 << 20, activations: 1 << 20, ..ModelSummary::default() };
        let other = Features { program: "b".into(), model: Some(model), ..known };
        assert!(matches!(chain.estimate(&other).unwrap().need(), Need::Estimated { .. }));
    }
}
