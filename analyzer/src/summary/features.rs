//! Features of a process for models of interference: those of KACE as far as they are known, each with
//! how it was obtained.

use super::{LoadSummary, load};
use crate::filling;
use radrm_profile::model::{Filling, GpuIndex, Kernel, NvmlSample, Process, Profile};
use serde::Serialize;

/// One feature of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Feature {
    /// Stable name.
    pub name: &'static str,
    /// Its value; null if it is not known.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// How it was obtained, or why not.
    pub how: String,
}

/// Weight of a kernel in means over the process's kernels.
struct Weighed<'a> {
    kernels: Vec<(&'a Kernel, f64)>,
    how: &'static str,
}

impl<'a> Weighed<'a> {
    /// By time on the GPU where launches were timed, else by launches: what runs longest decides how a
    /// program gets along with others.
    fn of(process: &'a Process) -> Weighed<'a> {
        let launched: Vec<&Kernel> = process.kernels.iter().filter(|k| k.all_launches() > 0).collect();
        let time = |kernel: &Kernel| process.timings.kernel(kernel.id).map_or(0.0, |t| t.total.0 as f64);
        let timed: f64 = launched.iter().map(|kernel| time(kernel)).sum();
        if timed > 0.0 {
            let kernels = launched.into_iter().map(|kernel| (kernel, time(kernel))).collect();
            return Weighed {
                kernels,
                how: "counted per launch, kernels weighed by their estimated time on the GPU",
            };
        }
        let kernels = launched.into_iter().map(|kernel| (kernel, kernel.all_launches() as f64)).collect();
        Weighed { kernels, how: "counted per launch, kernels weighed by launches (none was timed)" }
    }

    fn mean(&self, value: impl Fn(&Kernel) -> f64) -> Option<f64> {
        let weight: f64 = self.kernels.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = self.kernels.iter().map(|(kernel, weight)| value(kernel) * weight).sum();
        (weight > 0.0).then(|| sum / weight)
    }
}

/// Divides, with nothing for nothing.
fn per(sum: u64, number: u64) -> f64 {
    if number == 0 { 0.0 } else { sum as f64 / number as f64 }
}

pub(super) fn features(profile: &Profile, process: &Process) -> Vec<Feature> {
    let kernels = Weighed::of(process);
    let geometry = |name, unit, value: &dyn Fn(&Kernel) -> f64| {
        let value = kernels.mean(value);
        let how = if value.is_some() { kernels.how } else { "no launch was counted" };
        Feature { name, value, unit, how: how.into() }
    };
    let mut features = vec![
        geometry("threads_per_launch", "threads", &|k| per(k.threads, k.all_launches())),
        geometry("blocks_per_launch", "blocks", &|k| per(k.blocks, k.all_launches())),
        geometry("registers_per_thread", "registers", &|k| f64::from(k.registers)),
        geometry("static_shared_bytes_per_block", "bytes", &|k| k.static_shared.0 as f64),
        geometry("dynamic_shared_bytes_per_block", "bytes", &|k| per(k.dynamic_shared.0, k.all_launches())),
    ];
    let alone = alone(profile, process);
    let load = alone.as_ref().ok().and_then(|gpu| load::gpu(profile, *gpu));
    let device =
        |name, value: fn(&LoadSummary) -> Option<f64>, source: fn(&LoadSummary) -> Option<&'static str>| {
            let share = load.as_ref().and_then(value);
            let how = match (&alone, share) {
                (Err(why), _) => why.clone(),
                (Ok(_), None) => "not measured".into(),
                (Ok(gpu), Some(_)) => {
                    let source = load.as_ref().and_then(source).unwrap_or("nvml");
                    format!("measured of GPU {} by {source}, on which no other process was seen", gpu.0)
                }
            };
            Feature { name, value: share.map(|share| share * 100.0), unit: "%", how }
        };
    let meter: fn(&LoadSummary) -> Option<&'static str> = |load| load.meter;
    let nvml: fn(&LoadSummary) -> Option<&'static str> = |_| Some("nvml");
    features.extend([
        device("sm_active", |load| load.sm_active_share, meter),
        device("sm_occupancy", |load| load.sm_occupancy_share, meter),
        device("tensor_active", |load| load.tensor_active_share, meter),
        device("dram_throughput", |load| load.dram_active_share, meter),
        device("gpu_busy", |load| load.utilization_share, nvml),
        device("memory_busy", |load| load.memory_utilization_share, nvml),
    ]);
    features.extend(estimated(process));
    features.extend(own(process));
    features
}

/// SM activity and occupancy by the shape of the launches: known of the process itself, also where it
/// shares the GPU.
fn estimated(process: &Process) -> [Feature; 2] {
    let found = filling::of_process(process);
    let feature = |name, value: fn(Filling) -> f64| {
        Feature {
        name,
        value: found.ok().map(|found| value(found) * 100.0),
        unit: "%",
        how: match found {
            Ok(_) => {
                "estimated from the shapes of launches, by the driver's occupancy, and the times of those that were timed"
            }
            Err(why) => why,
        }
        .into(),
    }
    };
    [
        feature("sm_active_by_geometry", |found| found.active),
        feature("sm_occupancy_by_geometry", |found| found.resident),
    ]
}

/// What is known of the process itself.
fn own(process: &Process) -> Vec<Feature> {
    let peak: u64 = process.state.accounts.iter().fold(0, |sum, account| sum.saturating_add(account.peak.0));
    let seconds = process.state.ended.map(|end| end.saturating_sub(process.identity.joined).as_secs_f64());
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    let rate = |name, unit, amount: f64, what: &str| Feature {
        name,
        value: seconds.map(|seconds| amount / seconds),
        unit,
        how: match seconds {
            Some(_) => format!("{what}, over the process's life"),
            None => "the end of the process is not known".into(),
        },
    };
    let busy_ns: f64 = process.timings.kernels.iter().map(|kernel| kernel.total.0 as f64).sum();
    let used_ns: f64 = process.timings.spans.iter().map(|span| span.span.0 as f64).sum();
    let copied: f64 = process.timings.copies.iter().map(|copies| copies.bytes.0 as f64).sum();
    vec![
        Feature {
            name: "memory_footprint_bytes",
            value: Some(peak as f64),
            unit: "bytes",
            how: "counted: the peaks of its allocations, one per GPU, added".into(),
        },
        rate("launches_per_second", "1/s", process.state.launches as f64, "counted launches"),
        rate("copied_bytes_per_second", "bytes/s", copied, "counted copies and memsets"),
        Feature {
            name: "kernel_time_share",
            value: (used_ns > 0.0).then(|| (busy_ns / used_ns * 100.0).min(100.0)),
            unit: "%",
            how: if used_ns > 0.0 {
                "estimated from launches that were timed, over the time from the first of them to the last"
                    .into()
            } else {
                "no launch was timed".into()
            },
        },
        Feature {
            name: "exclusive_throughput",
            value: None,
            unit: "1/s",
            how: "the program does not tell its progress".into(),
        },
    ]
}

/// The one GPU of a process, if it had it for itself: only then the GPU's figures are its own.
fn alone(profile: &Profile, process: &Process) -> Result<GpuIndex, String> {
    let mut gpus = process.state.accounts.iter().map(|account| account.gpu);
    let (Some(gpu), None) = (gpus.next(), gpus.next()) else {
        return Err("known of GPUs only, and the process used none or several".into());
    };
    let users = profile.processes.iter().filter(|other| other.account(gpu).is_some()).count();
    let others = |sample: &NvmlSample| sample.gpu == gpu && sample.others_count > 0;
    if users > 1 || profile.samples.iter().any(others) {
        return Err("known of the whole GPU only, which other processes used too".into());
    }
    Ok(gpu)
}
