//! Retry ladder: where a job is tried again after an out-of-memory.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A rung of the ladder after an out-of-memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Any device with enough more memory.
    More,
    /// A device with at least half of its memory free.
    Emptier,
    /// A device of its own.
    Exclusive,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::More => "any device with more memory free",
            Self::Emptier => "a device that is at least half empty",
            Self::Exclusive => "a device of its own",
        })
    }
}
