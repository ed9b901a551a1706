//! Scheduler core: start and placement of GPU jobs, and what happens to them there.
//!
//! The core is a pure function of events: no input or output, no clock, no thread, no random
//! number. [`State::step`] takes one [`Event`] and the time it happened at and gives back what is
//! to be done, each [`Action`] with its [`Reason`]. The node daemon feeds it with what really
//! happens, the [`replay`] with what a model says would happen; both run the same decisions.
//!
//! ```
//! use radrm_scheduler_core::{
//!     Action, Bytes, Device, DeviceId, Event, Job, JobId, Millis, Need, NodeId, Outcome, Settings, State,
//! };
//!
//! let mut state = State::new(Settings::default());
//! state.step(Millis(0), Event::DeviceAdded {
//!     device: Device {
//!         id: DeviceId(0),
//!         node: NodeId(0),
//!         model: "A100-40GB".into(),
//!         capacity: Bytes::from_gib(40),
//!         parent: None,
//!         shared: true,
//!     },
//! });
//! let job = Job { need: Some(Need::measured(Bytes::from_gib(12))), ..Job::new(JobId(1)) };
//! let decisions = state.step(Millis(5), Event::Submitted { job: Box::new(job) });
//! let Action::Start { job, attempt, .. } = decisions[0].action else { panic!() };
//! println!("start job {job}: {}", decisions[0].reason);
//! state.step(Millis(90), Event::Started { job, attempt });
//! let decisions = state.step(Millis(9000), Event::Finished {
//!     job,
//!     attempt,
//!     outcome: Outcome::Exited { code: 0 },
//! });
//! assert!(matches!(decisions[0].action, Action::End { .. }));
//! ```
//!
//! # The contract with the caller
//!
//! - Events come in the order in which they happened. A time earlier than the last one counts as
//!   the last one.
//! - Actions are carried out in the order given. `Start`, `Suspend` and `Resume` are answered by
//!   events, as [`Action`] says; until then the job's place is taken.
//! - A started job ends with exactly one `Finished` of the same attempt, also if it was stopped:
//!   [`State`] knows whether it asked for that, and requeues or ends the job.
//! - When the caller comes back after a crash it makes a new `State` and tells it what there is:
//!   `Paused`, so that no job starts before all events are in, `NodeAdded`, `DeviceAdded`, `UsageRestored`,
//!   `Adopted` for what still runs, with `leaving` as [`State::job`] told it, `AdoptedSuspended`,
//!   `Submitted` for what waits, with `attempts` and `floor` of the last `Requeue`
//!   and `lined_up` as [`State::job`] told it, and `Paused` with `false`. All these jobs are `admitted`.
//! - A job may wait for jobs of lower numbers. Those of them that are over before it is submitted are known to the
//!   caller alone, who names one that failed in [`Dependency::failed`]. A caller that comes back tells the jobs in the
//!   order of their numbers.
//! - A job is forgotten with its `End`. Read [`State::history`] before the next step to keep it.
//!
//! # What is guaranteed
//!
//! - **No over-commit.** With [`Memory::Reserved`] the memory set aside on a device never exceeds
//!   its capacity, nor do declared shares exceed the whole, and a device given to one job as a whole
//!   has no other.
//! - **No job is lost**: each is waiting, running, suspended or ended, and ends exactly once.
//! - **No duplicate start**: between two `Start`s of a job lies a `Finished`.
//! - **A blocked head is not delayed.** The first job that cannot start gets a reservation: the
//!   devices that will be free for it first, and its blockers, who must leave them. A job that came
//!   behind it is started only where the head still fits beside it once those have left, and never
//!   on a device of a blocker, nor of a job that shares one with a blocker: so it finds no less
//!   room than without those behind it, and no later, whatever jobs that share a GPU do to each other.
//!   One that is surely gone by the end that its blockers' time limits set (or an earlier one, where that
//!   is expected) may use its devices until then. Where blockers have no time limits, a job with one may use them for
//!   as long as the head is likely to wait, and delays it by its own limit at most ([`Reason::Borrowed`]). Not
//!   guaranteed is that the head finds no other place sooner: where a job elsewhere leaves before it is expected to,
//!   another job may have come there.
//! - **No starvation.** In the way of the head come, while it waits, only jobs whose key (see
//!   [`Order`]) is lower, and those that are gone in time. All set-backs are bounded, so only finitely
//!   many jobs submitted after it can have a lower key: it starts at the latest when those have left.
//!   (If they never end and have neither a time limit nor a slot, nothing but eviction can help.)
//! - **Advance reservations are kept free.** While one holds, only jobs of its users start on its devices; before it begins, only
//!   jobs besides that are gone by then ([`AdvanceReservation`]). A job that they keep from all devices holds none of its own
//!   until one of them ends.
//! - **Determinism**: equal settings and equal events give equal actions.

mod action;
mod advance;
mod allowance;
pub mod amount;
mod device;

pub mod early;
mod event;
mod expected;
mod fair;
mod fill;
mod hold;
mod host;
mod hours;
pub mod interference;
mod job;
mod job_state;
mod ladder;
mod leaving;
mod limits;
mod outcome;
mod outside;
mod partitions;
mod place;
mod planner;
mod policy;
mod queue;
pub mod rad_file;

mod reason;
pub mod replay;

mod reserve;
mod retry;
mod settings;
mod sharing_mode;
mod state;
mod target;
use radrm_base::units;

pub use radrm_base::UserId;
pub use radrm_estimator::across;

pub use action::{Action, Decision, LaunchBudget, Signal, Verdict};
pub use advance::{AdvanceReservation, Clash, Kept, ReservedFor};
pub use allowance::{
    Allowance, AllowedDevices, Bound, Breach, DeviceQuota, GroupMembers, Holding, LIMITS, LimitInfo,
    LimitKey, LimitUnit, LimitValue, NoLimitValue, Quiet, Reached, SmallJobs,
};
pub use device::{Device, DeviceId, JobObservation, Node, NodeId, Observation};
pub use event::Event;
pub use expected::ExpectedStart;
pub use hold::{MAX_HOLD_NS, RequestHold};
pub use hours::Hours;
pub use interference::{Activity, Constants, Program, Sharer};
pub use job::{
    ArrayLimit, Condition, Dependency, HostNeed, Job, JobId, Preemption, SuspendRefusal, Together,
};
pub use job_state::JobState;
pub use ladder::Rung;
pub use leaving::{After, Leaving};
pub use limits::{Exceeded, UserLimits};
pub use outcome::{Evidence, Outcome};
pub use outside::{PlanError, SpeedModel};
pub use planner::{JobRequest, Plan, Planner};
pub use radrm_need::{Need, Needs};
pub use reason::{
    Basis, Calm, ConstantsFrom, Forecast, Gain, HeldOutside, Impossible, MemoryRule, Obstacle, Passing,
    Reason, Samples, Score, Shortfall, Wait,
};
pub use settings::{
    Eviction, FairShare, Hot, Memory, NoSuchPolicy, NoSuchPreset, Objective, Order, Policy, Preconditions,
    Preset, Recovery, Settings, Throttle, Unknown,
};
pub use sharing_mode::{SharingMode, TimeSlices};
pub use state::{DeviceView, JobView, Oversized, Phase, State, UnknownNeed};
pub use target::{LatencyTarget, NoTarget, Standing, Target, TargetObservation, Unseen};
pub use units::{Bytes, Millis, Permille};
