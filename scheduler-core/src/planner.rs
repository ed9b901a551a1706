//! Policies of others: code outside of this crate that decides over the same state.

use crate::device::DeviceId;
use crate::event::Event;
use crate::interference::Activity;
use crate::job::JobId;
use crate::outside::PlanError;
use crate::state::State;
use crate::units::{Bytes, Millis};
use radrm_base::UserId;

/// Chooses the GPUs of waiting jobs in place of a [`crate::Policy`], under [`crate::Settings::planned`].
///
/// Equal calls must have equal answers, or two replays of a trace differ.
pub trait Planner {
    /// Something happened: the state takes it in after this.
    fn happened(&mut self, _at: Millis, _event: &Event) {}

    /// Decides which waiting jobs start, and where. Called whenever something happened that may let a waiting job start, and
    /// again until no job starts, at
    /// [`State::now`]. The answers are carried out in their order. [`State::requests`] has the jobs that wait. A start for which
    /// the host lacks CPUs or memory is not made, and its job waits.
    ///
    /// # Errors
    /// It cannot decide: the replay ends.
    fn plan(&mut self, state: &State) -> Result<Vec<Plan>, PlanError>;
}

/// Decision on one job. A job without one waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It starts.
    Start {
        /// The job.
        job: JobId,
        /// As many devices as it asks for, all on one machine.
        devices: Vec<DeviceId>,
        /// Reason, for people; empty: none.
        why: String,
    },
    /// It waits, for a reason that is shown.
    Wait {
        /// The job.
        job: JobId,
        /// Reason, for people.
        why: String,
    },
}

/// Request of a job, as far as a planner needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobRequest {
    /// User who submitted it.
    pub user: UserId,
    /// Priority.
    pub priority: i32,
    /// Devices at the same time.
    pub gpus: u16,
    /// Submission time.
    pub submitted: Millis,
    /// GPU memory to expect on each device; `None`: not known.
    pub need: Option<Bytes>,
    /// Bound on that.
    pub upper: Option<Bytes>,
    /// Memory that a start reserves on each device: so much must be free there. Once it is placed, what is reserved.
    pub reserves: Bytes,
    /// It has its devices to itself: it starts on idle ones only.
    pub alone: bool,
    /// It joins jobs only on devices that are at least half free.
    pub half_empty: bool,
    /// Attempts that ran out of memory.
    pub ooms: u32,
    /// Run time alone, where it is known.
    pub run_time: Option<Millis>,
    /// Activity alone, where it was measured.
    pub activity: Option<Activity>,
}
