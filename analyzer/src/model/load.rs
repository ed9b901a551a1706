//! Load of the GPUs and of the host, drawn together.

use radrm_profile::model::{GpuIndex, GpuSpan, HostCount, HostSpan, Meter, Profile, Share};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;

/// Load of a GPU while it was sampled, by all programs.
/// Means are over the time that was measured; figures that were not measured are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LoadSummary {
    /// The time that was watched.
    pub watched_ns: Nanos,
    /// Readings.
    pub readings: u64,
    /// Share of the time in which a kernel ran (NVML).
    pub utilization_share: Option<f64>,
    /// Share of the time in which memory was read or written (NVML).
    pub memory_utilization_share: Option<f64>,
    /// Source of `sm_active_share` to `dram_active_share`: `gpm` or `dcgm`.
    pub meter: Option<&'static str>,
    /// Share of the time in which an SM had a warp, mean of all SMs (SMACT).
    pub sm_active_share: Option<f64>,
    /// Resident warps as a share of what the SMs can hold (SMOCC).
    pub sm_occupancy_share: Option<f64>,
    /// Share of the time in which tensor cores were at work.
    pub tensor_active_share: Option<f64>,
    /// Share of the memory's bandwidth that was used (DRAMA).
    pub dram_active_share: Option<f64>,
    /// Mean power, milliwatt.
    pub mean_power_mw: Option<f64>,
    /// Energy, millijoule.
    pub energy_mj: Option<u64>,
    /// Highest temperature, degrees Celsius.
    pub max_temperature: Option<u32>,
    /// Mean clock of the SMs, MHz.
    pub mean_sm_clock_mhz: Option<f64>,
    /// Mean clock of the memory, MHz.
    pub mean_memory_clock_mhz: Option<f64>,
    /// Bytes per second over PCI Express from the GPU.
    pub pcie_from_gpu_bytes_per_s: Option<f64>,
    /// Bytes per second over PCI Express to the GPU.
    pub pcie_to_gpu_bytes_per_s: Option<f64>,
}

/// Mean over time of what some spans know.
fn mean(spans: &[&GpuSpan], value: impl Fn(&GpuSpan) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut time) = (0.0, 0.0);
    for span in spans {
        if let Some(value) = value(span) {
            let length = span.span.as_secs_f64().max(1e-9);
            sum += value * length;
            time += length;
        }
    }
    (time > 0.0).then(|| sum / time)
}

pub(super) fn gpu(profile: &Profile, gpu: GpuIndex) -> Option<LoadSummary> {
    let spans: Vec<&GpuSpan> = profile.activity.iter().filter(|span| span.gpu == gpu).collect();
    if spans.is_empty() {
        return None;
    }
    let share = |value: fn(&GpuSpan) -> Option<Share>| mean(&spans, |span| value(span).map(Share::get));
    let energy = || spans.iter().filter_map(|span| span.energy_mj);
    Some(LoadSummary {
        watched_ns: spans.iter().fold(Nanos::ZERO, |sum, span| sum + span.span),
        readings: spans.iter().map(|span| u64::from(span.samples)).sum(),
        utilization_share: share(|span| span.utilization),
        memory_utilization_share: share(|span| span.memory_utilization),
        meter: spans.iter().rev().find(|span| span.meter != Meter::None).and_then(|span| span.meter.key()),
        sm_active_share: share(|span| span.sm_active),
        sm_occupancy_share: share(|span| span.sm_occupancy),
        tensor_active_share: share(|span| span.tensor_active),
        dram_active_share: share(|span| span.dram_active),
        mean_power_mw: mean(&spans, |span| span.power_mw.map(f64::from)),
        energy_mj: energy().next().map(|_| energy().fold(0, u64::saturating_add)),
        max_temperature: spans.iter().filter_map(|span| span.temperature).max(),
        mean_sm_clock_mhz: mean(&spans, |span| span.sm_clock_mhz.map(f64::from)),
        mean_memory_clock_mhz: mean(&spans, |span| span.memory_clock_mhz.map(f64::from)),
        pcie_from_gpu_bytes_per_s: mean(&spans, |span| span.pcie_from_gpu.map(|bytes| bytes.0 as f64)),
        pcie_to_gpu_bytes_per_s: mean(&spans, |span| span.pcie_to_gpu.map(|bytes| bytes.0 as f64)),
    })
}

/// Most processors that were busy over a span. Time of a process that had not been seen until it ended stands in the span
/// of its end, which then seems busier than all processors together: such a span counts with those before it.
fn most_busy(spans: &[HostSpan], processors: u32) -> Option<f64> {
    let most = if processors == 0 { f64::INFINITY } else { f64::from(processors) };
    let share = |(length, busy): (u64, u64)| busy as f64 / length.max(1) as f64;
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for span in spans {
        let mut last = (span.span.0, span.busy.0);
        while share(last) > most
            && let Some((length, busy)) = joined.pop()
        {
            last = (last.0.saturating_add(length), last.1.saturating_add(busy));
        }
        joined.push(last);
    }
    // Ticks of 10 ms make short spans seem busier than they can be.
    let long = joined.into_iter().filter(|(length, _)| *length >= Nanos::from_millis(50).0);
    long.map(|span| share(span).min(most)).reduce(f64::max)
}

/// Use of the host by the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostSummary {
    /// Processors that the job may use; 0 if unknown.
    pub processors: u32,
    /// The host's memory; 0 if unknown.
    pub memory_bytes: Bytes,
    /// Processors that the job kept busy, mean over its time; null if its processor time is not known.
    pub mean_busy_processors: Option<f64>,
    /// Most that it kept busy over one span of its timeline.
    pub max_busy_processors: Option<f64>,
    /// Highest resident memory of all its processes together, where it was sampled, and at least what one of them
    /// had; shared pages count for every process that has them.
    pub resident_peak_bytes: Option<Bytes>,
    /// Highest resident memory of one process, by the kernel.
    pub process_resident_peak_bytes: Option<Bytes>,
    /// Most processes at a time.
    pub max_processes: u32,
    /// Most threads at a time.
    pub max_threads: u32,
    /// Instructions per cycle.
    pub instructions_per_cycle: Option<f64>,
    /// Cache misses per 1000 instructions.
    pub cache_misses_per_1000: Option<f64>,
    /// Counters since the job's start.
    pub counters: Vec<CounterSummary>,
}

/// A counter of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CounterSummary {
    /// `task_clock_ns`, `cycles`, `instructions`, `cache_misses`, `context_switches`, `page_faults` or
    /// `major_faults`.
    pub name: &'static str,
    /// Its value; scaled up if `counted_share` is below 1.
    pub value: u64,
    /// `perf`, `perf_user` (user mode only), `procfs` or `rusage`.
    pub source: &'static str,
    /// Share of the time in which it was counted.
    pub counted_share: f64,
}

impl HostSummary {
    /// A counter's value.
    pub fn counter(&self, count: HostCount) -> Option<u64> {
        self.counters.iter().find(|counter| counter.name == count.key()).map(|counter| counter.value)
    }
}

/// Null in reports of profiles that know nothing of the host.
pub(super) fn host(profile: &Profile) -> Option<HostSummary> {
    let host = &profile.host;
    if host.counters.is_empty() && host.spans.is_empty() {
        return None;
    }
    let counters: Vec<CounterSummary> = host
        .counters
        .iter()
        .filter_map(|counter| {
            Some(CounterSummary {
                name: HostCount::from_number(counter.kind)?.key(),
                value: counter.value,
                source: counter.source.key(),
                counted_share: counter.counted.get(),
            })
        })
        .collect();
    let mut summary = HostSummary {
        processors: host.processors,
        memory_bytes: host.memory,
        resident_peak_bytes: host
            .spans
            .iter()
            .map(|span| span.resident)
            .chain(host.resident_peak)
            .max()
            .filter(|bytes| !bytes.is_zero()),
        process_resident_peak_bytes: host.resident_peak,
        max_processes: host.spans.iter().map(|span| span.processes).max().unwrap_or(0),
        max_threads: host.spans.iter().map(|span| span.threads).max().unwrap_or(0),
        counters,
        ..HostSummary::default()
    };
    let duration = profile.duration().0 as f64;
    let of = |count| summary.counter(count).map(|value| value as f64);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b.filter(|b| *b > 0.0)?);
    let mean_busy = of(HostCount::TaskClock).filter(|_| duration > 0.0).map(|busy| busy / duration);
    let per_cycle = ratio(of(HostCount::Instructions), of(HostCount::Cycles));
    let misses = ratio(of(HostCount::CacheMisses).map(|misses| misses * 1000.0), of(HostCount::Instructions));
    summary.mean_busy_processors = mean_busy;
    // What the spans do not show is in the mean.
    summary.max_busy_processors =
        most_busy(&host.spans, host.processors).into_iter().chain(mean_busy).reduce(f64::max);
    summary.instructions_per_cycle = per_cycle;
    summary.cache_misses_per_1000 = misses;
    Some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_has_more_busy_processors_than_there_are() {
        let span = |ms: u64, busy_ms: u64| HostSpan {
            span: Nanos::from_millis(ms),
            busy: Nanos::from_millis(busy_ms),
            ..HostSpan::default()
        };
        assert_eq!(most_busy(&[span(100, 50), span(100, 150)], 2), Some(1.5));
        // A process that had not been seen has ended: its time belongs to the spans before it too.
        assert_eq!(most_busy(&[span(100, 10), span(300, 10), span(100, 480)], 2), Some(1.225));
        assert_eq!(most_busy(&[span(100, 500)], 2), Some(2.0));
        assert_eq!(most_busy(&[span(100, 500)], 0), Some(5.0));
        assert_eq!(most_busy(&[span(20, 20)], 2), None);
    }
}
