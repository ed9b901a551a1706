//! Names of processes within a job.

use serde::{Deserialize, Serialize};

/// Names a process within its job for good: process ids are used again,
/// and so are slots, but not with the same generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// Slot of the segment.
    pub slot: u32,
    /// Number of times that the slot had been used before.
    pub generation: u64,
}
