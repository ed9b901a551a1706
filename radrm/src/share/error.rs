//! Errors that keep `radrm share` from starting programs.

use std::io;

use radrm_base::reason;
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum ShareError {
    #[error("no folder for the programs can be made: {0}")]
    Session(#[source] io::Error),
    #[error("signals cannot be waited for: {0}")]
    Signals(#[source] io::Error),
    #[error("{program} cannot be started: {}", reason(source))]
    Start { program: String, source: io::Error },
}

impl crate::error::CommandError for ShareError {}
