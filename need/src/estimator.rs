//! Requests to estimators, and their answers.

use std::collections::BTreeMap;

use radrm_base::{Bytes, HostUse, Millis, PastRun, SeenActivity, UserId};

use super::{Calibration, DryRun, Known, ModelSummary, Need, UserEstimate};

/// Knowledge about a job before it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features<'a> {
    /// GPU memory that the user declares, and its upper bound.
    pub declared: Option<Bytes>,
    /// See `declared`; alone it is both.
    pub declared_upper: Option<Bytes>,
    /// Optimizer steps of the whole training.
    pub total_steps: Option<u64>,
    /// Run time that the user declares.
    pub declared_time: Option<Millis>,
    /// Earlier runs of the same program, the newest first. At most [`super::MAX_RUNS`] are read.
    pub runs: &'a [PastRun],
    /// A dry run of it.
    pub dry_run: Option<&'a DryRun>,
    /// The job may run on another model of GPU than its dry run emulated: the predicted step is none of its own.
    pub on_other_gpu: bool,
    /// An estimate of the user.
    pub estimate: Option<&'a UserEstimate>,
    /// Estimates in the job's file, by name of the estimator.
    pub file: Option<&'a BTreeMap<String, Bytes>>,
    /// The summary of the model that it trains.
    pub summary: Option<&'a ModelSummary>,
    /// Samples in a batch, on each GPU.
    pub batch: Option<u32>,
    /// User who submits it.
    pub user: Option<UserId>,
    /// Calibration by how earlier bounds held where the job will run.
    pub calibration: Option<&'a Calibration>,
}

/// Something that estimates.
pub trait Estimator {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// GPU memory, or `None` if it has no answer for such a job.
    fn memory(&self, _: &Features<'_>) -> Option<Need> {
        None
    }

    /// Activity of the job alone on a GPU, or `None` if it has no answer.
    fn activity(&self, _: &Features<'_>) -> Option<Known<SeenActivity>> {
        None
    }

    /// Run time of the job, or `None` if it has no answer.
    fn run_time(&self, _: &Features<'_>) -> Option<Known<Millis>> {
        None
    }

    /// Host use of the job, or `None` if it has no answer.
    fn host(&self, _: &Features<'_>) -> Option<Known<HostUse>> {
        None
    }
}
