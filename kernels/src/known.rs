//! Record of a program's work on the GPU, as the program itself knows it.
//! It is the truth beside which observers are held.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::work::shape::Shape;

/// Launches of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launches {
    /// By the program.
    pub launches: u64,
    /// As nodes of launched graphs.
    pub graph_launches: u64,
    /// Blocks over all launches.
    pub blocks: u64,
    /// Threads over all launches.
    pub threads: u64,
}

/// Outcome of checking a program's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Compared and right.
    Right,
    /// The GPU executes no kernels: an emulated one.
    NotExecuted,
    /// There is no result.
    #[default]
    NoResult,
}

/// The work of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Known {
    /// The program.
    pub program: &'static str,
    /// Kernels by name; what kernels of other libraries did (memsets) is not in here.
    pub kernels: BTreeMap<&'static str, Launches>,
    /// Launches of graphs.
    pub graphs: u64,
    /// Floating-point operations of all kernels.
    pub flops: u64,
    /// Bytes that the kernels read and write in device memory, each access once.
    pub bytes: u64,
    /// Bytes copied to the GPU.
    pub bytes_to_gpu: u64,
    /// Bytes copied from the GPU.
    pub bytes_from_gpu: u64,
    /// Requests for device memory.
    pub allocations: u64,
    /// Most bytes of device memory that were asked for and held at a time.
    pub peak_bytes: u64,
    /// Time of the launches on the GPU, by events around all of them; null where that is not measured.
    pub gpu_seconds: Option<f64>,
    /// Time that the host took to issue the launches, without waiting for their end.
    pub issue_seconds: Option<f64>,
    /// Start and end of the launches on CLOCK_MONOTONIC, in nanoseconds, the wait for their end included.
    pub span_ns: Option<[u64; 2]>,
    /// Outcome of checking the results.
    pub checked: Checked,
}

impl Known {
    /// Adds launches of a kernel.
    pub fn launched(&mut self, kernel: &'static str, shape: Shape, launches: u64) {
        let entry = self.kernels.entry(kernel).or_default();
        entry.launches += launches;
        entry.blocks += launches * u64::from(shape.blocks);
        entry.threads += launches * u64::from(shape.blocks) * u64::from(shape.threads);
    }

    /// Adds launches of a kernel as nodes of graphs.
    pub fn launched_in_graphs(&mut self, kernel: &'static str, shape: Shape, launches: u64) {
        self.launched(kernel, shape, launches);
        let entry = self.kernels.entry(kernel).or_default();
        entry.launches -= launches;
        entry.graph_launches += launches;
    }

    /// Adds memory that is held for the rest of the program.
    pub fn holds(&mut self, bytes: usize) {
        self.allocations += 1;
        self.peak_bytes += bytes as u64;
    }
}

/// Returns true if device memory reads back as zeros whatever was written: an emulated GPU.
pub fn is_hollow(values: &[f32]) -> bool {
    values.iter().all(|v| *v == 0.0)
}
