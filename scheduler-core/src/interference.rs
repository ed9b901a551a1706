//! Interference of jobs on one GPU: the estimator's predictions, and what is learned for each GPU model.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use radrm_estimator::interference::{
    Activity, Companies, Constants, HostLoad, HostSpec, Learner, Predictor, Program, Resident, ShareCurve,
    Speed, both, compose, host_speeds, speeds, speeds_into,
};

use crate::units::Permille;

/// Activity that is assumed of a job that was never seen, where the settings say nothing else.
pub(crate) const USUAL: Activity =
    Activity { smact: Permille(650), smocc: Permille(300), drama: Permille(400) };

/// A job that was seen to share a GPU with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sharer {
    /// Its program.
    pub program: Program,
    /// Activity alone on a GPU.
    pub activity: Activity,
    /// Its speed in this company against running alone.
    pub speed: Permille,
}

/// Learner and predictor of each GPU model.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    start: Constants,
    models: BTreeMap<String, (Learner, Arc<Predictor>)>,
}

impl Sharing {
    pub(crate) fn new(start: Constants) -> Self {
        Self { start, models: BTreeMap::new() }
    }

    fn model(&mut self, name: &str) -> &mut (Learner, Arc<Predictor>) {
        self.models.entry(name.to_owned()).or_insert_with(|| {
            let learner = Learner::new(self.start);
            let predictor = Arc::new(learner.predictor().clone());
            (learner, predictor)
        })
    }

    /// The predictions for a model of GPU.
    pub(crate) fn of(&mut self, model: &str) -> Arc<Predictor> {
        Arc::clone(&self.model(model).1)
    }

    /// Jobs were seen to share a GPU of this model. Returns the predictions if they changed.
    pub(crate) fn observe(&mut self, model: &str, jobs: &[Sharer]) -> Option<Arc<Predictor>> {
        let (learner, predictor) = self.model(model);
        let residents: Vec<Resident> =
            jobs.iter().map(|job| Resident { program: Some(job.program), activity: job.activity }).collect();
        let speeds: Vec<f64> = jobs.iter().map(|job| job.speed.fraction()).collect();
        learner.observe(&residents, &speeds);
        learner.learn_if_due().then(|| {
            *predictor = Arc::new(learner.predictor().clone());
            Arc::clone(predictor)
        })
    }
}
