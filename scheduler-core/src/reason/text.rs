//! Reasons as sentences.

use std::fmt;

use super::{Basis, Impossible, Reason, Score, Wait};
use crate::job::Condition;
use crate::outcome::Evidence;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed { policy, score } => write!(f, "{policy}: {score}"),
            Self::Backfilled { policy, score, ahead } => {
                write!(f, "{policy}: {score}; passes job {ahead} without delaying it")
            }
            Self::Borrowed { policy, score, ahead, limit } => {
                write!(
                    f,
                    "{policy}: {score}; passes job {ahead}, whose start is not known, for at most {limit}"
                )
            }
            Self::Chosen { why } if why.is_empty() => f.write_str("chosen, without a reason"),
            Self::Chosen { why } => f.write_str(why),
            Self::HostOnly => f.write_str("needs no GPU, and the host has room"),
            Self::Retried { rung, floor } => {
                write!(f, "tried again after out-of-memory with more than {floor}, on {rung}")
            }
            Self::RanOutOfMemory { seen, evidence: Evidence::Shim } => {
                write!(f, "ran out of GPU memory: held and asked for {seen}")
            }
            Self::RanOutOfMemory { seen, evidence: Evidence::Log } => {
                write!(f, "its output speaks of out-of-memory (no shim); at least {seen}")
            }
            Self::RanOutOfMemory { evidence: Evidence::Limit, .. } => {
                f.write_str("ran out of GPU memory by a limit of its user or group")
            }
            Self::TooManyAttempts { attempts } => match attempts {
                1 => f.write_str("out of GPU memory in its only attempt"),
                attempts => write!(f, "out of GPU memory in all {attempts} attempts"),
            },
            Self::Exited => f.write_str("its program ended"),
            Self::DeviceLost => f.write_str("its device or machine failed"),
            Self::Impossible { why } => write!(f, "can never run here: {why}"),
            Self::UserLimit { limit } => limit.fmt(f),
            Self::NotAllowed { why } => why.fmt(f),
            Self::ByUser => f.write_str("its cancel was requested"),
            Self::TimeLimit { limit } => write!(f, "its time limit of {limit} is over"),
            Self::StartTimeout { limit } => write!(f, "its program did not begin within {limit}"),
            Self::SlotEnds { slot } => write!(f, "its time slot of {slot} is over and others wait"),
            Self::GraceOver => f.write_str("it did not end in the time given"),
            Self::MemoryPressure { device, free } => {
                write!(f, "device {device} has only {free} left and this is its least important job")
            }
            Self::Served { job } => {
                write!(f, "it had its GPU time in the first queue, and job {job} of that queue waits")
            }
            Self::MoreImportant { job } => write!(f, "job {job} is more important and needs the place"),
            Self::KeptForOthers { kept } => kept.fmt(f),
            Self::CannotSuspend { refusal } => write!(f, "cannot be suspended ({refusal}): asked to stop"),
            Self::RoomAgain => f.write_str("there is room for it again"),
            Self::SlowsNeighbour { job, speed } => write!(f, "it slows job {job} to {speed} of its speed"),
            Self::TooBusy { device, smact, limit } => {
                write!(f, "device {device} has {smact} SM activity, more than {limit}")
            }
            Self::KeepsTarget { job, pressure } => write!(
                f,
                "job {job} is to keep its target and is at {} % of its limit",
                f64::from(*pressure) / 10.0
            ),
            Self::Fair { speed, slowest } => {
                write!(f, "it has {speed} of its speed alone, and the slowest job beside it {slowest}")
            }
            Self::Calm => f.write_str("its neighbours have what they need"),
            Self::DeclaredShare => f.write_str("jobs on its device declared shares"),
            Self::NeedFollows { peak } => write!(f, "it was seen to need {peak}"),
            Self::StepsSettled { steps, held, bound, fixed } => write!(
                f,
                "held {held} on a GPU after {steps} optimizer steps, and {fixed}: expected to stay under {bound}, which is \
                 reserved from now on"
            ),
            Self::StepsExceeded { bound, peak, reserved } => write!(
                f,
                "holds {peak}, more than the {bound} that its first steps bounded: {reserved} are reserved from now on"
            ),
            Self::Timer => f.write_str("a time to look again"),
            Self::DependencyFailed { job } => write!(f, "job {job}, which it depends on, did not succeed"),
            Self::NotTogether { job } => {
                write!(f, "job {job}, with which it was to start, ended before they started")
            }
            Self::DependenciesMet => f.write_str("the jobs that it depends on have ended"),
            Self::Waiting { cause } => write!(f, "{cause}"),
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("an idle device"),
            Self::Turn => f.write_str("the next in turn"),
            Self::First => f.write_str("the first that fits"),
            Self::Left { bytes } => write!(f, "{bytes} stay free"),
            Self::Free { bytes } => write!(f, "{bytes} are free"),
            Self::Busy { smact } => write!(f, "{smact} SM activity there"),
            Self::Unmeasured => f.write_str("SM activity there is not measured"),
            Self::Progress { gain, speed, slowest } => write!(
                f,
                "adds {gain} of a GPU's work; predicted speed {speed}, the slowest neighbour's {slowest}"
            ),
        }
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpu => f.write_str("this node has no GPU for jobs"),
            Self::Model { model, models } => {
                write!(f, "no GPU of this node is called {model}; their models: {}", models.join(", "))
            }
            Self::Memory { need, largest } => {
                write!(f, "it needs {need} on a device, and the largest has {largest}")
            }
            Self::Gpus { gpus, most } => {
                write!(
                    f,
                    "it needs {gpus} devices at once, and no machine has more than {most} that would do"
                )
            }
            Self::Share => f.write_str("it asks for more than a whole device"),
            Self::Unshared => f.write_str("jobs are to share a device, and no two jobs share one here"),
            Self::Host => f.write_str("no machine has the CPUs and the host memory beside such devices"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::After { job, condition: Condition::Any } => write!(f, "starts after job {job} has ended"),
            Self::After { job, condition: Condition::Ok } => {
                write!(f, "starts after job {job} has succeeded")
            }
            Self::Together { job } => write!(f, "starts together with job {job}"),
            Self::DryRun => f.write_str("its need is not known; a dry run in the background comes first"),
            Self::Array { at_once } => write!(f, "its array may have {at_once} jobs at once"),
            Self::NotAllowed { why } => write!(f, "under the limits of its user it cannot start: {why}"),
            Self::UserLimit { limit } => limit.fmt(f),
            Self::QuietHours { quiet } => quiet.fmt(f),
            Self::Kept { kept } => kept.fmt(f),
            Self::NoDevice => f.write_str("no device that it could use takes jobs"),
            Self::Lost => f.write_str("a GPU that it needs is lost for now"),
            Self::Missing { why: Impossible::NoGpu } => {
                f.write_str("this node has no GPU for jobs; `radrm nodes` says why, and radrmd waits for one")
            }
            Self::Missing { why } => {
                write!(f, "a GPU that it needs may be missing since the daemon was started: {why}")
            }
            Self::Behind { job } => write!(f, "job {job} is before it"),
            Self::Memory { need, free } => write!(f, "needs {need}; the emptiest device has {free} free"),
            Self::UserMemory { need, left, most } => write!(
                f,
                "needs {need}; its user may have {most} on a GPU (radrm.toml), and other jobs of the user leave {left} of that"
            ),
            Self::Busy { smact, limit } => {
                write!(f, "the least busy device has {smact} SM activity, and {limit} are allowed")
            }
            Self::Unmeasured => f.write_str(
                "preconditions.smact needs the SM activity of devices with jobs, and it is not measured: by GPM, DCGM or \
                 timed launches",
            ),
            Self::Share { need, left } => {
                write!(f, "asks for {need} of a device, and at most {left} are left")
            }
            Self::Partition => f.write_str(
                "no device has an SM partition of MPS for it: jobs without a share run there, or shares leave no SMs",
            ),
            Self::Idle => f.write_str("no device is idle"),
            Self::Full { most } => {
                write!(f, "each device that it could share has {most} jobs, the most that preconditions.most_jobs allows")
            }
            Self::Slowdown { gain, slices, basis } => {
                let how = if *slices { " by time slices" } else { "" };
                let basis = match basis {
                    Basis::Measured => "",
                    Basis::Program => ", by what other jobs of the same program do",
                    Basis::Together => ", by what all jobs there were seen to do together",
                    Basis::Predicted => ", by what dry runs predict of jobs that no GPU has run yet",
                    Basis::Assumed => ", by what is assumed of jobs whose SM activity is not known yet",
                };
                write!(f, "sharing{how} would not pay{basis}: it would add {gain} of a GPU's work at best")
            }
            Self::Protected { low, least } => {
                write!(f, "a job of higher priority could fall to {low} of its speed, and keeps {least}")
            }
            Self::Settling => f.write_str("a job just started on each device that would do"),
            Self::Gang { gpus, fit } => {
                write!(f, "needs {gpus} devices at once, and at most {fit} on one machine would do")
            }
            Self::Host => f.write_str("the host lacks CPUs or memory"),
            Self::Chosen { why } if why.is_empty() => f.write_str("not chosen, without a reason"),
            Self::Chosen { why } => f.write_str(why),
            Self::Reserved { job } => write!(f, "devices that would do are kept for job {job}"),
        }
    }
}
