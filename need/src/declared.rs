//! Needs and estimates that the user states.

use radrm_base::Millis;

use super::{Estimator, Features, Known, Need, Source, UserEstimate};

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
        job.declared_time.map(|value| Known { value, bound: None, source: Source::Declared })
    }
}

impl Estimator for UserEstimate {
    fn name(&self) -> &'static str {
        "user's estimate"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let UserEstimate { bytes, upper, confidence, source } = job.estimate?;
        // Runs that only the user's dataset holds confirm no limit: this node has not seen them.
        let source = match source {
            None => Source::UserEstimate,
            Some(own) => Source::OwnDataset(Box::new(own.clone())),
        };
        Some(Need::new(*bytes, *upper, *confidence, source))
    }
}
