//! Errors of a replay.

use std::path::PathBuf;

use radrm_protocol::ProtocolError;
use radrm_scheduler_core::{NoSuchPolicy, PlanError, Policy};
use radrm_text::{Untrusted, did_you_mean};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum ReplayError {
    #[error("{why}, or all{}, or a file such as my_policy.py", did_you_mean(name, Policy::ALL.map(Policy::name)))]
    NoPolicy { name: String, why: NoSuchPolicy },
    #[error("`{0}`: all stands alone")]
    AllAlone(String),
    #[error("{0} is none of {1}{hint}", hint = did_you_mean(.0, .1.split([',', ' ']).filter(|word| !word.is_empty())))]
    NoneOf(String, &'static str),
    #[error("{0}, or none")]
    NoSmact(String),
    #[error("{0} is not a number above 0")]
    NotPositive(String),
    #[error("{} ends with neither .csv nor .json", .0.display())]
    NoFormOfJobs(PathBuf),
    #[error("{0} is not a number from 1 to 1000")]
    NoScatter(String),
    #[error("{} has no estimates of {name}; there are {known}{}", trace.display(), did_you_mean(name, known.split(", ")))]
    NoEstimates { trace: PathBuf, name: String, known: String },
    #[error("{} has no {what}; --estimates FILE adds recorded ones", trace.display())]
    NothingRecorded { trace: PathBuf, what: &'static str },
    #[error("{name}: {why}")]
    Custom { name: String, why: PlanError },
    #[error("{} has no job {job}: name one of its {jobs} jobs, or its number from 0", trace.display())]
    NoJob { trace: PathBuf, job: String, jobs: usize },
    #[error("{name} has no program: there is no {}; name the folder of the .rad files by --rad-files, or a program behind --", file.display())]
    NoProgram { name: Untrusted, file: PathBuf },
    #[error("{name} has no {figure}")]
    NoFigure { name: String, figure: &'static str },
    #[error("radrmd was lost while {name} was submitted, the rest of the trace is not submitted: {why}")]
    LostAt { name: Untrusted, why: ProtocolError },
    #[error("{}: line {line} is no event of radrmd: {why}", log.display())]
    NoEvent { log: PathBuf, line: u64, why: String },
    #[error("{}: no start of radrmd is in it", .0.display())]
    NoStart(PathBuf),
    #[error("{}: line {line}: other decisions come out than were taken", log.display())]
    Differs { log: PathBuf, line: u64 },
}

impl crate::error::CommandError for ReplayError {}
