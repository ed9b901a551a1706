//! Figures over jobs and GPUs, as they are shown.

use radrm_need::Need;
use radrm_scheduler_core::Needs;
use serde::{Deserialize, Serialize};

/// Figures over jobs that are over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsRow {
    /// Jobs.
    pub jobs: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Those among them that had requests for GPU memory refused.
    #[serde(default)]
    pub refused: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Out-of-memory crashes, retried ones included.
    pub ooms: u64,
    /// From the first submission to the last end, ms.
    pub makespan_ms: u64,
    /// Mean time in the queue, ms.
    pub mean_wait_ms: f64,
    /// Mean time on GPUs, ms.
    pub mean_execution_ms: f64,
    /// Mean time from submission to end, ms.
    pub mean_completion_ms: f64,
    /// GPUs at the same time.
    pub gpus: Vec<GpuStats>,
    /// Description of the emulated GPUs, if GPUs are emulated: their activity, power and energy are not given.
    #[serde(default)]
    pub emulated: Option<String>,
}

/// Means over the time that the daemon watched a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuStats {
    /// The GPU's UUID.
    pub gpu: String,
    /// Number of samples.
    pub samples: u64,
    /// Memory in use, bytes.
    pub mean_used: f64,
    /// Most memory in use at a poll, bytes; not known over all time.
    #[serde(default)]
    pub peak_used: Option<u64>,
    /// SM activity, a part of 1: the mean over the samples of which it is known.
    pub mean_smact: Option<f64>,
    /// Number of these samples.
    #[serde(default)]
    pub smact_samples: u64,
    /// Power draw, W.
    pub mean_power_w: Option<f64>,
    /// Energy over that time, MJ.
    pub energy_mj: Option<f64>,
}

/// Figures of GPUs over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvesRow {
    /// Begin of the first point, ms since 1970.
    pub from_ms: u64,
    /// Length of each point, ms.
    pub step_ms: u64,
    /// GPUs that have points.
    pub gpus: Vec<GpuCurve>,
    /// Description of the emulated GPUs, if GPUs are emulated: their activity, power and energy are not given.
    pub emulated: Option<String>,
}

/// A GPU over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuCurve {
    /// The GPU's UUID.
    pub gpu: String,
    /// Its number; `None`: the node has it no more.
    pub index: Option<u32>,
    /// Its memory, bytes; 0: the node has it no more.
    pub total: u64,
    /// Points with figures, in order of time.
    pub points: Vec<CurvePoint>,
}

/// Figures of a GPU over the time of one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Number of the point, from 0: it begins so many times `step_ms` after the first.
    pub at: u64,
    /// Mean memory in use, bytes.
    pub mean_used: f64,
    /// Most memory in use at a poll, bytes.
    pub peak_used: Option<u64>,
    /// Mean SM activity, a part of 1.
    pub mean_smact: Option<f64>,
    /// Mean power draw, W.
    pub mean_power_w: Option<f64>,
    /// Energy, MJ.
    pub energy_mj: Option<f64>,
}

/// A node at an earlier time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PastRow {
    /// Begin and end of what is shown, ms since 1970.
    pub span_ms: (u64, u64),
    /// Its GPUs over that time.
    pub gpus: Vec<GpuStats>,
    /// Attempts that ran in it, by job; those of other users only for administrators.
    pub jobs: Vec<PastJob>,
    /// Description of the emulated GPUs, if GPUs are emulated.
    pub emulated: Option<String>,
}

/// An attempt that ran at an earlier time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastJob {
    /// Its job.
    pub job: u64,
    /// Its user's name.
    pub user: String,
    /// Its GPUs.
    pub gpus: u16,
    /// Start, ms since 1970.
    pub start_ms: u64,
    /// End, or now, ms since 1970.
    pub end_ms: u64,
}

/// GPU time of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The user's name.
    pub user: String,
    /// The user's id.
    pub uid: u32,
    /// Hours of running time by the number of GPUs allocated, suspensions left out.
    pub gpu_hours: f64,
    /// The same by the share of each GPU's memory that was reserved: 1 for a job with GPUs of its own.
    pub weighted_gpu_hours: f64,
    /// The part of `gpu_hours` in which the GPUs did nothing for a whole window of activity or longer. Where activity is not known
    /// nothing counts.
    pub idle_gpu_hours: f64,
    /// Jobs that ran.
    pub jobs: u64,
    /// Their attempts.
    pub attempts: u64,
    /// Attempts that ended out of GPU memory.
    pub out_of_memory: u64,
    /// Energy of GPUs while only this user's jobs were on them, MJ, by whole hours; `None`: none is known.
    #[serde(default)]
    pub energy_mj: Option<f64>,
}

/// Estimate of a job's need, by the daemon's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EstimateRow {
    /// As a submission would be given.
    pub needs: Needs,
    /// Runs of the same program by the same user that the daemon has recorded, those at other batch sizes included.
    pub runs: u32,
    /// The GPU model that they ran on; `None`: the node has several, and the job names none.
    pub model: Option<String>,
    /// Description of the emulated GPUs, if GPUs are emulated.
    pub emulated: Option<String>,
    /// Memory need by each estimator, with its name, in order of trust.
    pub answers: Vec<(String, Need)>,
}
