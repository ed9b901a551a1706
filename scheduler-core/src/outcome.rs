//! Outcomes of attempts.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// With an exit code.
    Exited {
        /// The code.
        code: i32,
    },
    /// By a signal.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// It failed after a request for GPU memory was refused.
    OutOfMemory {
        /// Memory that it held when the request was refused, plus the request; `None`: not known.
        seen: Option<Bytes>,
        /// Evidence for the out-of-memory.
        evidence: Evidence,
        /// Exit code of the program.
        code: i32,
    },
    /// It failed after the kernel killed a process of it for want of host memory.
    HostOutOfMemory {
        /// The limit that its processes reached.
        limit: Bytes,
        /// Exit code of the program.
        code: i32,
    },
    /// It could not be started (no such program, user gone).
    NotStarted,
    /// Its machine or device failed, or the restore of a suspended job: not its own fault.
    Lost,
}

/// Evidence for an out-of-memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The shim saw the refused request.
    Shim,
    /// The program's output says so, and it ran without the shim.
    Log,
    /// The shim saw the refused request, and its user or group may not have as much: no device has more.
    Limit,
}
