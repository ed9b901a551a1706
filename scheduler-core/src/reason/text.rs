//! Reasons as sentences.

use std::fmt;

use super::{
    Calm, HeldOutside, Impossible, MemoryRule, Obstacle, Passing, Reason, Samples, Score, Shortfall, Wait,
};
use crate::job::Condition;
use crate::outcome::Evidence;
use crate::settings::Memory;
use crate::units::Bytes;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed { policy, score } => write!(f, "{policy}: {score}"),
            Self::Backfilled { policy, score, ahead, passing } => {
                write!(f, "{policy}: {score}; passes job {ahead}, ")?;
                match passing {
                    Passing::Elsewhere => f.write_str("for which these devices are not kept"),
                    Passing::Beside => f.write_str("which fits beside it when the jobs before have left"),
                    Passing::Ends => write!(
                        f,
                        "and ends by its --time before the devices kept for job {ahead} are expected to be free"
                    ),
                }
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
                f.write_str("tried again after out-of-memory")?;
                if *floor > Bytes::ZERO {
                    write!(f, " with more than {floor}")?;
                }
                write!(f, ", on {rung}")
            }
            Self::RanOutOfMemory { evidence: Evidence::Limit, .. } => {
                f.write_str("ran out of GPU memory by a limit of its user or group")
            }
            Self::RanOutOfMemory { seen, evidence, outside } => {
                match (seen, evidence) {
                    (Some(seen), Evidence::Log) => {
                        write!(f, "its output reports out-of-memory (no shim); at least {seen}")?;
                    }
                    (Some(seen), _) => write!(f, "ran out of GPU memory: held and asked for {seen}")?,
                    (None, Evidence::Log) => {
                        f.write_str("its output reports out-of-memory (no shim); the amount is not known")?;
                    }
                    (None, _) => f.write_str("ran out of GPU memory; the amount is not known")?,
                }
                outside.map_or(Ok(()), |HeldOutside { device, bytes }| {
                    write!(f, "; {bytes} of GPU {device} were held outside of jobs")
                })
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
            Self::SlowsNeighbour { job, speed } => write!(
                f,
                "job {job} launches at {speed} of its rate alone, and this job is the least important beside it"
            ),
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
            Self::Calm { why } => why.fmt(f),
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

impl fmt::Display for Calm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("no other job runs there"),
            Self::NoneSuffers { least } => {
                write!(
                    f,
                    "no more important job there is seen to launch at less than {least} of its rate alone"
                )
            }
            Self::TargetLeft { job } => write!(f, "job {job}, which has a target, no longer runs there"),
            Self::TargetUnseen { job } => write!(f, "the target of job {job} cannot be observed"),
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle { outside: Bytes::ZERO } => f.write_str("a device without jobs"),
            Self::Idle { outside } => write!(f, "a device without jobs ({outside} held outside of jobs)"),
            Self::Turn => f.write_str("the next in turn"),
            Self::First => f.write_str("the first that fits"),
            Self::Left { bytes } => write!(f, "{bytes} stay free"),
            Self::Free { bytes } => write!(f, "{bytes} are free"),
            Self::Busy { smact } => write!(f, "{smact} SM activity there"),
            Self::Unmeasured => f.write_str("SM activity there is not measured"),
            Self::Room { left, activity } => {
                write!(
                    f,
                    "{left} SM activity left by the sum of what each job does alone, its own included"
                )?;
                activity.words().map_or(Ok(()), |basis| write!(f, " ({basis})"))
            }
            Self::Progress { gain, speed, slowest, on_host, forecast } => {
                write!(
                    f,
                    "is predicted to add {gain} of a GPU's work, at speed {speed} and the slowest neighbour's {slowest} ({forecast})"
                )?;
                on_host.map_or(Ok(()), |slowest| {
                    write!(
                        f,
                        "; on the host's cores the slowest job of the node is predicted to have {slowest}"
                    )
                })
            }
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
            Self::RanOut { at: Some(at), largest } => {
                write!(f, "it ran out at {at} with the largest device, {largest}, to itself")
            }
            Self::RanOut { at: None, largest } => {
                write!(f, "it ran out with the largest device, {largest}, to itself")
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
            Self::Memory { need, rule, free, accounting, device } => {
                match rule {
                    MemoryRule::Need => write!(f, "needs {need}")?,
                    MemoryRule::MinFree => write!(f, "unknown need: preconditions.min_free asks for {need}")?,
                    MemoryRule::HalfEmpty => write!(f, "tried again where {need} are free")?,
                }
                let how = if *accounting == Memory::Reserved { " unreserved" } else { "" };
                write!(f, "{how}; GPU {device} comes closest with {free}")
            }
            Self::UserMemory { need, left, most, group: Some(group) } => write!(
                f,
                "needs {need}; members of group {group} may have {most} on a GPU together (radrm.toml), and their other jobs \
                 leave {left} of that"
            ),
            Self::UserMemory { need, left, most, group: None } => write!(
                f,
                "needs {need}; its user may have {most} on a GPU (radrm.toml), and other jobs of the user leave {left} of that"
            ),
            Self::Busy { smact, samples: Samples::Mean, limit } => {
                write!(f, "the least busy device has {smact} SM activity, and {limit} are allowed")
            }
            Self::Busy { smact, samples: Samples::Highest, limit } => write!(
                f,
                "the least busy device had {smact} SM activity at most since its jobs changed, and {limit} are allowed; after \
                 preconditions.window its mean decides"
            ),
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
            Self::Idle => f.write_str("each device that it may use has jobs"),
            Self::Full { most } => {
                write!(f, "each device that it could share has {most} jobs, the most that preconditions.most_jobs allows")
            }
            Self::Slowdown { shortfall: Shortfall::MinGain { gain, least }, by } => {
                write!(f, "predicted gain {gain} ({by}); min_gain asks for {least}")
            }
            Self::Slowdown { shortfall: Shortfall::MinSpeed { speed, least }, by } => {
                write!(f, "a job is predicted to fall to {speed} of its speed ({by}); min_speed is {least}")
            }
            Self::Rule { policy } => write!(f, "{policy}: {}", policy.refusal()),
            Self::Protected { low, least, by } => {
                write!(
                    f,
                    "a job of higher priority could fall to {low} of its speed, by the lower end of the prediction ({by}); \
                     protect keeps {least}"
                )
            }
            Self::Settling => f.write_str("a job just started on each device that would do"),
            Self::Window { least } => write!(
                f,
                "the jobs of a device that would do changed less than {least} ago: its SM activity is sampled first \
                 (preconditions.window)"
            ),
            Self::RestoreFailed { every } => {
                write!(f, "its restore failed; it is tried again {every} after that")
            }
            Self::Gang { gpus, fit } => {
                write!(f, "needs {gpus} devices at once, and at most {fit} on one machine would do")
            }
            Self::Host => f.write_str("the host lacks CPUs or memory"),
            Self::Chosen { why } if why.is_empty() => f.write_str("not chosen, without a reason"),
            Self::Chosen { why } => f.write_str(why),
            Self::Reserved { job, why: Obstacle::Device } => {
                write!(f, "devices that would do are kept for job {job}")
            }
            Self::Reserved { job, why: Obstacle::NearBlocker } => {
                write!(f, "on devices that would do it could slow jobs that job {job} waits for")
            }
            Self::Reserved { job, why: Obstacle::Quota } => {
                write!(f, "job {job} is before it and waits for memory under the same limit of its user or group")
            }
            Self::Reserved { job, why: Obstacle::Threads } => {
                write!(f, "its threads could keep job {job} from starting on the node with devices that would do")
            }
        }
    }
}
