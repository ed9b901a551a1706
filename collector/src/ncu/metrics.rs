//! The metrics that are imported: their names in Nsight Compute's forms, and what their units are worth.

/// Dimension of a value: its unit must be of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    /// Per cent.
    Share,
    /// Nanoseconds.
    Time,
    /// Bytes a second.
    Rate,
    /// Clock cycles.
    Cycles,
}

/// A metric that is imported.
pub(super) struct Metric {
    /// Its name in a profile.
    pub(super) key: &'static str,
    pub(super) dimension: Dimension,
    /// As the raw page names it, and as the details page does, in older versions too.
    names: &'static [&'static str],
}

/// Cycles in which SMs were active, and all: only their ratio is kept.
pub(super) const ACTIVE_CYCLES: &str = "sm_active_cycles";
pub(super) const ELAPSED_CYCLES: &str = "elapsed_cycles";
/// The ratio, per cent.
pub(super) const SM_ACTIVE: &str = "sm_active";
/// Key of the duration of a launch.
pub(super) const DURATION: &str = "duration_ns";

impl Metric {
    /// One of its names.
    pub(super) fn name(&self, rank: usize) -> &'static str {
        self.names.get(rank).copied().unwrap_or(self.key)
    }
}

const fn metric(key: &'static str, dimension: Dimension, names: &'static [&'static str]) -> Metric {
    Metric { key, dimension, names }
}

/// Of several names of one metric in a file the first that stands here is taken.
pub(super) const METRICS: &[Metric] = &[
    metric(DURATION, Dimension::Time, &["gpu__time_duration.sum", "gpu__time_duration.avg", "Duration"]),
    metric(
        "sm_throughput",
        Dimension::Share,
        &[
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            "Compute (SM) Throughput",
            "Compute (SM) [%]",
            "SM [%]",
            "SOL SM",
        ],
    ),
    metric(
        "memory_throughput",
        Dimension::Share,
        &[
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            "Memory Throughput",
            "Memory [%]",
            "SOL Memory",
        ],
    ),
    metric(
        "dram_throughput",
        Dimension::Share,
        &[
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "DRAM Throughput",
            "SOL DRAM",
        ],
    ),
    metric(
        "l2_throughput",
        Dimension::Share,
        &[
            "lts__throughput.avg.pct_of_peak_sustained_elapsed",
            "L2 Cache Throughput",
            "SOL L2 Cache",
            "SOL L2",
        ],
    ),
    metric(
        "l1_throughput",
        Dimension::Share,
        &[
            "l1tex__throughput.avg.pct_of_peak_sustained_active",
            "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
            "L1/TEX Cache Throughput",
            "SOL L1/TEX Cache",
            "SOL TEX",
        ],
    ),
    metric("l2_hit_rate", Dimension::Share, &["lts__t_sector_hit_rate.pct", "L2 Hit Rate"]),
    metric(
        "occupancy",
        Dimension::Share,
        &["sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"],
    ),
    metric(SM_ACTIVE, Dimension::Share, &["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"]),
    metric(ACTIVE_CYCLES, Dimension::Cycles, &["sm__cycles_active.avg", "SM Active Cycles"]),
    metric(
        ELAPSED_CYCLES,
        Dimension::Cycles,
        &["sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", "gpc__cycles_elapsed.max", "Elapsed Cycles"],
    ),
    metric("dram_bytes_per_second", Dimension::Rate, &["dram__bytes.sum.per_second", "Memory Throughput"]),
];

/// The metric of a name with this unit, its place in [`METRICS`], how far down its names that one stands, and what a
/// value is to be multiplied by. `None`: it is not imported, or its unit is of another kind.
pub(super) fn find(name: &str, unit: &str) -> Option<(usize, usize, f64)> {
    METRICS.iter().enumerate().find_map(|(at, metric)| {
        let rank = metric.names.iter().position(|known| *known == name)?;
        Some((at, rank, worth(unit, metric.dimension)?))
    })
}

/// Returns true if a metric of this name is imported, whatever its unit.
pub(super) fn is_known(name: &str) -> bool {
    METRICS.iter().any(|metric| metric.names.contains(&name))
}

/// Factor from a unit to the unit of the dimension. Nsight Compute scales units by itself: `Kbyte/second`, `us`.
fn worth(unit: &str, dimension: Dimension) -> Option<f64> {
    match dimension {
        Dimension::Share => (unit == "%").then_some(1.0),
        Dimension::Time => seconds(unit).map(|seconds| seconds * 1e9),
        Dimension::Cycles => base(unit, &["cycle", "cycles"]),
        Dimension::Rate => {
            let (bytes, time) = unit.split_once('/')?;
            Some(base(bytes, &["byte", "bytes", "B"])? / seconds(time)?)
        }
    }
}

/// The factor before one of these names.
fn base(unit: &str, names: &[&str]) -> Option<f64> {
    let prefix = names.iter().find_map(|name| unit.strip_suffix(name))?;
    Some(match prefix {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    })
}

fn seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "s" | "sec" | "second" => 1.0,
        "ms" | "msecond" => 1e-3,
        "us" | "usecond" => 1e-6,
        "ns" | "nsecond" => 1e-9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_worth_what_they_say() {
        let value = |name, unit| find(name, unit).map(|(at, _, worth)| (METRICS[at].key, worth));
        for (name, unit, key, worth) in [
            ("Duration", "ns", DURATION, 1.0),
            ("Duration", "us", DURATION, 1e3),
            ("gpu__time_duration.sum", "msecond", DURATION, 1e6),
            ("Duration", "second", DURATION, 1e9),
            // One name, two metrics: the unit tells them apart.
            ("Memory Throughput", "%", "memory_throughput", 1.0),
            ("Memory Throughput", "Gbyte/s", "dram_bytes_per_second", 1e9),
            ("dram__bytes.sum.per_second", "Kbyte/second", "dram_bytes_per_second", 1e3),
            ("dram__bytes.sum.per_second", "byte/nsecond", "dram_bytes_per_second", 1e9),
            ("dram__bytes.sum.per_second", "Tbyte/second", "dram_bytes_per_second", 1e12),
            ("SM Active Cycles", "cycle", ACTIVE_CYCLES, 1.0),
        ] {
            let (found, factor) = value(name, unit).unwrap_or_else(|| panic!("{name} {unit}"));
            assert_eq!(found, key);
            assert!((factor / worth - 1.0).abs() < 1e-12, "{name} {unit}: {factor}");
        }
        for (name, unit) in [("Duration", "%"), ("DRAM Throughput", "byte/cycle"), ("DRAM Frequency", "hz")] {
            assert_eq!(value(name, unit), None, "{name} {unit}");
        }
        assert!(is_known("Duration") && !is_known("DRAM Frequency"));
    }

    #[test]
    fn no_name_stands_for_two_metrics_of_one_kind() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in METRICS {
            for name in metric.names {
                assert!(seen.insert((*name, metric.dimension as u8)), "{name}");
            }
        }
    }
}
