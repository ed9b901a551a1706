//! Processes of the job that are in no other figure, and calls of `cuInit` that failed.

use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Meaning of a process without figures for its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncounted {
    /// The job has a limit, and the process held memory beside it.
    Outside,
    /// The job has a limit, and the process got no memory.
    Refused,
    /// The job has no limit, and the process is in no figure.
    #[default]
    Unseen,
}

/// A process of the job that no figure contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountedProcess {
    /// Meaning for the job.
    pub kind: Uncounted,
    /// Process id.
    pub pid: u32,
    /// Command line; empty if the process had ended before it could be read.
    pub command: String,
    /// Cause, by the name that `radrm audit` has for it.
    pub reason: String,
    /// The cause as a sentence about the process, without its subject.
    pub explanation: String,
    /// Remedy for the user, as a clause.
    pub remedy: String,
    /// Time at which it was first seen.
    pub first: Nanos,
    /// Time at which it was last seen.
    pub last: Nanos,
    /// Memory that it held, by GPU.
    pub gpus: Vec<UncountedMemory>,
}

/// Memory that a process held of a GPU beyond what is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncountedMemory {
    /// UUID of the GPU as the driver's tools print it.
    pub gpu: String,
    /// Number of the GPU for NVML, if it has one.
    pub index: Option<u32>,
    /// Highest figure of NVML's, as far as nothing counted explains it.
    pub peak: Bytes,
}

/// A process in which `cuInit` failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitFailure {
    /// Time of the failure.
    pub t: Nanos,
    /// Process id.
    pub pid: u32,
    /// The driver's code.
    pub code: u32,
    /// Name of the code; empty if it is not known.
    pub name: String,
    /// Its meaning: a clause.
    pub meaning: String,
    /// Remedy for the user, as a clause.
    pub remedy: String,
}
