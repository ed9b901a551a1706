//! Why a command failed.

use std::io;

use radrm_collector::dataset::DatasetError;
use radrm_console::output::reason;
use radrm_console::usage;
use radrm_launcher::report_file::ReportFileError;
use radrm_limits::LimitError;
use radrm_protocol::ProtocolError;
use thiserror::Error;

/// Why a command failed, as one sentence.
#[derive(Debug, Error)]
pub enum Failure {
    /// Options that each are right contradict each other.
    #[error("{0}")]
    Usage(String),
    /// It went wrong.
    #[error("{0}")]
    Work(String),
    /// Standard output is closed or full.
    #[error("standard output cannot be written: {}", reason(.0))]
    Output(#[source] io::Error),
    /// The environment does not say where the user's files are.
    #[error("neither XDG_DATA_HOME nor HOME says where the dataset is")]
    NoDataset,
    /// A page or trace cannot be written.
    #[error(transparent)]
    ReportFile(#[from] ReportFileError),
    /// A dataset cannot be used.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Limits are not known, or cannot be set.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The daemon does not answer, or rejects the request.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl Failure {
    /// The program's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => usage::WRONG,
            _ => 1,
        }
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Work(sentence)
    }
}
