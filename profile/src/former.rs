//! Records in layouts that were written before, each read into the record of today.

use crate::model::{Copies, GpuIndex, GpuTime, KernelTime, ProcessKey, TimedSpan, Timings};
use crate::units::Nanos;
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
