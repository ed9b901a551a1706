//! Result of a trace under a policy, with its conditions.

use radrm_scheduler_core::Permille;
use radrm_scheduler_core::replay::{Bounds, LeftOut, Metrics, Mode, Report, Source, TraceJob};

use super::chosen::Chosen;
use super::cli::Flags;

/// One trace under one policy.
pub(super) struct Outcome {
    /// Index of the trace: its name may be given twice.
    pub(super) trace: usize,
    /// On the slowdowns of the truth.
    pub(super) factor: f64,
    pub(super) policy: Chosen,
    /// One for each seed.
    pub(super) metrics: Vec<Metrics>,
    /// The first replay, for the picture.
    pub(super) first: Report,
    /// Calls of functions in Python.
    pub(super) calls: u64,
}

/// One trace.
pub(super) struct Traced {
    pub(super) name: String,
    pub(super) jobs: Vec<TraceJob>,
    pub(super) left_out: LeftOut,
    /// Of the jobs that can run on the devices.
    pub(super) bounds: Bounds,
    /// SM activity of jobs of which it states none.
    pub(super) unknown: Permille,
    /// Jobs that never can.
    pub(super) never: usize,
    /// Place of the job of which decisions are shown.
    pub(super) followed: Option<u32>,
}

impl Traced {
    /// Jobs of which the trace states neither SM activity nor a share.
    pub(super) fn without_activity(&self) -> usize {
        self.jobs.iter().filter(|job| job.gpus > 0 && job.activity.is_none() && job.share.is_none()).count()
    }

    /// Jobs whose run time the trace does not have.
    pub(super) fn assumed(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_duration_assumed).count()
    }
}

/// Words for how a replay was made, for the head of table and page.
pub(super) fn conditions(order: &Flags, devices: usize, gpus: usize) -> String {
    let needs = match &order.estimator {
        Source::Measured => "needs measured",
        Source::Unknown => "needs unknown",
        Source::History => "needs from runs that ended before",
        Source::Learned => "needs from the learned model",
        Source::DryRun => "needs from dry runs",
        Source::Combined => "needs as radrmd resolves them",
        Source::Column(name) => return format!("{} ({}), needs from {name}", gpu_count(gpus), order.gpus),
    };
    let mode = match order.mode {
        Mode::Mps => "MPS",
        Mode::Streams => "time slices",
        Mode::Mig => "MIG",
    };
    let instances = if devices > gpus { format!(", {} instances", devices - gpus) } else { String::new() };
    let chance = match order.seeds {
        0 => "without chance".to_owned(),
        1 => "1 seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    format!("{} ({}{instances}), {mode}, {needs}, {chance}", gpu_count(gpus), order.gpus)
}

/// `1 GPU`, `2 GPUs`.
pub(super) fn gpu_count(gpus: usize) -> String {
    if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
}
