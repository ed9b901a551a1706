//! Findings of the analysis of a run, as the dataset keeps them beside the profile's own figures.

use std::collections::BTreeMap;

use radrm_base::Permille;
use serde::{Deserialize, Serialize};

/// Findings of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Device memory that it needed on the GPU where that was highest, contexts included, bytes. Of a run that ran
    /// out of memory: what it held there and requested on top.
    pub footprint: Option<u64>,
    /// The part of that which it requested on top when it ran out of memory, bytes.
    pub oom_request: Option<u64>,
    /// Mean time of its optimizer steps, where they were marked and something was computed, ns.
    pub step_ns: Option<u64>,
    /// Features of its processes.
    pub features: Features,
}

/// Features of a job's processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// Features of the processes that are kept.
    pub processes: Vec<ProcessFeatures>,
    /// Number of further processes that the job had.
    pub left_out: u64,
}

/// Features of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessFeatures {
    /// Process id.
    pub pid: u32,
    /// By name, which stands for the unit too; null where it is not known.
    pub features: BTreeMap<String, Option<Figure>>,
}

/// A feature's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number, in the unit that belongs to the feature's name.
    pub value: f64,
    /// `counted`, `measured`, `derived`, `estimated` or `imported`.
    pub origin: String,
}

impl Figure {
    /// `None` if the value is not a finite number: JSON has none other, and what it has instead would make the
    /// column unreadable.
    #[must_use]
    pub fn new(value: f64, origin: &str) -> Option<Figure> {
        value.is_finite().then(|| Figure { value, origin: origin.to_owned() })
    }
}

impl Features {
    /// Activity that the job caused on its GPUs, as a mean of the processes of which it was measured: SM activity, SM
    /// occupancy and DRAM activity.
    #[must_use]
    pub fn activity(&self) -> [Option<Permille>; 3] {
        let mean = |name: &str| {
            let figures = self.processes.iter().filter_map(|process| process.features.get(name)?.as_ref());
            let percents: Vec<f64> = figures.map(|figure| figure.value).collect();
            let sum: f64 = percents.iter().sum();
            (!percents.is_empty()).then(|| Permille::from_fraction(sum / percents.len() as f64 / 100.0))
        };
        ["sm_active", "sm_occupancy", "dram_throughput"].map(mean)
    }
}
