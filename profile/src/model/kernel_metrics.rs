//! Metrics of kernels that a profiler measured, imported after the run.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metrics of kernels from a profiler's file: of a run of the same program, whose kernels are found again by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelMetrics {
    /// The profiler.
    pub tool: String,
    /// Name of the file, without its folder.
    pub file: String,
    /// The kernels, by name.
    pub kernels: Vec<ProfiledKernel>,
}

/// A kernel of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledKernel {
    /// Name as the file has it: mangled, demangled, or that of the function alone.
    pub name: String,
    /// Launches that were profiled.
    pub launches: u64,
    /// Means over these launches, by the metric's name, which stands for its unit. Never anything but finite numbers.
    pub metrics: BTreeMap<String, f64>,
}
