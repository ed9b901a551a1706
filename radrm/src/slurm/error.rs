//! Errors of handing a job to Slurm, or of trying it again.

use std::io;
use std::path::PathBuf;

use radrm_base::reason;
use radrm_scheduler_core::{Impossible, Reason};
use thiserror::Error;

/// As one sentence.
#[derive(Debug, Error)]
pub enum SlurmError {
    #[error(
        "{0} is not installed here: install Slurm's client programs (package slurm-client), or submit from a node that has them"
    )]
    NoProgram(&'static str),
    #[error("{program}: {}", reason(source))]
    Program { program: &'static str, source: io::Error },
    #[error("{program}: {said}")]
    Failed { program: &'static str, said: String },
    #[error("{}: {}", path.display(), reason(source))]
    Script { path: PathBuf, source: io::Error },
    #[error("no GPU of this cluster can hold the job: {0}")]
    Impossible(Impossible),
    #[error("{0}")]
    NotAgain(Reason),
    #[error("the script starts steps by srun, which only run in Slurm")]
    StartsSteps,
    #[error("job {job} is {state}")]
    NotRunning { job: u32, state: String },
}

impl crate::error::CommandError for SlurmError {}
