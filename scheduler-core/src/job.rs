//! Jobs: what they request and what is known about them.

use std::fmt;

use radrm_base::{HostUse, UserId};
use radrm_need::{Need, Needs};
use serde::{Deserialize, Serialize};

use crate::interference::{Activity, Program};
use crate::target::Target;
use crate::units::{Bytes, Millis, Permille};

/// A job, by a number that the caller gives and never gives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Resources of the host beside the GPUs. Zero asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostNeed {
    /// Thousandths of a CPU core.
    pub cpu_milli: u64,
    /// Host memory.
    pub memory: Bytes,
}

/// Ways to make a job give its GPU back before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Preemption {
    /// May it be stopped for another job at all?
    pub allowed: bool,
    /// The signal after which the program writes a checkpoint, if it knows one. It is run again
    /// from the start of its command line, so it must find its checkpoint by itself.
    /// 0 is no signal: the program asks whether it is to write one.
    pub checkpoint_signal: Option<i32>,
    /// Time the program gets from the checkpoint signal to the terminate signal.
    pub grace: Millis,
    /// Can it be suspended in place (`cuCheckpointProcess*`)? `Err` says why not, known beforehand.
    pub suspend: Result<(), SuspendRefusal>,
}

impl Default for Preemption {
    fn default() -> Self {
        Self {
            allowed: false,
            checkpoint_signal: None,
            grace: Millis::from_secs(30),
            suspend: Err(SuspendRefusal::Unsupported),
        }
    }
}

/// Reason that a job cannot be suspended in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendRefusal {
    /// The driver, or the build, cannot do it.
    Unsupported,
    /// It runs in a MIG instance.
    Mig,
    /// It is a client of MPS.
    Mps,
    /// It uses managed memory.
    ManagedMemory,
    /// It shares memory with processes outside the job.
    Ipc,
    /// It uses multicast objects.
    Multicast,
    /// It imported shareable handles: a restore would fail after a checkpoint that went well.
    ImportedHandles,
    /// The host has no room for its device memory.
    HostMemory,
    /// Its use of the GPU is unknown: its processes run without the shim, or were not seen to use a GPU yet.
    NoShim,
    /// It was tried and the driver refused.
    Failed,
}

impl fmt::Display for SuspendRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the driver cannot suspend processes",
            Self::Mig => "it runs in a MIG instance",
            Self::Mps => "it is a client of MPS",
            Self::ManagedMemory => "it uses managed memory",
            Self::Ipc => "it shares memory with other jobs",
            Self::Multicast => "it uses multicast objects",
            Self::ImportedHandles => "it imported shareable handles",
            Self::HostMemory => "the host has no room for its memory",
            Self::NoShim => "what it uses of the GPU is not known",
            Self::Failed => "the driver refused",
        })
    }
}

/// Condition on the jobs that another job waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// They have ended, with any result (Slurm's `afterany`).
    #[default]
    Any,
    /// They have ended, each with exit code 0 (Slurm's `afterok`). The first failure ends the job that waits.
    Ok,
}

impl Condition {
    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Ok => "ok",
        }
    }

    /// Splits `ok:12,13` into the condition and what has to meet it; without a colon the condition is [`Self::Any`].
    ///
    /// # Errors
    /// The word before the colon, which is not a condition.
    pub fn split(text: &str) -> Result<(Self, &str), &str> {
        let Some((word, rest)) = text.split_once(':') else { return Ok((Self::Any, text)) };
        let known = [Self::Any, Self::Ok].into_iter().find(|known| known.name() == word);
        known.map(|known| (known, rest)).ok_or(word)
    }
}

/// Jobs of consecutive numbers (one job, or the jobs of an array) that another job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    /// Condition that they have to meet.
    pub condition: Condition,
    /// The lowest number.
    pub first: JobId,
    /// The highest number.
    pub last: JobId,
    /// One of them that had failed before this job was submitted, where the caller knows of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<JobId>,
}

/// A bound on how many jobs of an array are in the queue or run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArrayLimit {
    /// The array: the number of its first job.
    pub array: JobId,
    /// The most jobs.
    pub at_once: u32,
}

/// A job's place in a group whose jobs start in one decision. The group runs on one node, and no job outside of it is
/// placed on its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Together {
    /// The group's first job; the numbers of the others follow.
    pub first: JobId,
    /// Number of its jobs.
    pub members: u32,
    /// Jobs of equal sites get the same devices, jobs of different sites different ones.
    pub site: u32,
    /// It has started: from then on each job goes its own way.
    pub begun: bool,
}

impl Together {
    /// The highest number of its jobs.
    #[must_use]
    pub fn last(&self) -> JobId {
        JobId(self.first.0.saturating_add(u64::from(self.members.max(1)) - 1))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Request of a job, with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// User who submits it.
    pub user: UserId,
    /// Higher goes first, within what aging allows (see [`crate::Order`]).
    pub priority: i32,
    /// Devices it needs at the same time, on one node. 0 for a job that only needs the host.
    pub gpus: u16,
    /// Memory on each of them, if that is known.
    #[serde(default)]
    pub need: Option<Need>,
    /// The part of each device's SMs it asks for; `None` takes what there is. Declared shares of
    /// one device never add up to more than the device.
    pub share: Option<Permille>,
    /// Latency and speed that it is to keep beside others.
    #[serde(default, skip_serializing_if = "Target::is_none")]
    pub target: Target,
    /// No other job on its devices.
    pub exclusive: bool,
    /// Only devices of this model (as in [`crate::Device::model`]).
    pub model: Option<String>,
    /// CPU and host memory.
    pub host: HostNeed,
    /// Its program: jobs of one program share what was learned of how it shares a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Activity alone on a GPU, if that is known.
    pub activity: Option<Activity>,
    /// Activity alone on a GPU as its dry run predicts it: it counts until a GPU has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Activity>,
    /// Host use where nothing there slows it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_use: Option<HostUse>,
    /// Run time alone, if that is known. A hint: nothing depends on its being right.
    pub expected: Option<Millis>,
    /// Lower end of `expected`, if that is a prediction with a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Millis>,
    /// It is stopped after this much time of running. Enforced, so backfilling may rely on it.
    pub time_limit: Option<Millis>,
    /// It returns to the queue then, behind those that wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requeue_on_timeout: bool,
    /// It gives its devices back after this much time of running if another job waits for them.
    pub slot: Option<Millis>,
    /// Ways to stop it before its end.
    pub preemption: Preemption,
    /// Submission time; jobs that the caller had queued before its own restart keep it.
    pub submitted: Millis,
    /// Attempts already made, when it is put back by a caller that was restarted.
    pub attempts: u32,
    /// Attempts among them that ran out of memory, likewise.
    pub ooms: u32,
    /// Attempts if it runs out of memory, at most those of [`crate::Recovery`]; `None`: as many as these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Memory that is known not to suffice, when it is put back by a caller that was restarted.
    pub floor: Bytes,
    /// It was admitted before the caller was restarted: it exceeds no limit, and if no device can hold it now, a device
    /// may be missing since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admitted: bool,
    /// An administrator submits it: its priority may be any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_admin: bool,
    /// Jobs that run wait for it: no other job is before it in the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Since when it waits for its turn, likewise, if that is not its submission: the end of its last slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lined_up: Option<Millis>,
    /// It must not start until it is released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// A dry run is to show what it needs: it does not enter the queue before that is known, or given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_dry_run: bool,
    /// Jobs of lower numbers that have to end before it may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// The bound of its array, if that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayLimit>,
    /// Its place in a group of jobs that start together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
}

impl Job {
    /// A job of one GPU of which nothing is known.
    #[must_use]
    pub fn new(id: JobId) -> Self {
        Self {
            id,
            user: UserId::default(),
            priority: 0,
            gpus: 1,
            need: None,
            share: None,
            target: Target::default(),
            exclusive: false,
            model: None,
            host: HostNeed::default(),
            program: None,
            activity: None,
            predicted: None,
            host_use: None,
            expected: None,
            at_least: None,
            time_limit: None,
            requeue_on_timeout: false,
            slot: None,
            preemption: Preemption::default(),
            submitted: Millis::ZERO,
            attempts: 0,
            ooms: 0,
            max_attempts: None,
            floor: Bytes::ZERO,
            admitted: false,
            by_admin: false,
            first: false,
            lined_up: None,
            held: false,
            awaits_dry_run: false,
            after: Vec::new(),
            array: None,
            together: None,
        }
    }

    /// The job with these needs. What was not measured of an activity is as much by SM activity as in `assumed`, that of the settings.
    #[must_use]
    pub fn needing(self, needs: &Needs, assumed: Activity) -> Self {
        let (need, Profile { activity, predicted, expected, at_least, host_use }) =
            (needs.memory.clone(), Profile::of(needs, assumed));
        Self { need, activity, predicted, expected, at_least, host_use, ..self }
    }
}

/// Figures of a job's needs other than memory, as the scheduler has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    pub(crate) activity: Option<Activity>,
    pub(crate) predicted: Option<Activity>,
    pub(crate) expected: Option<Millis>,
    pub(crate) at_least: Option<Millis>,
    pub(crate) host_use: Option<HostUse>,
}

impl Profile {
    /// A predicted activity is none that was measured. Of either the parts that are not known follow from `assumed`.
    pub(crate) fn of(needs: &Needs, assumed: Activity) -> Self {
        let activity = |is_predicted: bool| {
            let known = needs.activity.as_ref();
            let known = known.filter(|known| known.source.is_predicted() == is_predicted);
            known.map(|known| known.value.with_usual(assumed))
        };
        let run_time = needs.run_time.as_ref();
        Self {
            activity: activity(false),
            predicted: activity(true),
            expected: run_time.map(|known| known.value),
            at_least: run_time.and_then(|known| known.bound).map(|bound| bound.low),
            host_use: needs.host.as_ref().map(|known| known.value),
        }
    }
}
