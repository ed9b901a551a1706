//! Recording mode of a process's launches and copies.

use super::ProcessKey;
use serde::{Deserialize, Serialize};

/// Recording mode of launches; copies are counted in every mode but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelsMode {
    /// Nothing: zeros say nothing of what the process did.
    Off,
    /// Launches are counted.
    Count,
    /// Launches are counted, and some are timed.
    Sample,
    /// Launches are counted and timed, all of them.
    All,
}

impl KernelsMode {
    /// As it is written in options, in the environment and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            KernelsMode::Off => "off",
            KernelsMode::Count => "count",
            KernelsMode::Sample => "sample",
            KernelsMode::All => "all",
        }
    }
}

/// Recording mode of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Key of the process.
    pub key: ProcessKey,
    /// Of its launches and copies.
    pub kernels: KernelsMode,
}
