//! Errors of producers and consumers.

use std::io;
use std::path::PathBuf;

use crate::description::BadDescription;
use crate::message::BadMessage;

/// Reason that a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the system failed.
    #[error("{what}: {error}")]
    System {
        /// Action that failed.
        what: &'static str,
        /// Error of the operation.
        error: io::Error,
    },
    /// The name cannot be that of a file.
    #[error("the name {0:?} is not 1 to 64 letters, digits, `-`, `_` and `.`, without `.` in front")]
    Name(String),
    /// A folder that others can enter, or that belongs to another user.
    #[error("{0}: not used, because it is not a folder of this user with mode 0700")]
    Folder(PathBuf),
    /// No folder for the socket.
    #[error("no folder for the socket: {0}")]
    NoFolder(String),
    /// Another producer runs under this name.
    #[error("a producer named {0:?} runs already")]
    Taken(String),
    /// No producer runs under this name.
    #[error("no producer named {0:?} runs")]
    NoProducer(String),
    /// A call of the CUDA driver failed.
    #[error("{what}: {error}")]
    Cuda {
        /// Action that failed.
        what: &'static str,
        /// The driver's name of the error.
        error: String,
    },
    /// No GPU that batches can lie on.
    #[error("{0}")]
    Gpu(String),
    /// The peer runs as another user.
    #[error("the peer runs as user {0}")]
    OtherUser(u32),
    /// The peer does not follow the protocol.
    #[error("the peer broke the protocol: {0}")]
    Message(#[from] BadMessage),
    /// A batch's description is not sound.
    #[error("the batch's description is not valid: {0}")]
    Description(#[from] BadDescription),
    /// The producer does not take this consumer.
    #[error("{text}")]
    Refused {
        /// Reason, as a number of [`crate::message::Refusal`].
        code: u16,
        /// Reason, in words.
        text: String,
    },
    /// The producer has ended without a word.
    #[error("the producer has died")]
    Died,
    /// The loader of the producer raised an exception.
    #[error("the producer's loader failed: {0}")]
    Failed(String),
    /// The call does not fit the state.
    #[error("{0}")]
    Misuse(&'static str),
}

impl Error {
    /// With what was tried.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// Reason of the failure, without the operation that was tried.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Cuda { error, .. } => error.clone(),
            other => other.to_string(),
        }
    }
}
