//! Reasons of decisions, as data; their text is what `radrm queue --why` shows.

mod forecast;
mod text;

use serde::{Deserialize, Serialize};

use crate::advance::{Kept, ReservedFor};
use crate::allowance::{Breach, Quiet, Reached};
use crate::device::DeviceId;
use crate::early::FixedBy;
use crate::job::{Condition, JobId, SuspendRefusal};
use crate::ladder::Rung;
use crate::limits::Exceeded;
use crate::outcome::Evidence;
use crate::settings::{Memory, Policy};
use crate::units::{Bytes, Millis, Permille};

pub use forecast::{Basis, ConstantsFrom, Forecast, Gain, Shortfall};

/// A reason for an action, or for a job's waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// It is first in the queue and the policy chose these devices.
    Placed {
        /// The policy.
        policy: Policy,
        /// Score by which the policy decided.
        score: Score,
    },
    /// It passed a blocked job, and is not expected to delay it.
    Backfilled {
        /// The policy.
        policy: Policy,
        /// Score by which the policy decided.
        score: Score,
        /// The blocked job.
        ahead: JobId,
        /// Effect on the devices that are kept for that one.
        #[serde(default)]
        passing: Passing,
    },
    /// It passed a blocked job whose start is not known: its time limit is shorter than that one is likely to wait.
    Borrowed {
        /// The policy.
        policy: Policy,
        /// Score by which the policy decided.
        score: Score,
        /// The blocked job.
        ahead: JobId,
        /// Its time limit: it delays the blocked job by this at most.
        limit: Millis,
    },
    /// A planner chose these devices.
    Chosen {
        /// Its reason, for people; empty: none.
        why: String,
    },
    /// It needs no GPU and the host has room.
    HostOnly,
    /// It is tried again after an out-of-memory.
    Retried {
        /// Rung of the retry ladder.
        rung: Rung,
        /// Least memory that it needs now.
        floor: Bytes,
    },
    /// It ran out of GPU memory.
    RanOutOfMemory {
        /// Held and asked for; `None`: not known.
        seen: Option<Bytes>,
        /// Evidence for it.
        evidence: Evidence,
        /// Memory that was held outside of jobs on a device of it then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outside: Option<HeldOutside>,
    },
    /// It ran out of memory in its last attempt.
    TooManyAttempts {
        /// Attempts made.
        attempts: u32,
    },
    /// Its process ended by itself.
    Exited,
    /// Its device or its machine is gone, or a restore failed.
    DeviceLost,
    /// No device could ever hold it.
    Impossible {
        /// Requirement that cannot be met.
        why: Impossible,
    },
    /// It would exceed a limit of its user.
    UserLimit {
        /// Limit that is exceeded.
        limit: Exceeded,
    },
    /// Its user's limits never let it start.
    NotAllowed {
        /// Limit that does not.
        why: Breach,
    },
    /// The user asked for it.
    ByUser,
    /// It ran longer than it may.
    TimeLimit {
        /// Its limit.
        limit: Millis,
    },
    /// Its program was not there in time.
    StartTimeout {
        /// The time that it had.
        limit: Millis,
    },
    /// Its time slot is over and others wait.
    SlotEnds {
        /// The slot.
        slot: Millis,
    },
    /// The time to react to the signal before is over.
    GraceOver,
    /// Memory on its device runs out and it is the least important job there.
    MemoryPressure {
        /// The device.
        device: DeviceId,
        /// Free there.
        free: Bytes,
    },
    /// It had its time in the first queue, and a job of that queue waits.
    Served {
        /// The job.
        job: JobId,
    },
    /// A more important job needs its place.
    MoreImportant {
        /// The job.
        job: JobId,
    },
    /// Its device is kept for others now.
    KeptForOthers {
        /// The advance reservation.
        kept: Box<ReservedFor>,
    },
    /// It cannot be suspended, so it is asked to write a checkpoint and stop.
    CannotSuspend {
        /// Reason that it cannot be suspended.
        refusal: SuspendRefusal,
    },
    /// There is room again.
    RoomAgain,
    /// It slows a more important neighbour.
    SlowsNeighbour {
        /// Whom.
        job: JobId,
        /// The neighbour's speed against running alone.
        speed: Permille,
    },
    /// The device's SMs are busier than they may be.
    TooBusy {
        /// The device.
        device: DeviceId,
        /// Seen.
        smact: Permille,
        /// Allowed.
        limit: Permille,
    },
    /// It is held back so that a job beside it keeps its target.
    KeepsTarget {
        /// The job with the target.
        job: JobId,
        /// Pressure on the target, thousandths: what was observed against the limit.
        /// Above 1000 it was missed.
        pressure: u32,
    },
    /// All jobs of its device are to be slowed alike.
    Fair {
        /// Its speed against running alone.
        speed: Permille,
        /// That of the slowest.
        slowest: Permille,
    },
    /// Nothing known keeps it from going faster.
    Calm {
        /// Knowledge of its neighbours.
        why: Calm,
    },
    /// Jobs on the device declared shares.
    DeclaredShare,
    /// Its memory use settled, or rose: its reservation follows.
    NeedFollows {
        /// The highest seen.
        peak: Bytes,
    },
    /// Its first optimizer steps bound what it will need: what is set aside for it follows.
    StepsSettled {
        /// Steps that it has made.
        steps: u32,
        /// Memory that it holds on one device.
        held: Bytes,
        /// Bound that it is expected to stay under.
        bound: Bytes,
        /// Evidence that no more is to come.
        fixed: FixedBy,
    },
    /// It holds more than its first steps bounded: what is set aside for it rises.
    StepsExceeded {
        /// Bound that it was expected to stay under.
        bound: Bytes,
        /// The highest seen.
        peak: Bytes,
        /// Memory reserved from now on.
        reserved: Bytes,
    },
    /// Something happens then that has to be looked at.
    Timer,
    /// A job that it depends on did not succeed.
    DependencyFailed {
        /// The job.
        job: JobId,
    },
    /// The jobs that it depends on have ended.
    DependenciesMet,
    /// A job that was to start with it ended before.
    NotTogether {
        /// The job.
        job: JobId,
    },
    /// It waits.
    Waiting {
        /// For what.
        cause: Wait,
    },
}

/// Memory that is held on a device outside of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldOutside {
    /// The device.
    pub device: DeviceId,
    /// Memory that is held.
    pub bytes: Bytes,
}

/// Use that a job makes of devices that are kept for one which it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passing {
    /// None.
    #[default]
    Elsewhere,
    /// That one fits beside it when the jobs before have left.
    Beside,
    /// Its time limit ends before they are expected to be free.
    Ends,
}

/// Knowledge of a job's neighbours by which its launches are held back less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Calm {
    /// No other job runs there.
    Alone,
    /// No more important job there is seen under the speed that it keeps; that of some may not be known.
    NoneSuffers {
        /// Speed that it keeps.
        least: Permille,
    },
    /// The job with the target no longer runs there.
    TargetLeft {
        /// That job.
        job: JobId,
    },
    /// The latency or speed of the job with the target cannot be observed.
    TargetUnseen {
        /// That job.
        job: JobId,
    },
}

/// Score of a device under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Score {
    /// No job is there.
    Idle {
        /// Memory that is held there outside of jobs.
        #[serde(default)]
        outside: Bytes,
    },
    /// Its turn in the round.
    Turn,
    /// The lowest number that fits.
    First,
    /// Memory that stays free.
    Left {
        /// Amount.
        bytes: Bytes,
    },
    /// Memory that is free.
    Free {
        /// Amount.
        bytes: Bytes,
    },
    /// SM activity there.
    Busy {
        /// SM activity.
        smact: Permille,
    },
    /// SM activity there is not measured.
    Unmeasured,
    /// SM activity that is left beside the jobs there, this one included, by what each does alone.
    Room {
        /// The rest.
        left: Permille,
        /// Weakest knowledge of the SM activity of one of them.
        activity: Basis,
    },
    /// Predicted progress.
    Progress {
        /// Work that the devices would gain per second.
        gain: Gain,
        /// The job's own predicted speed.
        speed: Permille,
        /// The slowest neighbour's predicted speed on its device.
        slowest: Permille,
        /// The slowest of the node's other jobs that it is predicted to slow on the host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_host: Option<Permille>,
        /// Origin of the prediction.
        forecast: Forecast,
    },
}

/// Reason that no device could ever hold a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "missing", rename_all = "snake_case")]
pub enum Impossible {
    /// No machine has a device that takes jobs.
    NoGpu,
    /// No device is of its model.
    Model {
        /// Asked for.
        model: String,
        /// GPU models that there are, in order.
        models: Vec<String>,
    },
    /// It needs more memory than any device (of its model) has.
    Memory {
        /// Needed.
        need: Bytes,
        /// The largest there is.
        largest: Bytes,
    },
    /// It ran out of memory with the largest device (of its model) to itself.
    RanOut {
        /// Held and asked for; `None`: not known.
        at: Option<Bytes>,
        /// The largest there is.
        largest: Bytes,
    },
    /// It needs more devices than any machine has.
    Gpus {
        /// Needed.
        gpus: u16,
        /// The most on one machine.
        most: u16,
    },
    /// It asks for more than a whole device.
    Share,
    /// Jobs of a group are to share a device, and no device is shared.
    Unshared,
    /// No machine that has such devices has the CPUs and the memory.
    Host,
}

/// Reason that a waiting job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Wait {
    /// It is held.
    Held,
    /// A job that it depends on has not ended.
    After {
        /// The first of them.
        job: JobId,
        /// Condition that it has to meet.
        condition: Condition,
    },
    /// Its user's limits never let it start, as they are now.
    NotAllowed {
        /// Limit that does not.
        why: Breach,
    },
    /// Its user has reached a limit.
    UserLimit {
        /// Limit, and what is held of it.
        limit: Box<Reached>,
    },
    /// Its user's jobs do not start at this hour.
    QuietHours {
        /// Hours, and the section that states them.
        quiet: Quiet,
    },
    /// Devices that it could use are kept for others by an advance reservation.
    Kept {
        /// Reservation that is in the way.
        kept: Box<Kept>,
    },
    /// A dry run is to show its need first.
    DryRun,
    /// It starts together with another job.
    Together {
        /// The job that does not wait for its turn yet, or that waits for the whole group.
        job: JobId,
    },
    /// As many jobs of its array as may be at once are in the queue or run.
    Array {
        /// The bound.
        at_once: u32,
    },
    /// No device that it could use takes jobs: they are drained.
    NoDevice,
    /// Only devices that are lost could hold it.
    Lost,
    /// The node has no device yet, or the job was admitted before a restart and no device that is there since could hold
    /// it: one may be missing.
    Missing {
        /// Requirement that cannot be met.
        why: Impossible,
    },
    /// A job is before it, and starting it could delay them.
    Behind {
        /// The job.
        job: JobId,
    },
    /// Devices lack memory.
    Memory {
        /// Memory that is to be free.
        need: Bytes,
        /// Rule that asks for it.
        rule: MemoryRule,
        /// Free memory on the device that comes closest.
        free: Bytes,
        /// Accounting by which it is free.
        accounting: Memory,
        /// That device.
        device: DeviceId,
    },
    /// Other jobs of its user, or of a group of that user, leave too little of the memory that they may have together on a device.
    UserMemory {
        /// Needed.
        need: Bytes,
        /// The most that is left.
        left: Bytes,
        /// The limit there.
        most: Bytes,
        /// The group; `None`: the limit is the user's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// Devices are busier than the precondition allows.
    Busy {
        /// The least busy one.
        smact: Permille,
        /// Samples that decide.
        samples: Samples,
        /// Allowed.
        limit: Permille,
    },
    /// The precondition is on SM activity, and nothing measures that of devices that would do.
    Unmeasured,
    /// Shares declared on devices leave too little.
    Share {
        /// Asked for.
        need: Permille,
        /// The most that is left.
        left: Permille,
    },
    /// Jobs of Multi-Process Service on devices have no SM partitions, so no device takes one for it, or have all SMs.
    Partition,
    /// Each device that it may use has jobs.
    Idle,
    /// Each device that it could share has as many jobs as it may have.
    Full {
        /// That number.
        most: u16,
    },
    /// It, or jobs there, are predicted to be slowed too much.
    Slowdown {
        /// Threshold that is not reached on the device that comes closest.
        #[serde(flatten)]
        shortfall: Shortfall,
        /// Origin of the prediction.
        by: Forecast,
    },
    /// The policy's own rule lets it join no job there.
    Rule {
        /// The policy.
        policy: Policy,
    },
    /// A more important job could be slowed too much.
    Protected {
        /// The lower end of its predicted speed's 95 % interval.
        low: Permille,
        /// Lowest speed that it keeps.
        least: Permille,
        /// Origin of the prediction.
        by: Forecast,
    },
    /// Devices just got a job whose memory is not yet seen.
    Settling,
    /// The jobs of devices changed, and too few samples of their SM activity are there since.
    Window {
        /// Time for which they are sampled before they take a job.
        least: Millis,
    },
    /// Its restore failed, and is tried again later.
    RestoreFailed {
        /// Time between two tries.
        every: Millis,
    },
    /// Not enough devices at once on any machine.
    Gang {
        /// Needed.
        gpus: u16,
        /// The most on one machine that would do.
        fit: u16,
    },
    /// The host lacks CPUs or memory.
    Host,
    /// A planner lets it wait.
    Chosen {
        /// Its reason, for people; empty: none.
        why: String,
    },
    /// Devices are kept for a job that waits longer.
    Reserved {
        /// For whom.
        job: JobId,
        /// Reason that they are.
        #[serde(default)]
        why: Obstacle,
    },
}

/// Rule by which a device is to have so much memory free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRule {
    /// The job's need, margin included.
    Need,
    /// `preconditions.min_free`: its need is not known.
    MinFree,
    /// A retry on a device that is at least half empty.
    HalfEmpty,
}

/// Samples of SM activity that decide whether a device takes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Samples {
    /// The mean of a window.
    Mean,
    /// The highest, until a window is over since its jobs changed.
    Highest,
}

/// Reason that a device is kept from a job for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// The other one is to have the device.
    #[default]
    Device,
    /// The job could slow one that the other waits for.
    NearBlocker,
    /// The job's threads could keep the other from joining jobs of the node.
    Threads,
    /// Jobs of both count towards a limit of memory there that the other one waits under.
    Quota,
}

impl Reason {
    /// Returns true if the other reason differs only in figures that change with every observed window.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KeepsTarget { job, .. }, Self::KeepsTarget { job: another, .. }) => job == another,
            (Self::Fair { .. }, Self::Fair { .. }) => true,
            _ => false,
        }
    }
}
