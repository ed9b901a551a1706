//! Predicted step of a dry run: the time and the activity of a job that never ran.

use radrm_base::Permille;
use serde::{Deserialize, Serialize};

/// Lower end, figure and upper end.
pub type Interval<T> = [T; 3];

/// Predicted step on one card, as reports have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StepFigures {
    /// Expected time, s; `None`: only a lower end is known.
    pub seconds: Option<f64>,
    /// Lower end, s.
    pub low: f64,
    /// Upper end, s.
    pub high: Option<f64>,
    /// Part of such bounds that hold, 0 to 1.
    pub coverage: f64,
    /// Time of the operations on the GPU, s: expected, lower and upper end.
    pub gpu_seconds: [f64; 3],
    /// Part of that time that is assumed and not measured on any card, 0 to 1.
    pub assumed: f64,
    /// Number of operations without a time.
    pub without_time: u64,
    /// SM activity and DRAM activity over the GPU's time, 0 to 1.
    pub activity: [f64; 2],
}

/// Part of the time from which on an assumed one has no coverage, as in reports.
const MAX_ASSUMED: f64 = 0.2;

/// Predicted step of a dry run on the GPU that was emulated. No GPU ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepPrediction {
    /// Time of its operations on the GPU, one after another, ns.
    pub gpu: Interval<u64>,
    /// Time of the host for a step of the dry run, ns: a real step takes longer. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u64>,
    /// Lower end of the step's time, ns.
    pub low: u64,
    /// Time of the step, ns; `None`: only its lower end is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Interval<u64>>,
    /// Part of such times that lie within their bounds, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Permille>,
    /// SM activity over the time of the operations.
    pub smact: Permille,
    /// DRAM activity over the time of the operations.
    pub drama: Permille,
    /// Real runs of dry-run programs that corrected the time.
    #[serde(default, skip_serializing_if = "is_none")]
    pub runs: u32,
}

// Serde passes references.
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl StepPrediction {
    /// The prediction of these figures. `host`: time of the host for a step of the dry run, s. `is_whole`: the operations are all
    /// that the step does.
    ///
    /// Returns `None` if operations of the step have no time: they may do anything to the GPU.
    #[must_use]
    pub fn of(figures: &StepFigures, host: Option<f64>, is_whole: bool) -> Option<Self> {
        let StepFigures { seconds, low, high, coverage, gpu_seconds, assumed, without_time, activity } =
            *figures;
        let [busy, busy_low, busy_high] = gpu_seconds;
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let are_times = [low, busy, busy_low, busy_high].into_iter().all(is_time);
        if !is_whole || without_time > 0 || !are_times || busy_low > busy || busy > busy_high {
            return None;
        }
        let time = seconds.zip(high).filter(|(time, high)| is_time(*time) && low <= *time && time <= high);
        // A conversion from a float saturates.
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let [smact, drama] = activity.map(|part| Permille::from_fraction(part.clamp(0.0, 1.0)));
        let is_measured = assumed < MAX_ASSUMED && coverage > 0.0 && time.is_some();
        Some(Self {
            gpu: [busy_low, busy, busy_high].map(ns),
            host: host.filter(|host| is_time(*host)).map(ns),
            low: ns(low),
            time: time.map(|(time, high)| [low, time, high].map(ns)),
            confidence: is_measured.then(|| Permille::from_fraction(coverage.min(1.0))),
            smact,
            drama,
            runs: 0,
        })
    }
}
