//! Actions that the scheduler decides, each with its reason.

use serde::{Deserialize, Serialize};

use crate::device::DeviceId;
use crate::job::JobId;
use crate::outcome::Outcome;
use crate::reason::Reason;
use crate::units::{Bytes, Millis, Permille};

/// An action and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Action to carry out.
    pub action: Action,
    /// Reason for the action.
    pub reason: Reason,
}

/// Action for the caller. The caller carries out actions in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Start the job. Answer: `Started`, or `Finished` with the same attempt.
    Start {
        /// The job.
        job: JobId,
        /// Its attempt, from 1.
        attempt: u32,
        /// Devices to run on; empty for a job without GPUs.
        devices: Vec<DeviceId>,
        /// Memory limit on each device, to be enforced; `None`: no limit.
        limit: Option<Bytes>,
        /// Memory set aside for it on each device; `None`: the devices as a whole.
        reserved: Option<Bytes>,
    },
    /// Record a new reservation of a running job of unknown or estimated need, by the job's measured use.
    /// Nothing else is to be done: no job is limited to a use that was merely observed.
    SetAside {
        /// The job.
        job: JobId,
        /// On each of its devices, in place of the device as a whole or of the estimate.
        reserved: Bytes,
    },
    /// Set a running job's launch budget on all its devices. Replaces the one before.
    SetBudget {
        /// The job.
        job: JobId,
        /// The budget; `None` lifts it.
        budget: Option<LaunchBudget>,
    },
    /// Send a signal to the job.
    Signal {
        /// The job.
        job: JobId,
        /// Signal to send.
        signal: Signal,
    },
    /// Suspend the job in place. Answer: `Suspended` or `SuspendFailed`.
    Suspend {
        /// The job.
        job: JobId,
    },
    /// Bring a suspended job back; its memory is set aside already. Answer: `Resumed`,
    /// `ResumeFailed`, or `Finished` if it is lost.
    Resume {
        /// The job.
        job: JobId,
        /// Devices to resume on.
        devices: Vec<DeviceId>,
    },
    /// The job is back in the queue. Nothing to do but to write it down.
    Requeue {
        /// The job.
        job: JobId,
        /// Attempts made so far.
        attempts: u32,
        /// Attempts among them that ran out of memory.
        ooms: u32,
        /// Memory known not to suffice.
        floor: Bytes,
    },
    /// All that the job waited for has ended: it waits for its turn since now. Nothing to do but to write it down.
    Ready {
        /// The job.
        job: JobId,
    },
    /// The job is over and forgotten.
    End {
        /// The job.
        job: JobId,
        /// Verdict on the job.
        verdict: Verdict,
    },
    /// Send a `Tick` at this time if nothing comes earlier. A later `WakeAt` replaces this one.
    WakeAt {
        /// Time of the `Tick`.
        at: Millis,
    },
}

impl Action {
    /// The job that it is about.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Start { job, .. }
            | Self::SetAside { job, .. }
            | Self::SetBudget { job, .. }
            | Self::Signal { job, .. }
            | Self::Suspend { job }
            | Self::Resume { job, .. }
            | Self::Requeue { job, .. }
            | Self::Ready { job }
            | Self::End { job, .. } => Some(*job),
            Self::WakeAt { .. } => None,
        }
    }
}

/// Limit on how fast a job launches kernels.
/// The shim applies it inline: launches beyond `in_flight` wait, and on a device with several budgets each job gets SM
/// time by its weight. A job that has nothing to launch gives its part to the others. A graph launch is priced by its
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaunchBudget {
    /// Part of the device's SM time.
    pub share: Permille,
    /// Most launches in flight.
    pub in_flight: u16,
    /// Period of its launch slots; `None`: the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Millis>,
    /// It launches only while no request of this job is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<JobId>,
}

/// A signal to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Its own checkpoint signal, by number; 0 sends none.
    Checkpoint(i32),
    /// SIGTERM.
    Terminate,
    /// SIGKILL, to the whole job.
    Kill,
}

/// Final result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Its last attempt ended so: code 0 is success.
    Ended(Outcome),
    /// It was cancelled.
    Cancelled,
    /// It ran longer than its limit.
    TimedOut,
    /// No device (or node) could ever hold it.
    Impossible,
    /// Its user may not have it.
    Rejected,
}

impl Verdict {
    /// Returns true if the job did what it was submitted for: exit code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Ended(Outcome::Exited { code: 0 })
    }
}
