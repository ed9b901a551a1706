//! Share of the GPU that a process's launches filled.
//!
//! The shape of a launch determines what it keeps active. The shim computes that at the launch, from the occupancy that
//! the driver reports, and the profile contains the sums ([`GpuTime`]). This module divides them by time.

use radrm_profile::Nanos;
use radrm_profile::model::{End, Filling, GpuIndex, GpuTime, Process, Profile, TimedSpan};

/// The end of a process, or up to when it is known that it ran.
fn end(profile: &Profile, process: &Process) -> Nanos {
    process.state.ended.unwrap_or_else(|| profile.duration())
}

/// Time for which a process used a GPU, estimated.
/// Where the GPU's time is the host's, it is no longer than the process lived since it joined.
pub(crate) fn used(profile: &Profile, process: &Process, span: &TimedSpan) -> Nanos {
    let lived = end(profile, process).minus(process.identity.joined);
    if profile.gpu_clock.is_real() { span.span.min(lived.max(span.timed)) } else { span.span }
}

/// Over the time from a process's first timed launch to the end of its last. `Err`: why it is not known.
pub(crate) fn of_process(profile: &Profile, process: &Process) -> Result<Filling, &'static str> {
    let [span] = process.timings.spans.as_slice() else {
        return Err("launches were timed on no GPU, or on several");
    };
    let used = used(profile, process, span);
    process.timings.gpu_time.filling(used).ok_or("the driver reports no occupancy of its launches")
}

/// GPU time of a process's kernels up to its end, or up to now.
/// While it runs, its timings are written only from time to time and would be older than the time that they are divided
/// by; the sums by windows are current at every state.
fn so_far(process: &Process) -> GpuTime {
    let (timed, by_windows) = (process.timings.gpu_time, process.kernel_activity.gpu_time());
    match process.state.end {
        End::Running if by_windows.kernels > timed.kernels => by_windows,
        _ => timed,
    }
}

/// Use of a GPU by a job's kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OfGpu {
    /// From when the first process joined whose launches there were timed to the end of the last.
    pub(crate) over: Nanos,
    /// Kernel time as a share of `over`, at most 1. Kernels that run beside each other count each.
    pub(crate) kernels: f64,
    /// `None` where the driver reported no occupancy.
    pub(crate) filling: Option<Filling>,
}

/// `None` where no launch was timed, where a process used other GPUs as well, so that it is not known what it did
/// on which, and where the GPUs' time is not the host's.
pub(crate) fn of_gpu(profile: &Profile, gpu: GpuIndex) -> Option<OfGpu> {
    let used = |process: &&Process| process.timings.spans.iter().any(|span| span.gpu == gpu);
    let processes: Vec<&Process> = profile.processes.iter().filter(used).collect();
    if !profile.gpu_clock.is_real() || processes.iter().any(|process| process.timings.spans.len() > 1) {
        return None;
    }
    let from = processes.iter().map(|process| process.identity.joined).min()?;
    let over = processes.iter().map(|process| end(profile, process)).max()?.minus(from);
    let times = || processes.iter().map(|process| so_far(process));
    let all = times().fold(GpuTime::default(), GpuTime::and);
    if all.kernels == Nanos::ZERO || over == Nanos::ZERO {
        return None;
    }
    let is_known = times().all(|time| time.kernels == Nanos::ZERO || time.active > Nanos::ZERO);
    Some(OfGpu {
        over,
        kernels: (all.kernels.0 as f64 / over.0 as f64).min(1.0),
        filling: all.filling(over).filter(|_| is_known),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{GpuClock, Job, KernelActivity};

    #[test]
    fn an_estimate_is_a_share_of_the_time_on_one_gpu() {
        let span = |gpu| TimedSpan { gpu: GpuIndex(gpu), span: Nanos(1000), timed: Nanos(900) };
        let profile = Profile { last_state: Nanos(2000), ..Profile::new(Job::default()) };
        let mut process = Process::default();
        process.timings.gpu_time = GpuTime { kernels: Nanos(400), active: Nanos(200), resident: Nanos(25) };
        assert!(of_process(&profile, &process).is_err_and(|why| why.contains("on no GPU")));
        process.timings.spans = vec![span(1)];
        assert_eq!(of_process(&profile, &process), Ok(Filling { active: 0.2, resident: 0.025 }));
        process.timings.spans.push(span(2));
        assert!(of_process(&profile, &process).is_err());
        process.timings.spans.truncate(1);
        process.timings.gpu_time.active = Nanos::ZERO;
        assert!(of_process(&profile, &process).is_err_and(|why| why.contains("no occupancy")));
    }

    #[test]
    fn nothing_is_used_for_longer_than_its_process_lived() {
        let mut process = Process::default();
        process.identity.joined = Nanos(50);
        process.state.ended = Some(Nanos(517));
        process.timings.spans = vec![TimedSpan { gpu: GpuIndex(0), span: Nanos(515), timed: Nanos(420) }];
        process.timings.gpu_time = GpuTime { active: Nanos(467), ..GpuTime::default() };
        let mut profile = Profile { last_state: Nanos(600), ..Profile::new(Job::default()) };
        let active = |profile: &Profile, process: &Process| of_process(profile, process).unwrap().active;
        assert_eq!(active(&profile, &process), 1.0);
        let span = |process: &Process| used(&profile, process, &process.timings.spans[0]);
        assert_eq!(span(&process), Nanos(467));
        // What was timed was there.
        process.timings.spans[0].timed = Nanos(470);
        assert_eq!(span(&process), Nanos(470));
        profile.gpu_clock = GpuClock::Modelled;
        assert_eq!(active(&profile, &process), 467.0 / 515.0);
    }

    #[test]
    fn a_gpus_time_is_shared_by_the_jobs_processes() {
        let process = |joined, ended, active| {
            let mut process = Process::default();
            process.identity.joined = Nanos(joined);
            process.state.ended = Some(Nanos(ended));
            process.state.end = End::Exited(None);
            process.timings.spans = vec![TimedSpan { gpu: GpuIndex(1), span: Nanos(10), timed: Nanos(10) }];
            process.timings.gpu_time =
                GpuTime { kernels: Nanos(300), active: Nanos(active), ..GpuTime::default() };
            process
        };
        let mut profile = Profile::new(Job::default());
        profile.processes = vec![process(1000, 1400, 200), process(1500, 2000, 100)];
        let found = of_gpu(&profile, GpuIndex(1)).unwrap();
        assert_eq!((found.over, found.kernels), (Nanos(1000), 0.6));
        assert_eq!(found.filling.map(|filling| filling.active), Some(0.3));
        assert_eq!(of_gpu(&profile, GpuIndex(0)), None, "nothing ran there");
        // One of whose kernels nothing is known.
        profile.processes[0].timings.gpu_time.active = Nanos::ZERO;
        assert_eq!(of_gpu(&profile, GpuIndex(1)).unwrap().filling, None);
        profile.gpu_clock = GpuClock::Modelled;
        assert_eq!(of_gpu(&profile, GpuIndex(1)), None);
    }
    /// Also where its end was not seen because radrm-run was killed.
    #[test]
    fn of_a_process_that_runs_the_windows_tell_more_than_old_timings() {
        let mut process = Process::default();
        process.timings.spans = vec![TimedSpan { gpu: GpuIndex(0), span: Nanos(540), timed: Nanos(540) }];
        process.timings.gpu_time = GpuTime { kernels: Nanos(520), active: Nanos(260), resident: Nanos(52) };
        process.kernel_activity = KernelActivity {
            kernels: Nanos(960),
            active: Nanos(480),
            resident: Nanos(96),
            ..KernelActivity::default()
        };
        let mut profile = Profile { last_state: Nanos(1000), ..Profile::new(Job::default()) };
        profile.processes = vec![process];
        let found = of_gpu(&profile, GpuIndex(0)).unwrap();
        assert_eq!((found.over, found.kernels), (Nanos(1000), 0.96));
        assert_eq!(found.filling, Some(Filling { active: 0.48, resident: 0.096 }));
        // Of one that has ended the last word is there; windows keep what was guessed too high in between.
        profile.processes[0].state.end = End::Vanished;
        assert_eq!(of_gpu(&profile, GpuIndex(0)).unwrap().kernels, 0.52);
    }
}
