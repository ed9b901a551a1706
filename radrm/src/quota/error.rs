//! Errors of showing or changing limits.

use radrm_limits::LimitError;
use radrm_limits::amount::shown;
use radrm_telemetry::ledger::{Amount, LedgerError};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum QuotaError {
    #[error(
        "`{0}` is neither a job (the process id that `radrm quota show` lists) nor user:NAME nor group:NAME"
    )]
    NoTarget(String),
    #[error("there is no user {0}")]
    NoUser(String),
    #[error("there is no group {0}")]
    NoGroup(String),
    #[error("there is no job {0}, as far as you can see")]
    NoJob(u32),
    #[error("only {0} sets up limits of users and groups")]
    NotAdministrator(&'static str),
    #[error("{0} is a job: its limit needs no setup")]
    NeedsNoSetup(u32),
    #[error("user {user} cannot be set up: {error}")]
    NotSetUp { user: String, error: LedgerError },
    #[error("--sm-limit is a job's, not a user's or a group's")]
    ShareOfMany,
    #[error("job {0} has no configured limit to go back to: give one")]
    NotConfigured(u32),
    #[error(
        "job {0} was started without a limit, so its processes do not count against one: start it with --mem-limit \
         100%, and its limit can be changed while it runs"
    )]
    Unlimited(u32),
    #[error("this node allows a job at most {}", shown(*.0))]
    AboveCap(Amount),
    #[error("only root may give job {job} more than {by} gave it, which is {} of this GPU", shown(*.most))]
    AboveGiven { job: u32, by: &'static str, most: Amount },
    #[error("only root may give job {job} more of its GPUs' time than {by} gave it, which is {most} %")]
    AboveGivenShare { job: u32, by: &'static str, most: u16 },
    #[error("job {job} was given no GPU by {by}: an amount without a GPU is for those that it was given")]
    NoOwnGpu { job: u32, by: &'static str },
    #[error("only root may change the limit of {whose}{}", if *.shared { ", which others share" } else { "" })]
    NotOwn { whose: String, shared: bool },
    #[error("only root may give {whose} more than the configuration does, which is {}", shown(*.most))]
    AboveConfiguration { whose: String, most: Amount },
    #[error(
        "the change of {whose} cannot be kept: {error}{}",
        setup.as_ref().map(|command| format!("; root sets it up by `{command}`")).unwrap_or_default()
    )]
    NotKept { whose: String, error: LedgerError, setup: Option<String> },
    #[error("the ledger knows as many GPUs as it can")]
    FullLedger,
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl crate::error::CommandError for QuotaError {}
