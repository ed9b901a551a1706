//! Measurements of a process, and how features follow from them.

use super::super::profiled::Profiled;
use super::super::{HostSummary, LoadSummary, load};
use super::{Found, Missing, Origin};
use crate::model::filling;
use radrm_profile::model::{
    CountSource, Filling, GpuClock, GpuIndex, HostCount, Kernel, NvmlSample, Process, Profile,
};

/// Divides, with nothing for nothing.
pub(super) fn per(sum: u64, number: u64) -> f64 {
    if number == 0 { 0.0 } else { sum as f64 / number as f64 }
}

/// Reason for figures that are missing because launches and copies were not recorded.
const UNRECORDED: &str = "kernels and copies were not recorded (--kernels off)";

/// The origin of a process's features, gathered once.
pub(super) struct Known<'a> {
    profile: &'a Profile,
    process: &'a Process,
    /// Its kernels, each with its weight in means.
    pub(super) kernels: Vec<(&'a Kernel, f64)>,
    pub(super) weighed_by: &'static str,
    /// Its kernels in a profiler's file.
    pub(super) profiled: Option<&'a Profiled<'a>>,
    /// The one GPU that was its alone, and that GPU's load; or why there is none.
    gpu: Result<(GpuIndex, Option<LoadSummary>), &'static str>,
    host: Option<&'a HostSummary>,
    /// From when it joined to its end.
    seconds: Option<f64>,
}

impl<'a> Known<'a> {
    pub(super) fn of(
        profile: &'a Profile,
        process: &'a Process,
        host: Option<&'a HostSummary>,
        profiled: Option<&'a Profiled<'a>>,
    ) -> Self {
        let (kernels, weighed_by) = weighed(process);
        let ended = process.state.ended;
        let seconds = ended.map(|end| end.minus(process.identity.joined).as_secs_f64());
        Known {
            profile,
            process,
            kernels,
            weighed_by,
            profiled,
            gpu: alone(profile, process).map(|gpu| (gpu, load::gpu(profile, gpu))),
            host,
            seconds: seconds.filter(|seconds| *seconds > 0.0),
        }
    }

    pub(super) fn recorded(&self) -> Result<(), Missing> {
        if self.process.has_unrecorded_kernels() { Err(UNRECORDED.into()) } else { Ok(()) }
    }

    /// A mean over the process's kernels.
    pub(super) fn geometry(&self, value: impl Fn(&Kernel) -> f64) -> Found {
        self.recorded()?;
        let weight: f64 = self.kernels.iter().map(|(_, weight)| weight).sum();
        if weight <= 0.0 {
            return Err("no launch was counted".into());
        }
        let sum: f64 = self.kernels.iter().map(|(kernel, weight)| value(kernel) * weight).sum();
        Ok((sum / weight, Origin::Counted, format!("kernels weighed {}", self.weighed_by)))
    }

    /// A mean of what the driver's compiler decided. An emulated driver compiles nothing: it assumes.
    pub(super) fn attribute(&self, value: impl Fn(&Kernel) -> f64) -> Found {
        let (mean, origin, how) = self.geometry(value)?;
        let is_emulated = self.profile.job.emulated.is_some();
        Ok((mean, if is_emulated { Origin::Emulated } else { origin }, how))
    }

    /// The load of the GPU that it had alone.
    fn load(&self) -> Result<(GpuIndex, &LoadSummary), Missing> {
        let (gpu, load) = self.gpu.as_ref().map_err(|why| *why)?;
        Ok((*gpu, load.as_ref().ok_or("the GPU's load was not sampled")?))
    }

    /// Reason that a figure of GPM or DCGM is missing.
    fn unmetered(&self) -> String {
        let clause = self.profile.unmeasured.iter().find(|clause| clause.starts_with("SM activity"));
        clause.cloned().unwrap_or_else(|| "neither GPM nor DCGM measured it".into())
    }

    fn on_alone(gpu: GpuIndex, meter: &str) -> String {
        format!("by {meter}, on GPU {}, which it had alone", gpu.0)
    }

    /// Per cent, by GPM or DCGM.
    pub(super) fn metered(&self, value: fn(&LoadSummary) -> Option<f64>) -> Found {
        let (gpu, load) = self.load()?;
        let share = value(load).ok_or_else(|| self.unmetered())?;
        Ok((share * 100.0, Origin::Measured, Self::on_alone(gpu, meter_name(load))))
    }

    /// Per cent, by NVML's counters.
    pub(super) fn by_nvml(&self, value: fn(&LoadSummary) -> Option<f64>) -> Found {
        self.rate_by_nvml(value).map(|(share, origin, how)| (share * 100.0, origin, how))
    }

    /// Anything else by NVML's counters.
    pub(super) fn rate_by_nvml(&self, value: fn(&LoadSummary) -> Option<f64>) -> Found {
        let (gpu, load) = self.load()?;
        let value = value(load).ok_or("not reported by NVML")?;
        Ok((value, Origin::Measured, Self::on_alone(gpu, "NVML")))
    }

    /// A stand-in for arithmetic intensity: activity of a part of the SMs for each activity of memory.
    pub(super) fn per_dram(&self, of: &str, value: fn(&LoadSummary) -> Option<f64>) -> Found {
        let (_, load) = self.load()?;
        let both = value(load).zip(load.dram_active_share).ok_or_else(|| self.unmetered())?;
        if both.1 <= 0.0 {
            return Err("the memory's bandwidth was not used".into());
        }
        let how = format!("{of} over dram throughput, both by {}: no FLOP per byte", meter_name(load));
        Ok((both.0 / both.1, Origin::Derived, how))
    }

    /// SM activity and occupancy by the shape of the launches, per cent: known of the process itself, also where it
    /// shares the GPU.
    pub(super) fn by_geometry(&self, value: fn(Filling) -> f64) -> Found {
        self.recorded()?;
        let found = filling::of_process(self.profile, self.process)?;
        let how = "from shapes of launches and timed launches";
        Ok((value(found) * 100.0, Origin::Estimated, how.into()))
    }

    /// GPU time of its kernels, per cent of the time in use.
    pub(super) fn kernel_time(&self) -> Found {
        self.recorded()?;
        let timings = &self.process.timings;
        let busy = timings.gpu_time.kernels.0 as f64;
        let used = |span| filling::used(self.profile, self.process, span).0 as f64;
        let used: f64 = timings.spans.iter().map(used).sum();
        if used <= 0.0 {
            return Err("no launch was timed".into());
        }
        let how = "timed launches, first to last; side by side added up";
        Ok(((busy / used * 100.0).min(100.0), Origin::Estimated, how.into()))
    }

    fn peak(&self) -> f64 {
        let peaks = self.process.state.accounts.iter().map(|account| account.peak.0);
        peaks.fold(0, u64::saturating_add) as f64
    }

    /// Bytes.
    pub(super) fn footprint(&self) -> Found {
        Ok((self.peak(), Origin::Counted, "peak of its allocations; of several GPUs added".into()))
    }

    /// Per cent.
    pub(super) fn footprint_share(&self) -> Found {
        let totals = self.process.state.accounts.iter().map(|account| self.profile.gpu(account.gpu));
        let total: Option<u64> = totals.map(|gpu| gpu.map(|gpu| gpu.total.0)).sum();
        let total = total.filter(|total| *total > 0).ok_or("the memory size of its GPUs is unknown")?;
        Ok((
            self.peak() / total as f64 * 100.0,
            Origin::Derived,
            "its peak over the memory of its GPUs".into(),
        ))
    }

    /// A count over the process's life.
    fn rate(&self, amount: f64, what: &str) -> Found {
        self.recorded()?;
        let seconds = self.seconds.ok_or("the end of the process is unknown")?;
        let time = match self.profile.gpu_clock {
            GpuClock::Real => "",
            GpuClock::Modelled => ", in which waiting for emulated GPUs took no time",
            GpuClock::Absent => ", in which nothing was computed",
        };
        Ok((amount / seconds, Origin::Counted, format!("{what}, over its life{time}")))
    }

    /// Launches per second.
    pub(super) fn launch_rate(&self) -> Found {
        let state = &self.process.state;
        let launches = state.launches.saturating_add(state.graph_launches);
        self.rate(launches as f64, "launches of kernels and graphs")
    }

    /// Bytes per second that its calls copied in these ways.
    pub(super) fn copied(&self, ways: &[&str]) -> Found {
        let copies = self.process.timings.copies.iter().filter(|copies| ways.contains(&copies.way.as_str()));
        self.rate(
            copies.map(|copies| copies.bytes.0).fold(0, u64::saturating_add) as f64,
            "requested by its calls",
        )
    }

    /// Scope of the host's figures: the job, or a job in which several processes used GPUs.
    fn of_host(&self) -> String {
        match self.profile.processes.len() {
            1 => "of the job".to_owned(),
            users => format!("of the whole job, in which {users} processes used GPUs"),
        }
    }

    fn host(&self) -> Result<&'a HostSummary, Missing> {
        self.host.ok_or_else(|| "the profile has no host figures".into())
    }

    /// A figure that follows from processor time.
    pub(super) fn host_time(&self, what: &str, value: fn(&HostSummary) -> Option<f64>) -> Found {
        let found = self.of_counter(HostCount::TaskClock, value)?;
        Ok((found.0, found.1, format!("{what}; {}", found.2)))
    }

    /// Processors at the most, over one span of the timeline: that is perf's, or /proc's.
    pub(super) fn host_time_max(&self) -> Found {
        let most = self.host()?.max_busy_processors.ok_or("the job was too short for a timeline")?;
        let task_clock = self.profile.host.counter(HostCount::TaskClock).map(|counter| counter.source);
        let is_perf = matches!(task_clock, Some(CountSource::Perf | CountSource::PerfUser));
        let source = if is_perf { "perf" } else { "/proc" };
        Ok((most, Origin::Measured, format!("most over a span; by {source}, {}", self.of_host())))
    }

    /// A figure that follows from one of the host's counters.
    pub(super) fn of_counter(&self, count: HostCount, value: fn(&HostSummary) -> Option<f64>) -> Found {
        let host = self.host()?;
        let missing = || {
            let clauses = &self.profile.unmeasured;
            let clause = clauses.iter().find(|clause| clause.contains(count.label()));
            clause.cloned().unwrap_or_else(|| format!("{} were not counted", count.label()))
        };
        let value = value(host).ok_or_else(missing)?;
        let counter = host.counters.iter().find(|counter| counter.name == count.key());
        let source = counter.map_or("/proc", |counter| counter.source);
        Ok((value, Origin::Measured, format!("by {source}, {}", self.of_host())))
    }

    /// A figure that follows from resident memory.
    pub(super) fn host_memory(&self, value: fn(&HostSummary) -> Option<f64>) -> Found {
        let value = value(self.host()?).ok_or("the job's host memory was not sampled")?;
        let how = format!("by /proc, {}; shared pages count each time", self.of_host());
        Ok((value, Origin::Measured, how))
    }
}

fn meter_name(load: &LoadSummary) -> &'static str {
    match load.meter {
        Some("gpm") => "GPM",
        Some("dcgm") => "DCGM",
        _ => "NVML",
    }
}

/// Name of the weighting of kernels if no launch was timed.
pub(super) const BY_LAUNCHES: &str = "by launches (none was timed)";

/// Kernels with their weight in means: by time on the GPU where launches were timed, else by launches. What runs longest
/// decides how a program gets along with others.
fn weighed(process: &Process) -> (Vec<(&Kernel, f64)>, &'static str) {
    let launched = || process.kernels.iter().filter(|kernel| kernel.all_launches() > 0);
    let time = |kernel: &Kernel| process.timings.kernel(kernel.id).map_or(0.0, |t| t.total.0 as f64);
    if launched().map(time).sum::<f64>() > 0.0 {
        return (launched().map(|kernel| (kernel, time(kernel))).collect(), "by estimated GPU time");
    }
    let by_launches = launched().map(|kernel| (kernel, kernel.all_launches() as f64)).collect();
    (by_launches, BY_LAUNCHES)
}

/// The one GPU of a process, if it had it for itself: only then the GPU's figures are its own.
fn alone(profile: &Profile, process: &Process) -> Result<GpuIndex, &'static str> {
    let mut gpus = process.state.accounts.iter().map(|account| account.gpu);
    let (Some(gpu), None) = (gpus.next(), gpus.next()) else {
        return Err("measured per GPU, and the process used none or several");
    };
    let users = profile.processes.iter().filter(|other| other.account(gpu).is_some()).count();
    let others = |sample: &NvmlSample| sample.gpu == gpu && sample.others_count > 0;
    if users > 1 || profile.samples.iter().any(others) {
        return Err("measured for the whole GPU, which other processes used too");
    }
    Ok(gpu)
}
