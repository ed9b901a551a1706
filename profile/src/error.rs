//! Errors of reading and of writing a profile, one clear sentence each.

use std::io;
use thiserror::Error;

/// A profile cannot be read. The sentences name no file: the caller knows it.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum ReadError {
    #[error("the profile cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the file is empty: the job ended before its profile was begun")]
    Empty,
    #[error("this is not a radrm profile")]
    Foreign,
    #[error(
        "the profile has format version {found}, this radrm reads version {known}: use the radrm that wrote it"
    )]
    Version { found: u32, known: u32 },
    #[error("the profile is cut off inside its header, after {bytes} bytes")]
    CutOff { bytes: u64 },
    #[error("the profile's header is damaged")]
    DamagedHeader,
}

/// A profile cannot be written.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum WriteError {
    #[error("the profile cannot be written: {0}")]
    Io(#[from] io::Error),
    #[error("a record of {bytes} bytes is too large for a profile")]
    TooLarge { bytes: usize },
    #[error("a record cannot be encoded: {0}")]
    Encode(String),
}

/// A frame's content is not what its type says.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct DecodeError(pub(crate) String);
