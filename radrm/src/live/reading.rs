//! A run at one moment, as plain figures. They are also what `radrm top --json` prints: sizes are bytes.

use std::collections::BTreeMap;

use radrm_telemetry::{KIND_COUNT, Kind};
use serde::Serialize;

use super::steps::StepSource;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Reading {
    /// Process id of its launcher, the number of `radrm quota show` and of the profile's name.
    pub(super) run: u32,
    /// Number of the daemon's job, if it is one.
    pub(super) job: Option<u32>,
    pub(super) user: String,
    pub(super) uid: u32,
    pub(super) command: String,
    /// False if only processes that it left behind still run.
    pub(super) launcher_running: bool,
    /// Process that writes the profile: the launcher, or the recorder that it left.
    #[serde(skip)]
    pub(super) recorder: Option<u32>,
    pub(super) seconds: f64,
    pub(super) gpus: Vec<GpuReading>,
    pub(super) processes: Vec<ProcessReading>,
    /// Launches of kernels and of graphs so far.
    pub(super) launches: u64,
    pub(super) launches_per_second: Option<f64>,
    /// Steps so far, of the process that has made most; 0 where none are known.
    pub(super) steps: u64,
    /// Source of the steps.
    pub(super) steps_source: Option<StepSource>,
    /// Null before the second step; 0 once no more are made.
    pub(super) steps_per_second: Option<f64>,
    /// Growth of the device memory that is held.
    pub(super) growth_bytes_per_second: Option<f64>,
    /// Memory requests that were refused so far.
    pub(super) refused: u64,
    /// Share of the SMs that were active lately; null where that is not measured.
    pub(super) sm_active_share: Option<f64>,
    /// Share of the time lately in which any kernel ran; null where that is not measured.
    pub(super) utilization_share: Option<f64>,
    /// Device memory at earlier polls, oldest first.
    #[serde(skip)]
    pub(super) held_before: Vec<u64>,
    /// Launches per second at earlier polls.
    #[serde(skip)]
    pub(super) launched_before: Vec<u64>,
}

/// Memory of a run on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct GpuReading {
    pub(super) index: u8,
    pub(super) name: String,
    pub(super) total_bytes: u64,
    /// Device memory now.
    pub(super) held_bytes: u64,
    /// Highest device memory; of several processes at least this.
    pub(super) peak_bytes: u64,
    /// True if the peak is exact, and not only a bound.
    pub(super) peak_exact: bool,
    /// By kind, now; kinds of which there is nothing are left out.
    pub(super) kinds: BTreeMap<&'static str, u64>,
    /// The job's limit.
    pub(super) quota_bytes: Option<u64>,
    pub(super) refused: u64,
}

/// A process of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProcessReading {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) held_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) launches: u64,
    pub(super) refused: u64,
}

impl Reading {
    /// Device memory on all GPUs.
    pub(super) fn held(&self) -> u64 {
        self.gpus.iter().fold(0, |sum, gpu| sum.saturating_add(gpu.held_bytes))
    }

    /// Its highest device memory on one GPU, and whether that is only a bound.
    pub(super) fn peak(&self) -> (u64, bool) {
        let most = self.gpus.iter().max_by_key(|gpu| gpu.peak_bytes);
        most.map_or((0, true), |gpu| (gpu.peak_bytes, gpu.peak_exact))
    }

    /// The limit that is nearest to being reached, with what is held under it.
    pub(super) fn tightest(&self) -> Option<(u64, u64)> {
        let limited = self.gpus.iter().filter_map(|gpu| Some((gpu.held_bytes, gpu.quota_bytes?)));
        let share = |&(held, quota): &(u64, u64)| u128::from(held) * 10_000 / u128::from(quota.max(1));
        limited.max_by_key(share)
    }
}

/// Kinds with what is held of each, without those of which there is nothing.
pub(super) fn by_kind(bytes: [u64; KIND_COUNT]) -> BTreeMap<&'static str, u64> {
    Kind::ALL
        .iter()
        .zip(bytes)
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(kind, bytes)| (kind.key(), bytes))
        .collect()
}
