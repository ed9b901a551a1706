//! Options that name a whole training: its steps, and what an hour of each card costs.

use radrm_analyzer::Training;
use thiserror::Error;

use crate::prices::{PriceError, PriceFlags};

/// The options as they stand on the command line.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TrainingFlags {
    /// Optimizer steps of the whole training: a dry run's report shows its predicted time, energy and, with --price or --prices,
    /// cost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    total_steps: Option<u64>,
    #[command(flatten)]
    prices: PriceFlags,
}

/// Why the options are not taken, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TrainingError {
    /// Prices without a number of steps.
    #[error("{0} needs --total-steps")]
    NoSteps(&'static str),
    /// A price is not taken.
    #[error(transparent)]
    Price(#[from] PriceError),
}

impl TrainingFlags {
    /// Name of the first option that was given.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        self.total_steps.map(|_| "--total-steps").or_else(|| self.prices.given())
    }

    /// The training that they name; `None` without a number of steps.
    ///
    /// # Errors
    /// [`TrainingError`].
    pub fn resolve(&self) -> Result<Option<Training>, TrainingError> {
        match (self.total_steps, self.prices.given()) {
            (None, None) => Ok(None),
            (None, Some(option)) => Err(TrainingError::NoSteps(option)),
            (Some(steps), _) => Ok(Some(Training { steps, prices: self.prices.resolve()? })),
        }
    }
}
