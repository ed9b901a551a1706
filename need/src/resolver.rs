//! Estimators in order of trust.

use std::fmt;

use super::{Estimator, Features, Need, Needs, Trained, order};

/// Estimators in order of trust; the first that has an answer gives it.
pub struct NeedResolver(Vec<Box<dyn Estimator + Send + Sync>>);

impl fmt::Debug for NeedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|estimator| estimator.name())).finish()
    }
}

impl Default for NeedResolver {
    fn default() -> Self {
        Self::with(&Trained::default())
    }
}

impl NeedResolver {
    /// The usual order with this memory model.
    #[must_use]
    pub fn with(model: &Trained) -> Self {
        Self(order::usual(model))
    }

    /// One that asks these, in order.
    #[must_use]
    pub fn new(estimators: Vec<Box<dyn Estimator + Send + Sync>>) -> Self {
        Self(estimators)
    }

    /// Returns the answer of each estimator for the job's memory, in order of trust: the first is what is resolved.
    #[must_use]
    pub fn answers(&self, job: &Features<'_>) -> Vec<(String, Need)> {
        let answers =
            self.0.iter().map(|estimator| Some((estimator.name().to_owned(), estimator.memory(job)?)));
        answers.flatten().collect()
    }

    /// All that is known.
    #[must_use]
    pub fn resolve(&self, job: &Features<'_>) -> Needs {
        Needs {
            memory: self.0.iter().find_map(|estimator| estimator.memory(job)),
            activity: self.0.iter().find_map(|estimator| estimator.activity(job)),
            run_time: self.0.iter().find_map(|estimator| estimator.run_time(job)),
            host: self.0.iter().find_map(|estimator| estimator.host(job)),
        }
    }
}
