//! Records in layouts that were written before, each read into the record of today.

use crate::model::{
    Copies, GpuIndex, GpuTensors, GpuTime, KernelTime, ProcessKey, StackCode, TensorHolder, TensorModule,
    TensorMoment, Tensors, TimedSpan, Timings,
};
use crate::units::{Bytes, Nanos};
use serde::Deserialize;

/// [`Timings`] in the layouts of their first frame type: without a sum of what kernels took (`T` is nothing), or with one.
#[derive(Deserialize)]
pub(crate) struct EarlyTimings<T> {
    key: ProcessKey,
    kernels: Vec<KernelTime>,
    gpu_time: T,
    copies: Vec<Copies>,
    spans: Vec<EarlySpan>,
    lost: u64,
    cost: Nanos,
}

#[derive(Deserialize)]
struct EarlySpan {
    gpu: GpuIndex,
    span: Nanos,
}

impl<T> EarlyTimings<T> {
    fn with(self, gpu_time: impl FnOnce(&[KernelTime], T) -> GpuTime) -> Timings {
        let EarlyTimings { key, kernels, gpu_time: known, copies, spans, lost, cost } = self;
        let gpu_time = gpu_time(&kernels, known);
        // Up to which launch the time was timed is not known.
        let span = |EarlySpan { gpu, span }| TimedSpan { gpu, span, timed: Nanos::ZERO };
        let spans = spans.into_iter().map(span).collect();
        Timings { key, kernels, gpu_time, copies, spans, lost, cost }
    }
}

impl From<EarlyTimings<()>> for Timings {
    fn from(early: EarlyTimings<()>) -> Timings {
        // How they filled the GPU is not known: zero, of which nothing follows.
        early.with(|kernels, ()| GpuTime {
            kernels: Nanos(kernels.iter().fold(0, |sum, kernel| sum.saturating_add(kernel.total.0))),
            ..GpuTime::default()
        })
    }
}

impl From<EarlyTimings<GpuTime>> for Timings {
    fn from(early: EarlyTimings<GpuTime>) -> Timings {
        early.with(|_, known| known)
    }
}

/// [`Tensors`] without the allocator's own peak: all figures are of it.
#[derive(Deserialize)]
pub(crate) struct EarlyTensors {
    key: ProcessKey,
    framework: String,
    missing: Option<String>,
    remarks: Vec<String>,
    gpus: Vec<EarlyGpuTensors>,
}

#[derive(Deserialize)]
struct EarlyGpuTensors {
    gpu: GpuIndex,
    moment: TensorMoment,
    allocated: Bytes,
    cached: Bytes,
    codes: Vec<StackCode>,
    modules: Vec<TensorModule>,
    holders: Vec<TensorHolder>,
}

impl From<EarlyTensors> for Tensors {
    fn from(early: EarlyTensors) -> Tensors {
        let EarlyTensors { key, framework, missing, remarks, gpus } = early;
        let gpu = |early: EarlyGpuTensors| {
            let EarlyGpuTensors { gpu, moment, allocated, cached, codes, modules, holders } = early;
            GpuTensors { gpu, moment, allocated, peak: None, cached, codes, modules, holders }
        };
        Tensors { key, framework, missing, remarks, gpus: gpus.into_iter().map(gpu).collect() }
    }
}
