//! Runs of a job that its user's dataset holds.

use std::path::{Path, PathBuf};

use radrm_base::PastRun;
use radrm_collector::dataset::{self, Dataset, DatasetError, Origin, PastRuns, ProgramKey};
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::need::{Calibration, DryRun, Features, MAX_RUNS, Need, UserEstimate};
use radrm_scheduler_core::{NeedResolver, Needs, UserId};

/// Runs that a user's job can be estimated from.
#[derive(Debug, Default)]
pub(crate) struct OwnRuns {
    /// The dataset, if there is one.
    pub(crate) dataset: Option<PathBuf>,
    /// Runs that computed, the newest first: on real GPUs, or where there are none, on emulated ones.
    pub(crate) runs: Vec<PastRun>,
    /// Where these ran.
    pub(crate) origin: Origin,
    /// The newest dry run at the job's batch size.
    dry_run: Option<DryRun>,
    /// What real runs of dry-run programs took.
    calibration: Calibration,
}

impl OwnRuns {
    /// Those in the named dataset, or in the user's; a user without a dataset has none.
    ///
    /// # Errors
    /// [`DatasetError`]: the dataset cannot be read.
    pub(crate) fn of(spec: &Spec, named: Option<&Path>) -> Result<Self, DatasetError> {
        let path = match named {
            Some(path) => Some(path.to_owned()),
            None => dataset::default_path().filter(|path| path.exists()),
        };
        let Some(path) = path else { return Ok(Self::default()) };
        let dataset = Dataset::open_existing(&path)?;
        let key = ProgramKey::of(&spec.command, &spec.cwd, spec.gpus.into());
        let select = |origin, emulated| {
            let of = PastRuns {
                origin,
                uid: rustix::process::getuid().as_raw(),
                gpu_model: spec.model.as_deref(),
                emulated,
                limit: u32::try_from(MAX_RUNS).unwrap_or(u32::MAX),
            };
            dataset.past_runs(&key, &of)
        };
        let mut found = Self { runs: select(Origin::Measured, false)?, ..Self::default() };
        if found.runs.is_empty() {
            found.runs = select(Origin::Emulated, true)?;
            found.origin = if found.runs.is_empty() { Origin::Measured } else { Origin::Emulated };
        }
        let uid = rustix::process::getuid().as_raw();
        if let Some(run) = dataset.newest_dry_run(&key, uid, spec.batch_size(), spec.model.as_deref())? {
            let gpu = run.gpu_model.clone().unwrap_or_else(|| "GPU".to_owned());
            let of = |held, kind| DryRun { held, kind, gpu: gpu.clone(), ..DryRun::default() };
            for pair in dataset.dry_run_pairs(&run, spec.model.as_deref())?.pairs {
                found.calibration.observe_dry_run(UserId(uid), &of(pair.held, pair.kind), pair.peak);
            }
            found.dry_run = Some(of(run.held, run.kind));
        }
        found.dataset = Some(path);
        Ok(found)
    }

    /// The job's needs, resolved as the daemon does from these runs and from what the job states.
    pub(crate) fn needs(&self, spec: &Spec) -> Needs {
        NeedResolver::default().resolve(&self.features(spec))
    }

    /// What each estimator says of the job's memory, in order of trust.
    pub(crate) fn answers(&self, spec: &Spec) -> Vec<(String, Need)> {
        NeedResolver::default().answers(&self.features(spec))
    }

    fn features<'a>(&'a self, spec: &'a Spec) -> Features<'a> {
        let features = spec.features(&self.runs);
        let dry_run = features.dry_run.or(self.dry_run.as_ref());
        let user = Some(UserId(rustix::process::getuid().as_raw()));
        Features { dry_run, user, calibration: Some(&self.calibration), ..features }
    }

    /// Memory by measured runs, as an estimate for a daemon that has not seen the program run.
    pub(crate) fn estimate(&self, spec: &Spec) -> Option<UserEstimate> {
        let is_measured = !self.runs.is_empty() && self.origin == Origin::Measured;
        let need = self.needs(spec).memory.filter(|_| is_measured)?;
        let from = format!("{} under radrm-run", need.source);
        Some(UserEstimate { bytes: need.bytes, upper: need.upper, from })
    }
}
