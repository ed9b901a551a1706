//! Jobs that have to stop, and what follows.

use serde::{Deserialize, Serialize};

use crate::action::{Signal, Verdict};
use crate::reason::Reason;

/// Follow-up of a stop, once the job has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Back to the queue, however it ends: it was asked to leave, and may have done so with any code.
    Requeue,
    /// Back to the queue unless it succeeded: its device failed under it.
    DeviceLost,
    /// Over.
    End(Verdict),
}

/// A job that has to stop, for a caller that goes on with that after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Follow-up of the stop.
    pub after: After,
    /// The last signal that was decided for it.
    pub signal: Signal,
    /// Reason for the stop.
    pub reason: Reason,
    /// It gives way because its slot is over: it goes behind those that waited.
    #[serde(default)]
    pub slot_over: bool,
}
