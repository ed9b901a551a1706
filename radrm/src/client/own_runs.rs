//! Evidence on a job in the user's own dataset.

use std::path::{Path, PathBuf};

use radrm_base::{PastRun, UserId};
use radrm_collector::dataset::{self, Dataset, DatasetError, Origin, ProgramKey};
use radrm_need::{Asked, DryRun, Evidence, Need, NeedResolver, Needs, Trained, UserEstimate};
use radrm_protocol::spec::Spec;

/// A dataset, and what it says of a user's job.
#[derive(Debug, Default)]
pub(crate) struct OwnRuns {
    /// The dataset, if there is one.
    pub(crate) dataset: Option<PathBuf>,
    evidence: Evidence,
    is_edited: bool,
}

impl OwnRuns {
    /// By the named dataset, or by the user's; a user without a dataset has no evidence.
    ///
    /// # Errors
    /// [`DatasetError`]: the dataset cannot be read.
    pub(crate) fn of(spec: &Spec, named: Option<&Path>) -> Result<Self, DatasetError> {
        let path = match named {
            Some(path) => Some(path.to_owned()),
            None => dataset::default_path().filter(|path| path.exists()),
        };
        let Some(path) = path else { return Ok(Self::default()) };
        let program = ProgramKey::of(&spec.command, &spec.cwd, spec.gpus.into());
        let asked = Asked {
            program: &program,
            user: UserId(rustix::process::getuid().as_raw()),
            batch: spec.batch_size(),
            gpu_model: spec.model.as_deref(),
            dry_run: spec.dry_run.as_ref(),
            changed: dataset::last_change(&spec.command, &spec.cwd),
        };
        let (rows, model) = (Dataset::open_existing(&path)?, Trained::default());
        let evidence = Evidence::of(&rows, &asked, &model)?;
        let has_any = |evidence: &Evidence| !evidence.runs.is_empty() || evidence.dry_run.is_some();
        let is_edited =
            !has_any(&evidence) && has_any(&Evidence::of(&rows, &Asked { changed: None, ..asked }, &model)?);
        Ok(Self { dataset: Some(path), evidence, is_edited })
    }

    /// Returns true if the script was changed after all of its runs and dry runs: they are of another program.
    pub(crate) fn is_edited(&self) -> bool {
        self.is_edited
    }

    /// Runs that computed, the newest first: on real GPUs, or where there are none, on emulated ones.
    pub(crate) fn runs(&self) -> &[PastRun] {
        &self.evidence.runs
    }

    /// Origin of these runs.
    pub(crate) fn origin(&self) -> Origin {
        if self.evidence.emulated { Origin::Emulated } else { Origin::Measured }
    }

    /// The job's needs, resolved as the daemon does from these runs and from what the job states.
    pub(crate) fn needs(&self, spec: &Spec) -> Needs {
        NeedResolver::default().resolve(&self.evidence.features(spec.features(&[])))
    }

    /// Answer of each estimator on the job's memory, in order of trust.
    pub(crate) fn answers(&self, spec: &Spec) -> Vec<(String, Need)> {
        NeedResolver::default().answers(&self.evidence.features(spec.features(&[])))
    }

    /// Memory by measured runs, as an estimate for a daemon that has not seen the program run.
    pub(crate) fn estimate(&self, spec: &Spec) -> Option<UserEstimate> {
        let is_measured = !self.runs().is_empty() && self.origin() == Origin::Measured;
        self.needs(spec).memory.filter(|_| is_measured).map(|need| UserEstimate::of_own(&need))
    }

    /// The job's dry run.
    pub(crate) fn dry_run(&self) -> Option<DryRun> {
        self.evidence.dry_run.clone()
    }
}
