//! Predictors of others: a model of speeds from outside of this crate, with its first failure.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::interference::Resident;

/// A planner or a predictor failed, or decided what cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// Predicts the speeds of jobs that share a GPU, in place of this project's own predictions.
pub trait SpeedModel: fmt::Debug + Send + Sync {
    /// Speeds of jobs together on one GPU, in their order: 1 is that alone.
    ///
    /// # Errors
    /// It cannot predict: the replay ends.
    fn speeds(&self, jobs: &[Resident]) -> Result<Vec<f64>, PlanError>;
}

/// The predictor; clones share the failure.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    model: Arc<dyn SpeedModel>,
    failure: Arc<Mutex<Option<PlanError>>>,
}

impl Outside {
    pub(crate) fn new(model: Arc<dyn SpeedModel>) -> Self {
        Self { model, failure: Arc::default() }
    }

    /// The first failure. What was predicted since means nothing.
    pub(crate) fn failure(&self) -> Option<PlanError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Speeds of the jobs of a device, into a vector that is used again. A job alone has its whole speed.
    pub(crate) fn speeds_into(&self, jobs: &[Resident], out: &mut Vec<f64>) {
        out.clear();
        if jobs.len() < 2 {
            out.resize(jobs.len(), 1.0);
            return;
        }
        let found = self.model.speeds(jobs).and_then(|speeds| checked(speeds, jobs.len()));
        match found {
            Ok(speeds) => *out = speeds,
            Err(error) => {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                out.resize(jobs.len(), 1.0);
            }
        }
    }
}

/// A speed for each job, above 0 and no more than that alone.
fn checked(speeds: Vec<f64>, jobs: usize) -> Result<Vec<f64>, PlanError> {
    if speeds.len() != jobs {
        return Err(PlanError(format!("{} speeds were predicted for {jobs} jobs", speeds.len())));
    }
    match speeds.iter().find(|speed| !(**speed > 0.0 && **speed <= 1.0)) {
        Some(speed) => {
            Err(PlanError(format!("a speed of {speed} was predicted: it must be above 0 and at most 1")))
        }
        None => Ok(speeds),
    }
}
