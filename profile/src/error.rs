//! What can go wrong, one clear sentence each.

use std::io;
use thiserror::Error;

/// A profile cannot be read. The sentences name no file: the caller knows it.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("the profile cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Empty file.
    #[error("the file is empty: the job ended before its profile was begun")]
    Empty,
    /// The file's first bytes are not a profile's.
    #[error("this is not a radrm profile")]
    Foreign,
    /// Written by a newer version.
    #[error(
        "the profile has format version {found}, this radrm reads up to version {known}: use a newer radrm"
    )]
    Newer {
        /// The file's version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// Written by an older version, in a layout that is not read any more.
    #[error(
        "the profile has format version {found}, this radrm reads version {known}: use the radrm that wrote it"
    )]
    Older {
        /// The file's version.
        found: u32,
        /// The version that can be read.
        known: u32,
    },
    /// The file ends before its first record does.
    #[error("the profile is cut off inside its header, after {bytes} bytes")]
    CutOff {
        /// Bytes in the file.
        bytes: u64,
    },
    /// The head's or the first record's checksum or content is wrong.
    #[error("the profile's header is damaged")]
    DamagedHeader,
}

/// A profile cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The system refused it (disk full, no permission...).
    #[error("the profile cannot be written: {0}")]
    Io(#[from] io::Error),
    /// A record is too large for a frame.
    #[error("a record of {bytes} bytes is too large for a profile")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A record cannot be encoded.
    #[error("a record cannot be encoded: {0}")]
    Encode(String),
}

/// A frame's content is not what its type says.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct DecodeError(pub(crate) String);
