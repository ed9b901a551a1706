//! Features of a process, for estimators of interference and of sensitivity: what it takes of
//! each resource, each figure with how it was obtained. The names follow KACE where it has them.
//!
//! [`FEATURES`] is the list; all renderings follow from it. `docs/metrics.md` says the same in prose.

mod imported;
mod known;

use super::HostSummary;
use super::profiled::Profiled;
use known::Known;
use radrm_profile::model::{HostCount, Process, Profile};
use serde::Serialize;

/// One feature of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Feature {
    /// Stable name.
    pub name: &'static str,
    /// Resource: `sm`, `dram`, `l2`, `memory`, `copy`, `launch`, `host_cpu`, `host_memory` or `progress`.
    pub resource: &'static str,
    /// Its value; null if it is not known.
    pub value: Option<f64>,
    /// Its unit; `ratio` for a number without one.
    pub unit: &'static str,
    /// `counted` (exact), `measured` (by a meter), `derived` (from such figures), `estimated` (from a sample),
    /// `imported` (means of a profiler's file), `emulated` (an assumption of the emulated driver), or `unknown`.
    pub origin: &'static str,
    /// Method that gave the value, or the reason that there is none.
    pub how: String,
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Counted,
    Measured,
    Derived,
    Estimated,
    Imported,
    Emulated,
}

impl Origin {
    const fn key(self) -> &'static str {
        match self {
            Origin::Counted => "counted",
            Origin::Measured => "measured",
            Origin::Derived => "derived",
            Origin::Estimated => "estimated",
            Origin::Imported => "imported",
            Origin::Emulated => "emulated",
        }
    }
}

/// Reason that a feature has no value, as the report shows it.
#[derive(Debug)]
struct Missing(String);

impl<T: Into<String>> From<T> for Missing {
    fn from(why: T) -> Self {
        Self(why.into())
    }
}

/// A value with its origin, or why there is none.
type Found = Result<(f64, Origin, String), Missing>;

/// One line of the list.
struct Definition {
    resource: &'static str,
    name: &'static str,
    unit: &'static str,
    find: fn(&Known<'_>) -> Found,
}

const fn feature(
    resource: &'static str,
    name: &'static str,
    unit: &'static str,
    find: fn(&Known<'_>) -> Found,
) -> Definition {
    Definition { resource, name, unit, find }
}

const FEATURES: &[Definition] = &[
    feature("sm", "threads_per_launch", "threads", |known| {
        known.geometry(|k| known::per(k.threads, k.all_launches()))
    }),
    feature("sm", "blocks_per_launch", "blocks", |known| {
        known.geometry(|k| known::per(k.blocks, k.all_launches()))
    }),
    feature("sm", "registers_per_thread", "registers", |known| known.attribute(|k| f64::from(k.registers))),
    feature("sm", "static_shared_bytes_per_block", "bytes", |known| {
        known.attribute(|k| k.static_shared.0 as f64)
    }),
    feature("sm", "dynamic_shared_bytes_per_block", "bytes", |known| {
        known.geometry(|k| known::per(k.dynamic_shared.0, k.all_launches()))
    }),
    feature("sm", "sm_active", "%", |known| known.metered_or(|load| load.sm_active_share, &["sm_active"])),
    feature("sm", "sm_occupancy", "%", |known| {
        known.metered_or(|load| load.sm_occupancy_share, &["occupancy", "sm_active"])
    }),
    feature("sm", "tensor_active", "%", |known| known.metered(|load| load.tensor_active_share)),
    feature("sm", "sm_active_by_geometry", "%", |known| known.by_geometry(|filling| filling.active)),
    feature("sm", "sm_occupancy_by_geometry", "%", |known| known.by_geometry(|filling| filling.resident)),
    feature("sm", "gpu_busy", "%", |known| known.by_nvml(|load| load.utilization_share)),
    feature("sm", "kernel_time_share", "%", |known| known.kernel_time()),
    feature("sm", "kernel_sm_throughput", "%", |known| known.of_kernels("sm_throughput")),
    feature("sm", "kernel_occupancy", "%", |known| known.of_kernels("occupancy")),
    feature("dram", "dram_throughput", "%", |known| {
        known.metered_or(|load| load.dram_active_share, &["dram_throughput"])
    }),
    feature("dram", "kernel_dram_throughput", "%", |known| known.of_kernels("dram_throughput")),
    feature("dram", "kernel_memory_throughput", "%", |known| known.of_kernels("memory_throughput")),
    feature("dram", "kernel_dram_bytes_per_second", "bytes/s", |known| {
        known.of_kernels("dram_bytes_per_second")
    }),
    feature("dram", "memory_busy", "%", |known| known.by_nvml(|load| load.memory_utilization_share)),
    feature("dram", "tensor_per_dram", "ratio", |known| {
        known.per_dram("tensor-core activity", |load| load.tensor_active_share)
    }),
    feature("dram", "sm_per_dram", "ratio", |known| {
        known.per_dram("SM activity", |load| load.sm_active_share)
    }),
    feature("l2", "l2_throughput", "%", |known| known.over_time(&["l2_throughput"])),
    feature("l2", "kernel_l2_throughput", "%", |known| known.of_kernels("l2_throughput")),
    feature("l2", "kernel_l1_throughput", "%", |known| known.of_kernels("l1_throughput")),
    feature("l2", "kernel_l2_hit_rate", "%", |known| known.of_kernels("l2_hit_rate")),
    feature("memory", "memory_footprint_bytes", "bytes", |known| known.footprint()),
    feature("memory", "memory_footprint", "%", |known| known.footprint_share()),
    feature("copy", "copy_to_device_bytes_per_second", "bytes/s", |known| known.copied(&["host_to_device"])),
    feature("copy", "copy_from_device_bytes_per_second", "bytes/s", |known| {
        known.copied(&["device_to_host"])
    }),
    feature("copy", "copy_on_device_bytes_per_second", "bytes/s", |known| {
        known.copied(&["device_to_device"])
    }),
    feature("copy", "copy_between_devices_bytes_per_second", "bytes/s", |known| known.copied(&["peer"])),
    feature("copy", "copy_other_bytes_per_second", "bytes/s", |known| {
        known.copied(&["host_to_host", "unspecified"])
    }),
    feature("copy", "memset_bytes_per_second", "bytes/s", |known| known.copied(&["memset"])),
    feature("copy", "pcie_to_gpu_bytes_per_second", "bytes/s", |known| {
        known.rate_by_nvml(|load| load.pcie_to_gpu_bytes_per_s)
    }),
    feature("copy", "pcie_from_gpu_bytes_per_second", "bytes/s", |known| {
        known.rate_by_nvml(|load| load.pcie_from_gpu_bytes_per_s)
    }),
    feature("launch", "launches_per_second", "1/s", |known| known.launch_rate()),
    feature("host_cpu", "host_busy_processors", "processors", |known| {
        known.host_time("mean", |host| host.mean_busy_processors)
    }),
    feature("host_cpu", "host_busy_processors_max", "processors", |known| known.host_time_max()),
    feature("host_cpu", "host_cpu", "%", |known| {
        known.host_time("mean, of those that it may use", |host| {
            let all = Some(f64::from(host.processors)).filter(|all| *all > 0.0)?;
            Some(host.mean_busy_processors? / all * 100.0)
        })
    }),
    feature("host_cpu", "host_cache_misses", "per 1000 instructions", |known| {
        known.of_counter(HostCount::CacheMisses, |host| host.cache_misses_per_1000)
    }),
    feature("host_memory", "host_resident_bytes", "bytes", |known| {
        known.host_memory(|host| host.resident_peak_bytes.map(|bytes| bytes.0 as f64))
    }),
    feature("host_memory", "host_memory", "%", |known| {
        known.host_memory(|host| {
            let all = Some(host.memory_bytes.0 as f64).filter(|all| *all > 0.0)?;
            Some(host.resident_peak_bytes?.0 as f64 / all * 100.0)
        })
    }),
    feature("progress", "exclusive_throughput", "1/s", |_| {
        Err("the program does not report its progress".into())
    }),
];

pub(super) fn features(
    profile: &Profile,
    process: &Process,
    host: Option<&HostSummary>,
    profiled: Option<&Profiled<'_>>,
) -> Vec<Feature> {
    let known = Known::of(profile, process, host, profiled);
    let feature = |definition: &Definition| {
        let (value, origin, how) = match (definition.find)(&known) {
            Ok((value, origin, how)) => (Some(value), origin.key(), how),
            Err(Missing(why)) => (None, "unknown", why),
        };
        let Definition { resource, name, unit, .. } = *definition;
        Feature { name, resource, value, unit, origin, how }
    };
    FEATURES.iter().map(feature).collect()
}
