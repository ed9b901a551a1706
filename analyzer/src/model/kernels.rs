//! The kernels of a job: those of all processes, merged by name.

use super::names;
use radrm_profile::model::Profile;
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::HashMap;

/// A kernel, over all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelSummary {
    /// Name in the source language.
    pub name: String,
    /// Without return type, parameters and namespaces.
    pub short_name: String,
    /// Name as the driver knows it.
    pub mangled_name: String,
    /// True if the driver's name was too long to keep whole.
    pub name_cut: bool,
    /// Launches by the program.
    pub launches: u64,
    /// Launches as a node of a graph.
    pub graph_launches: u64,
    /// Blocks over all launches.
    pub blocks: u64,
    /// Threads over all launches.
    pub threads: u64,
    /// Blocks per launch.
    pub mean_blocks: f64,
    /// Threads per block.
    pub mean_threads_per_block: f64,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub static_shared_bytes: Bytes,
    /// Dynamic shared memory per block, mean over the launches.
    pub mean_dynamic_shared_bytes: Bytes,
    /// Local memory per thread.
    pub local_bytes: Bytes,
    /// Most threads per block that the kernel allows.
    pub max_threads_per_block: u32,
    /// Processes that launched it.
    pub processes: u32,
    /// Time on the GPU, where launches were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<GpuTime>,
}

/// Time of a kernel on the GPU, over all launches: an estimate from those
/// that were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuTime {
    /// The estimate.
    pub total_ns: Nanos,
    /// Half the width of its 95 % confidence interval.
    pub half_width_ns: Nanos,
    /// Its part of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Launches that were timed.
    pub samples: u64,
}

/// Copies of one way, or memsets, of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopySummary {
    /// The way.
    pub way: String,
    /// Number of copies.
    pub count: u64,
    /// Bytes, each copied byte once.
    pub bytes: Bytes,
}

/// All kernels: longest time on the GPU first where it is known of any, else
/// most launches first.
pub(super) fn merged(profile: &Profile) -> Vec<KernelSummary> {
    let mut by_name: HashMap<&str, KernelSummary> = HashMap::new();
    let mut sums: HashMap<&str, Sums> = HashMap::new();
    for process in &profile.processes {
        for kernel in &process.kernels {
            if kernel.all_launches() == 0 {
                continue;
            }
            let name = if kernel.name.is_empty() { "(unknown)" } else { kernel.name.as_str() };
            let summary = by_name.entry(name).or_default();
            summary.launches = summary.launches.saturating_add(kernel.launches);
            summary.graph_launches = summary.graph_launches.saturating_add(kernel.graph_launches);
            summary.blocks = summary.blocks.saturating_add(kernel.blocks);
            summary.threads = summary.threads.saturating_add(kernel.threads);
            summary.registers = summary.registers.max(kernel.registers);
            summary.static_shared_bytes = summary.static_shared_bytes.max(kernel.static_shared);
            summary.local_bytes = summary.local_bytes.max(kernel.local);
            summary.max_threads_per_block = summary.max_threads_per_block.max(kernel.max_threads);
            summary.name_cut |= kernel.name_cut;
            summary.processes += 1;
            let sums = sums.entry(name).or_default();
            sums.dynamic_shared += u128::from(kernel.dynamic_shared.0);
            if let Some(time) = process.timings.kernel(kernel.id) {
                sums.total_ns += time.total.0 as f64;
                // Errors of different processes are independent.
                sums.squares += (time.half_width.0 as f64).powi(2);
                sums.samples = sums.samples.saturating_add(time.samples);
            }
        }
    }
    let all_ns: f64 = sums.values().map(|sums| sums.total_ns).sum();
    let mut kernels: Vec<_> = by_name
        .into_iter()
        .map(|(name, mut summary)| {
            let launches = summary.launches.saturating_add(summary.graph_launches);
            summary.name = names::demangle(name);
            summary.mangled_name = name.to_owned();
            // A name that was not mangled is the programmer's own: shown whole.
            summary.short_name =
                if summary.name == name { name.to_owned() } else { names::readable(&summary.name) };
            summary.mean_blocks = ratio(summary.blocks, launches);
            summary.mean_threads_per_block = ratio(summary.threads, summary.blocks);
            let dynamic = sums.get(name).map_or(0, |sums| sums.dynamic_shared);
            summary.gpu_time = sums.get(name).filter(|sums| sums.samples > 0).map(|sums| GpuTime {
                total_ns: Nanos(sums.total_ns as u64),
                half_width_ns: Nanos(sums.squares.sqrt() as u64),
                share: if all_ns > 0.0 { sums.total_ns / all_ns } else { 0.0 },
                samples: sums.samples,
            });
            summary.mean_dynamic_shared_bytes =
                Bytes(u64::try_from(dynamic / u128::from(launches.max(1))).unwrap_or(u64::MAX));
            summary
        })
        .collect();
    kernels.sort_by(|a, b| {
        let time = |kernel: &KernelSummary| kernel.gpu_time.map_or(0, |time| time.total_ns.0);
        (time(b), b.launches.saturating_add(b.graph_launches), &a.mangled_name).cmp(&(
            time(a),
            a.launches.saturating_add(a.graph_launches),
            &b.mangled_name,
        ))
    });
    kernels
}

#[derive(Default)]
struct Sums {
    dynamic_shared: u128,
    total_ns: f64,
    squares: f64,
    samples: u64,
}

/// Part of the time from a GPU's first timed launch to the end of its last
/// one in which none of the job's kernels ran, at least.
pub(super) fn idle_share(profile: &Profile) -> Option<f64> {
    // A GPU is in use from the first to the last of its processes' spans; they
    // are not placed in time, so the longest stands for all. What came after
    // the latest timed launch is left out: how long that took is estimated,
    // and too long a time would be idle.
    let mut spans: HashMap<u8, u64> = HashMap::new();
    let (mut busy, mut squares) = (0.0, 0.0);
    for timings in profile.processes.iter().map(|process| &process.timings) {
        for span in &timings.spans {
            let longest = spans.entry(span.gpu.0).or_default();
            *longest = span.timed.0.max(*longest);
        }
        // The most that they can have taken: guesses count in full, and what is in doubt too.
        let listed: f64 = timings.kernels.iter().map(|kernel| kernel.total.0 as f64).sum();
        busy += listed.max(timings.gpu_time.kernels.0 as f64);
        squares += timings.kernels.iter().map(|kernel| (kernel.half_width.0 as f64).powi(2)).sum::<f64>();
    }
    let used: f64 = spans.values().map(|span| *span as f64).sum();
    (used > 0.0).then(|| (1.0 - (busy + squares.sqrt()) / used).clamp(0.0, 1.0))
}

/// Copies of all processes by way, most bytes first.
pub(super) fn copies(profile: &Profile) -> Vec<CopySummary> {
    let mut ways: Vec<CopySummary> = Vec::new();
    for copies in profile.processes.iter().flat_map(|process| &process.timings.copies) {
        let at = ways.iter().position(|known| known.way == copies.way).unwrap_or_else(|| {
            ways.push(CopySummary { way: copies.way.clone(), ..CopySummary::default() });
            ways.len() - 1
        });
        ways[at].count = ways[at].count.saturating_add(copies.count);
        ways[at].bytes = Bytes(ways[at].bytes.0.saturating_add(copies.bytes.0));
    }
    ways.sort_by(|a, b| (b.bytes, &a.way).cmp(&(a.bytes, &b.way)));
    ways
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{GpuIndex, GpuTime, Job, KernelTime, Process, TimedSpan};

    #[test]
    fn a_gpu_was_idle_for_no_less_than_is_said() {
        let kernel = |id, total, half_width| KernelTime {
            id,
            total: Nanos(total),
            half_width: Nanos(half_width),
            samples: 9,
        };
        let process = |span, timed, kernels: Vec<KernelTime>, all| {
            let mut process = Process::default();
            process.timings.spans =
                vec![TimedSpan { gpu: GpuIndex(0), span: Nanos(span), timed: Nanos(timed) }];
            process.timings.gpu_time = GpuTime { kernels: Nanos(all), ..GpuTime::default() };
            process.timings.kernels = kernels;
            process
        };
        let idle = |processes| {
            let share = idle_share(&Profile { processes, ..Profile::new(Job::default()) })?;
            Some((share * 1000.0).round() / 1000.0)
        };
        // The estimate of the time in use is 515, the kernels took 250 and perhaps 50 more.
        let one = process(515, 400, vec![kernel(1, 150, 30), kernel(2, 100, 40)], 250);
        assert_eq!(idle(vec![one.clone()]), Some(0.25));
        // Kernels that are not listed count, and so do guesses that are not in the sum.
        assert_eq!(idle(vec![process(400, 400, vec![kernel(1, 100, 0)], 300)]), Some(0.25));
        assert_eq!(idle(vec![process(400, 400, vec![kernel(1, 900, 0)], 300)]), Some(0.0));
        let other = process(200, 200, vec![kernel(1, 20, 0)], 20);
        assert_eq!(idle(vec![one, other]), Some(0.2));
        assert_eq!(idle(vec![process(515, 0, vec![kernel(1, 20, 0)], 20)]), None, "timed up to where?");
    }
}
