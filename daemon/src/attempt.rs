//! Name of an attempt.

/// A job and its attempt.
pub(crate) type Attempt = (u64, u32);
