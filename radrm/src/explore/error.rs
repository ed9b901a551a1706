//! Errors that prevent serving the page.

use std::io;

use radrm_base::reason;
use thiserror::Error;

/// Reason that the page is not served, as one sentence.
#[derive(Debug, Error)]
pub(crate) enum ExploreError {
    #[error("--port {port}: {}: leave the option out to get a free port", reason(error))]
    NoPort { port: u16, error: io::Error },
    #[error("the page cannot be served: {}", reason(.0))]
    NoServer(#[source] io::Error),
    #[error("no random token can be made from /dev/urandom: {}", reason(.0))]
    NoToken(#[source] io::Error),
    #[error("signals cannot be taken: {}", reason(.0))]
    Signals(#[source] io::Error),
}

impl crate::error::CommandError for ExploreError {}
