//! Events: the only way anything gets into the core.

use radrm_base::HostUse;
use serde::{Deserialize, Serialize};

use crate::advance::AdvanceReservation;
use crate::allowance::Allowance;
use crate::device::{Device, DeviceId, JobObservation, Node, Observation};
use crate::early::FirstSteps;
use crate::interference::{Activity, Sharer};
use crate::job::{Job, JobId, Profile, SuspendRefusal};
use crate::leaving::Leaving;
use crate::limits::UserLimits;
use crate::outcome::Outcome;
use crate::target::TargetObservation;
use crate::units::{Bytes, Millis, Permille};
use radrm_base::UserId;
use radrm_need::{Need, Needs};

/// The attempt that an answer of an older log names: it was taken to be about the present one.
pub(crate) const ANY_ATTEMPT: u32 = 0;

/// Something that happened. Events that do not fit the state (a job that is not known, a device
/// that is gone, news of an attempt that is over) change nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A machine's CPUs and memory. Comes before its devices.
    NodeAdded {
        /// The machine.
        node: Node,
    },
    /// A device may be used from now on. One that is known already is left as it is.
    DeviceAdded {
        /// The device.
        device: Device,
    },
    /// A device is gone (fell off the bus, node lost). Its jobs are killed and go back to the queue.
    DeviceLost {
        /// The device.
        device: DeviceId,
    },
    /// A device takes no new jobs, or takes them again.
    DeviceDrained {
        /// The device.
        device: DeviceId,
        /// True to stop new jobs.
        drained: bool,
    },
    /// A monitor's view of a device.
    DeviceObserved {
        /// The device.
        device: DeviceId,
        /// The observation.
        seen: Observation,
    },
    /// A monitor's view of a job on a device.
    JobObserved {
        /// The job.
        job: JobId,
        /// Device that the job runs on.
        device: DeviceId,
        /// The observation.
        seen: JobObservation,
    },
    /// Sum of what the jobs of a device do, observed since all of them have launched kernels. Repeated where it changes.
    CompanyObserved {
        /// The device.
        device: DeviceId,
        /// All jobs on it.
        jobs: Vec<JobId>,
        /// Sum of what they do.
        together: Activity,
        /// Part of the SM activity of each of these jobs by its own launches, which take longer there; empty: not known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        each: Vec<Permille>,
    },
    /// Latency and speed of a job with a target in one window.
    /// With the objective max-min: the speed of any job beside others.
    TargetObserved {
        /// The job.
        job: JobId,
        /// Observation of the window.
        seen: TargetObservation,
    },
    /// A running job has made its first optimizer steps. Repeated where more became known of what follows, and after it was
    /// adopted or resumed.
    StepsObserved {
        /// The job.
        job: JobId,
        /// The attempt it is about.
        attempt: u32,
        /// Evidence from those steps.
        first: FirstSteps,
    },
    /// Jobs were seen to share a device, each with its speed against running alone: predictions are learned from it. A
    /// caller that comes back repeats the newest of them.
    SharingObserved {
        /// The model of the device.
        model: String,
        /// All jobs on it.
        jobs: Vec<Sharer>,
    },
    /// A new job, or one that the caller had in its queue before a restart.
    Submitted {
        /// The job.
        job: Box<Job>,
    },
    /// A job that was running already when the caller started, with what was decided for it then.
    Adopted {
        /// The job.
        job: Box<Job>,
        /// Its devices.
        devices: Vec<DeviceId>,
        /// Since when it runs.
        since: Millis,
        /// Memory set aside for it on each device; `None`: the devices as a whole.
        reserved: Option<Bytes>,
        /// It was told to stop: its last signal is decided again, and what was to become of it does.
        #[serde(default)]
        leaving: Option<Box<Leaving>>,
    },
    /// A job that was suspended already when the caller started.
    AdoptedSuspended {
        /// The job.
        job: Box<Job>,
        /// The model of its devices: it can only be restored on the same.
        model: String,
        /// Device memory it needs on each device to come back.
        bytes: Bytes,
        /// Number of devices.
        gpus: u16,
        /// The devices it was on, if it can only come back there; empty: any of its model.
        #[serde(default)]
        devices: Vec<DeviceId>,
        /// It had its devices to itself because its need is not known.
        #[serde(default)]
        whole: bool,
        /// Run time of its attempt until then.
        #[serde(default)]
        ran: Millis,
    },
    /// The limits of users changed.
    UserLimitsSet {
        /// From now on.
        limits: UserLimits,
    },
    /// The limits of a user's jobs changed.
    AllowanceSet {
        /// The user.
        user: UserId,
        /// From now on.
        allowance: Box<Allowance>,
    },
    /// The advance reservations changed, or the clock by which they begin and end was set.
    AdvanceReservationsSet {
        /// From now on, in place of all before.
        reservations: Vec<AdvanceReservation>,
    },
    /// GPU time a user has used before, to carry fair shares over a restart.
    UsageRestored {
        /// User who used it.
        user: UserId,
        /// Milliseconds of GPU time, decayed up to `at`.
        gpu_ms: u64,
    },
    /// A waiting job's need became known or changed: a [`radrm_need::NeedResolver`] resolved it from what is known now.
    NeedKnown {
        /// The job.
        job: JobId,
        /// The need.
        need: Need,
    },
    /// Activity, run time or host use of a waiting job became known (another run of its program ended).
    ProfileKnown {
        /// The job.
        job: JobId,
        /// Activity alone on a GPU; `None` leaves what is known.
        activity: Option<Activity>,
        /// Activity as a dry run predicts it; `None` leaves what is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        predicted: Option<Activity>,
        /// Run time alone; `None` leaves what is known.
        expected: Option<Millis>,
        /// Lower end of `expected`; `None`: it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_least: Option<Millis>,
        /// Host use; `None` leaves what is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_use: Option<HostUse>,
    },
    /// A job need not wait for a dry run any more: its need is known since, or nothing shows it in time.
    DryRunOver {
        /// The job.
        job: JobId,
    },
    /// The user does not want the job any more.
    Cancelled {
        /// The job.
        job: JobId,
    },
    /// A waiting job must not start until it is released.
    Held {
        /// The job.
        job: JobId,
    },
    /// A held job may start.
    Released {
        /// The job.
        job: JobId,
    },
    /// The answer to `Start`: its process showed up on its devices.
    Started {
        /// The job.
        job: JobId,
        /// The attempt that `Start` named.
        attempt: u32,
    },
    /// A start was carried out, and its program was not there in time.
    StartOverdue {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: u32,
        /// The time that it had.
        limit: Millis,
    },
    /// A job's processes are all gone.
    Finished {
        /// The job.
        job: JobId,
        /// The attempt that `Start` named.
        attempt: u32,
        /// Outcome of the attempt.
        outcome: Outcome,
    },
    /// Support for suspending a job became known, or changed: programs may use more of a driver as they run.
    SuspendKnown {
        /// The job.
        job: JobId,
        /// `Err` says why not.
        suspend: Result<(), SuspendRefusal>,
    },
    /// The answer to `Suspend`: its device memory is in the host's memory.
    Suspended {
        /// The job.
        job: JobId,
        /// The attempt it is about.
        #[serde(default)]
        attempt: u32,
        /// Largest amount that it held on one of its devices.
        bytes: Bytes,
    },
    /// The answer to `Suspend`: it runs on.
    SuspendFailed {
        /// The job.
        job: JobId,
        /// The attempt it is about.
        #[serde(default)]
        attempt: u32,
        /// Reason of the failure; it is not tried again.
        refusal: SuspendRefusal,
    },
    /// The answer to `Resume`: it runs.
    Resumed {
        /// The job.
        job: JobId,
        /// The attempt it is about.
        #[serde(default)]
        attempt: u32,
    },
    /// The answer to `Resume`: it is still suspended and whole. (One that is lost has `Finished`.)
    ResumeFailed {
        /// The job.
        job: JobId,
        /// The attempt it is about.
        #[serde(default)]
        attempt: u32,
    },
    /// The signal last decided for a job cannot be sent for now (`held`), or is sent only now: its time to leave
    /// begins when it is sent.
    SignalHeld {
        /// The job.
        job: JobId,
        /// True if the signal is not sent yet.
        held: bool,
    },
    /// No job is started or resumed until this is taken back, none has to leave for those that wait, and no
    /// time is over for anybody: more is to be told first.
    Paused {
        /// True to pause.
        paused: bool,
    },
    /// Time went by.
    Tick,
}

impl Event {
    /// The events that give a waiting job these needs, where they differ from what the scheduler has by enough to decide
    /// otherwise. No two runs are equal to the millisecond: without that each end would change all waiting jobs of its program.
    /// Activities are as [`Job::needing`] has them.
    #[must_use]
    pub fn needs_known(job: &Job, needs: &Needs, assumed: Activity) -> Vec<Self> {
        let id = job.id;
        let before = job.need.as_ref();
        let need = needs.memory.as_ref().filter(|need| before.is_none_or(|before| !before.is_alike(need)));
        let Profile { activity, predicted, expected, at_least, host_use } = Profile::of(needs, assumed);
        let changed = news(job.host_use, host_use, host_moved)
            || news(job.activity, activity, activity_moved)
            || news(job.predicted, predicted, activity_moved)
            || news(job.expected, expected, |before, now| moved(before.0, now.0, 50));
        let profile = changed.then_some(Self::ProfileKnown {
            job: id,
            activity,
            predicted,
            expected,
            at_least,
            host_use,
        });
        need.map(|need| Self::NeedKnown { job: id, need: need.clone() }).into_iter().chain(profile).collect()
    }
}

/// Returns true if a value is known now that was not, or that moved.
fn news<T: Copy>(before: Option<T>, now: Option<T>, moved: fn(T, T) -> bool) -> bool {
    now.is_some_and(|now| before.is_none_or(|before| moved(before, now)))
}

/// Returns true if a figure changed by more than so many thousandths of it.
fn moved(before: u64, now: u64, thousandths: u64) -> bool {
    before.abs_diff(now).saturating_mul(1000) > before.saturating_mul(thousandths)
}

/// By 2 % of a GPU, as [`State`](crate::State) has it of what runs.
fn activity_moved(before: Activity, now: Activity) -> bool {
    let far = |before: Permille, now: Permille| before.0.abs_diff(now.0) >= 20;
    far(before.smact, now.smact) || far(before.smocc, now.smocc) || far(before.drama, now.drama)
}

fn traffic_moved(before: Option<u64>, now: Option<u64>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.abs_diff(now) > (before / 10).max(100 << 20),
        (before, now) => before.is_some() != now.is_some(),
    }
}

/// By 5 % of the cycles.
fn stalled_moved(before: Option<Permille>, now: Option<Permille>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.0.abs_diff(now.0) >= 50,
        (before, now) => before.is_some() != now.is_some(),
    }
}

/// By more than a tenth, of a core, of 100 MiB and of 100 MiB a second at least.
fn host_moved(before: HostUse, now: HostUse) -> bool {
    before.cpu_milli.abs_diff(now.cpu_milli) > (before.cpu_milli / 10).max(100)
        || before.threads.abs_diff(now.threads) > before.threads / 10
        || traffic_moved(before.memory_traffic, now.memory_traffic)
        || stalled_moved(before.memory_stalled, now.memory_stalled)
        || before.resident.0.abs_diff(now.resident.0) > (before.resident.0 / 10).max(100 << 20)
}

#[cfg(test)]
mod tests {
    use radrm_base::PastRun;
    use radrm_need::{Features, NeedResolver};

    use super::*;
    use crate::interference::USUAL;

    fn run(batch: u32, mib: u64) -> PastRun {
        let host = Some(HostUse { cpu_milli: 700, ..HostUse::default() });
        let peak = Bytes::from_mib(mib);
        PastRun { batch: Some(batch), peak, ran: Millis(1000), activity: None, host, complete: true }
    }

    fn resolve(runs: &[PastRun], batch: Option<u32>) -> Needs {
        NeedResolver::default().resolve(&Features { runs, batch, ..Features::default() })
    }

    fn news(job: &Job, needs: &Needs) -> Vec<Event> {
        Event::needs_known(job, needs, USUAL)
    }

    #[test]
    fn news_are_only_what_changes_a_decision() {
        let needs = resolve(&[run(8, 3072)], Some(8));
        let job = Job::new(JobId(4));
        assert_eq!(news(&job, &needs).len(), 2, "memory, and the run time");
        let job = job.needing(&needs, USUAL);
        assert_eq!(job.host_use.map(|used| used.cpu_milli), Some(700));
        assert_eq!(news(&job, &needs), []);
        assert_eq!(news(&job, &resolve(&[run(8, 3072), run(8, 3000)], Some(8))), [], "one more run alike");
        let more = news(&job, &resolve(&[run(8, 4096), run(8, 3072)], Some(8)));
        assert!(
            matches!(&more[..], [Event::NeedKnown { need, .. }] if need.upper == Bytes::from_gib(4)),
            "{more:?}"
        );
        assert_eq!(news(&job, &resolve(&[], Some(8))), [], "what is known is not forgotten");
    }

    #[test]
    fn runs_that_differ_as_equal_runs_do_are_no_news() {
        let ran = |ms, mib, cpu_milli, resident: u64| PastRun {
            ran: Millis(ms),
            host: Some(HostUse {
                cpu_milli,
                threads: 1,
                resident: Bytes::from_mib(resident),
                ..HostUse::default()
            }),
            ..run(8, mib)
        };
        let first = [ran(60_000, 3072, 700, 900)];
        let job = Job::new(JobId(4)).needing(&resolve(&first, Some(8)), USUAL);
        let count = |runs: &[PastRun]| news(&job, &resolve(runs, Some(8))).len();
        assert_eq!(count(&[ran(62_000, 3090, 640, 950)]), 0);
        assert_eq!(count(&[ran(66_000, 3090, 640, 950)]), 1, "10 % longer");
        assert_eq!(count(&[ran(62_000, 3200, 640, 950)]), 1, "4 % more memory");
        assert_eq!(count(&[ran(62_000, 3090, 1700, 950)]), 1, "a core more");
    }
}
