//! What was asked for with a job.

use radrm_scheduler_core::Needs;
use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// What was asked for with a job, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Memory on each GPU, and its upper bound, bytes.
    pub gpu_mem: Option<u64>,
    /// The upper bound of that, bytes.
    pub gpu_mem_upper: Option<u64>,
    /// An estimate of it, bytes.
    pub gpu_mem_estimate: Option<u64>,
    /// No later step or phase takes more memory than the third step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fixed_shapes: bool,
    /// Part of each GPU's SMs, thousandths.
    pub gpu_share: Option<u32>,
    /// Under the Multi-Process Service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mps: bool,
    /// A bound on the time of its steps, as `p99=20ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
    /// Its lowest speed beside other jobs, thousandths of that alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_speed: Option<u32>,
    /// GPUs of its own.
    pub exclusive: bool,
    /// Only GPUs of this model.
    pub gpu_model: Option<String>,
    /// Attempts if it runs out of GPU memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// It may be stopped for others and run again later.
    pub preemptible: bool,
    /// It gives way after this time if others wait, ms.
    pub slot_ms: Option<u64>,
    /// How long it is expected to run, ms.
    pub expected_ms: Option<u64>,
    /// The signal at which it writes a checkpoint.
    pub checkpoint_signal: Option<i32>,
    /// Time from that signal to SIGTERM, ms.
    pub grace_ms: Option<u64>,
    /// Batch size.
    pub batch_size: Option<u32>,
    /// Jobs that it waits for, as `any:12` or `ok:12_3`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl Asked {
    /// What `spec` asks for. An estimate that no run confirmed counts as asked for.
    #[must_use]
    pub fn of(spec: &Spec, needs: Option<&Needs>) -> Self {
        let need = needs.and_then(|needs| needs.memory.as_ref()).filter(|need| !need.enforce);
        Self {
            gpu_mem: spec.mem,
            gpu_mem_upper: spec.mem_upper.or(need.map(|need| need.upper.0)),
            gpu_mem_estimate: need.map(|need| need.bytes.0),
            fixed_shapes: spec.fixed_shapes,
            gpu_share: spec.share,
            mps: spec.mps,
            latency: spec.target.latency.as_ref().map(ToString::to_string),
            min_speed: spec.target.speed.map(|speed| speed.0),
            exclusive: spec.exclusive,
            gpu_model: spec.model.clone(),
            attempts: spec.attempts,
            preemptible: spec.preemptible,
            slot_ms: spec.slot_ms,
            expected_ms: spec.expected_ms,
            checkpoint_signal: spec.checkpoint_signal,
            grace_ms: spec.grace_ms,
            after: spec.after.iter().map(ToString::to_string).collect(),
            batch_size: spec.batch,
        }
    }

    /// What is to be set aside on each GPU by what was asked for, bytes.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.gpu_mem_upper.max(self.gpu_mem).or(self.gpu_mem_estimate)
    }
}
