//! Records in layouts that were written before, each read into the record of today.

use crate::model::dry_run::{DryRunFigures, Expected, GpuFigures, MissingCall, ModelledSize, Peak, Phase};
use crate::model::{
    Copies, GpuIndex, GpuTensors, GpuTime, KernelTime, ProcessKey, StackCode, TensorCategory, TensorHolder,
    TensorModule, TensorMoment, TensorStack, Tensors, TimedSpan, Timings,
};
use crate::units::{Bytes, Nanos};
use serde::Deserialize;
use std::collections::BTreeMap;

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

/// [`Tensors`] without whose stacks they have: all are of their own requests. `P` is nothing where all figures are of the
/// allocator's own peak.
#[derive(Deserialize)]
pub(crate) struct EarlyTensors<P> {
    key: ProcessKey,
    framework: String,
    missing: Option<String>,
    remarks: Vec<String>,
    gpus: Vec<EarlyGpuTensors<P>>,
}

#[derive(Deserialize)]
struct EarlyGpuTensors<P> {
    gpu: GpuIndex,
    moment: TensorMoment,
    allocated: Bytes,
    peak: P,
    cached: Bytes,
    codes: Vec<StackCode>,
    modules: Vec<TensorModule>,
    holders: Vec<EarlyTensorHolder>,
}

#[derive(Deserialize)]
struct EarlyTensorHolder {
    category: TensorCategory,
    module: Option<u32>,
    frames: Vec<(u32, u32)>,
    bytes: Bytes,
    blocks: u64,
}

impl From<EarlyTensorHolder> for TensorHolder {
    fn from(early: EarlyTensorHolder) -> TensorHolder {
        let EarlyTensorHolder { category, module, frames, bytes, blocks } = early;
        TensorHolder { category, module, frames, bytes, blocks, stack: TensorStack::Own }
    }
}

impl<P> EarlyTensors<P> {
    fn with(self, peak: impl Fn(P) -> Option<Bytes>) -> Tensors {
        let EarlyTensors { key, framework, missing, remarks, gpus } = self;
        let gpu = |early: EarlyGpuTensors<P>| {
            let EarlyGpuTensors { gpu, moment, allocated, peak: known, cached, codes, modules, holders } =
                early;
            let holders = holders.into_iter().map(TensorHolder::from).collect();
            GpuTensors { gpu, moment, allocated, peak: peak(known), cached, codes, modules, holders }
        };
        Tensors { key, framework, missing, remarks, gpus: gpus.into_iter().map(gpu).collect() }
    }
}

impl From<EarlyTensors<()>> for Tensors {
    fn from(early: EarlyTensors<()>) -> Tensors {
        early.with(|()| None)
    }
}

impl From<EarlyTensors<Option<Bytes>>> for Tensors {
    fn from(early: EarlyTensors<Option<Bytes>>) -> Tensors {
        early.with(|peak| peak)
    }
}

/// [`Expected`] without its source: it was always the dry run alone.
#[derive(Deserialize)]
pub(crate) struct EarlyExpected {
    bytes: u64,
    upper: Option<u64>,
    confidence: f64,
    runs: u64,
    gpu_model: Option<String>,
}

impl From<EarlyExpected> for Expected {
    fn from(early: EarlyExpected) -> Expected {
        let EarlyExpected { bytes, upper, confidence, runs, gpu_model } = early;
        Expected { bytes, upper, confidence: Some(confidence), runs, gpu_model, ..Expected::default() }
    }
}

/// [`DryRunFigures`] without the processes whose framework reported: it was taken to be all of them.
#[derive(Deserialize)]
pub(crate) struct EarlyDryRun {
    machine: String,
    torch: Option<String>,
    frameworks: Vec<String>,
    allocator: Option<String>,
    steps: u64,
    seconds: f64,
    host_memory: u64,
    gpus: Vec<EarlyGpuFigures>,
    out_of_memory: u64,
    retries: u64,
    missing: Vec<MissingCall>,
    modelled: Vec<ModelledSize>,
    filled: Vec<(String, u64)>,
    fill: u32,
    library_calls: Vec<(String, u64)>,
    remarks: Vec<String>,
    withheld: Option<String>,
}

#[derive(Deserialize)]
struct EarlyGpuFigures {
    gpu: usize,
    name: String,
    capability: (u32, u32),
    processes: usize,
    phases: BTreeMap<Phase, Peak>,
    requested_peak: u64,
    held_peak: u64,
    context: u64,
    context_constant: u64,
    context_origin: String,
}

impl From<EarlyGpuFigures> for GpuFigures {
    fn from(early: EarlyGpuFigures) -> GpuFigures {
        let reports = !early.phases.is_empty();
        GpuFigures {
            gpu: early.gpu,
            name: early.name,
            capability: early.capability,
            processes: early.processes,
            reporting_processes: if reports { early.processes } else { 0 },
            phases: early.phases,
            requested_peak: early.requested_peak,
            reporting_requested_peak: if reports { early.requested_peak } else { 0 },
            held_peak: early.held_peak,
            context: early.context,
            context_constant: early.context_constant,
            context_origin: early.context_origin,
        }
    }
}

impl From<EarlyDryRun> for DryRunFigures {
    fn from(early: EarlyDryRun) -> DryRunFigures {
        DryRunFigures {
            machine: early.machine,
            torch: early.torch,
            frameworks: early.frameworks,
            allocator: early.allocator,
            steps: early.steps,
            seconds: early.seconds,
            host_memory: early.host_memory,
            gpus: early.gpus.into_iter().map(GpuFigures::from).collect(),
            out_of_memory: early.out_of_memory,
            retries: early.retries,
            missing: early.missing,
            modelled: early.modelled,
            filled: early.filled,
            fill: early.fill,
            library_calls: early.library_calls,
            remarks: early.remarks,
            withheld: early.withheld,
        }
    }
}
