//! One GPU, all processes together.

use super::load::{self, LoadSummary};
use super::quota::{self, LimitInForce};
use super::{clamped, filling};
use radrm_profile::model::{Account, End, Gpu, GpuIndex, Kind, KindAccount, NvmlSample, Profile};
use radrm_profile::peak::{KindPeak, Peak, gpu_kind_peaks, gpu_peak, highest_sum};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One GPU, all processes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSummary {
    /// Index in the job.
    pub index: u8,
    /// UUID.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Device memory.
    pub total_bytes: Bytes,
    /// PCI bus id.
    pub pci_bus_id: String,
    /// Kernel driver's version.
    pub driver_version: Option<String>,
    /// Newest CUDA version of the driver (12080 = 12.8).
    pub cuda_version: Option<u32>,
    /// Highest device memory of the job.
    pub peak_bytes: Bytes,
    /// False if several processes were busy at once, so that only bounds are
    /// known: the true peak is then at most `peak_bytes` and at least
    /// `peak_at_least_bytes`.
    pub peak_exact: bool,
    /// The true peak is not lower.
    pub peak_at_least_bytes: Bytes,
    /// Time of the peak.
    pub peak_at_ns: Nanos,
    /// Peak as a share of the card; null if the card's size is unknown.
    pub peak_share: Option<f64>,
    /// True if the kinds at the peak need not add up to it: other threads
    /// were allocating at that moment.
    pub kinds_approximate: bool,
    /// By kind of memory; all kinds are always there.
    pub kinds: BTreeMap<&'static str, KindSummary>,
    /// Figures of NVML; null if NVML was not queried.
    pub nvml: Option<NvmlSummary>,
    /// Its load; null if it was not sampled.
    pub load: Option<LoadSummary>,
    /// Estimated use of the GPU by the job's kernels; only where launches were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateSummary>,
    /// Limits on its memory, the job's first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<LimitInForce>,
    /// Refused memory requests.
    pub failed_requests: u64,
}

/// Use of a GPU by a job's kernels, estimated from the shapes of launches and the times of those that were timed.
/// It contains neither the use by other programs nor the use of the memory's bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EstimateSummary {
    /// From when the first process joined to when the last one ended: what follows is of this time.
    pub over_ns: Nanos,
    /// GPU time of its kernels as a share of it, at most 1. Those that ran beside each other count each: a kernel may
    /// have run in less of the time.
    pub kernel_time_share: f64,
    /// Share of the SMs that were active (SMACT); null where the driver reported no occupancy.
    pub sm_active_share: Option<f64>,
    /// Share of the warps that were resident (SMOCC); likewise.
    pub sm_occupancy_share: Option<f64>,
}

/// One kind of memory on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindSummary {
    /// Held when the device total peaked.
    pub at_peak_bytes: Bytes,
    /// Most that was held of this kind at one moment; an upper bound unless
    /// `peak_exact`.
    pub peak_bytes: Bytes,
    /// False if several processes were busy at once.
    pub peak_exact: bool,
    /// The true figure is not lower.
    pub peak_at_least_bytes: Bytes,
    /// Held at the end, by processes that were still running.
    pub now_bytes: Bytes,
    /// Live blocks of these.
    pub blocks: u64,
    /// Memory that processes still held when they ended; the driver then reclaimed it.
    /// Sum over several processes.
    pub unfreed_bytes: Bytes,
    /// In so many blocks.
    pub unfreed_blocks: u64,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
}

/// Memory that stands beside the device total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Name for people.
    pub label: &'static str,
    /// Its peak; an upper bound unless `exact`.
    pub peak: Bytes,
    /// False for a bound.
    pub exact: bool,
}

/// Device memory that was not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOver {
    /// Unfreed memory.
    pub bytes: Bytes,
    /// In how many blocks; a pool can hold memory without any.
    pub blocks: u64,
}

/// Figures of NVML for a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NvmlSummary {
    /// Samples in the profile.
    pub samples: u64,
    /// Of these, samples that list a process of this job.
    pub job_samples: u64,
    /// Highest memory in use by anybody.
    pub used_peak_bytes: Bytes,
    /// Highest memory of this job's processes in one sample; null if the
    /// driver does not report it per process.
    pub job_peak_bytes: Option<Bytes>,
    /// Memory of the job's processes by NVML less what was accounted, where
    /// the two were last compared: contexts, code, libraries. Of several
    /// processes the highest sum over those that lived at the same time. Can
    /// be negative.
    pub remainder_bytes: Option<i64>,
    /// Highest memory of processes outside the job.
    pub others_peak_bytes: Bytes,
    /// Mean utilisation in percent over the time that was sampled.
    pub mean_utilization: Option<f64>,
    /// Highest power, milliwatt.
    pub max_power_mw: Option<u32>,
    /// Highest temperature, degrees Celsius.
    pub max_temperature: Option<u32>,
}

/// The GPUs to speak of: those that the job used, or all that are known if it used none.
pub(super) fn indices(profile: &Profile) -> Vec<GpuIndex> {
    let accounts = profile.processes.iter().flat_map(|p| p.state.accounts.iter());
    let used: BTreeSet<GpuIndex> = accounts.map(|account| account.gpu).collect();
    let known = || profile.gpus.iter().map(|gpu| gpu.index).collect();
    (if used.is_empty() { known() } else { used }).into_iter().collect()
}

pub(super) fn summary(profile: &Profile, index: GpuIndex) -> GpuSummary {
    let unknown = Gpu { index, ..Gpu::default() };
    let gpu = profile.gpu(index).unwrap_or(&unknown);
    let accounts: Vec<&Account> = profile.processes.iter().filter_map(|p| p.account(index)).collect();
    let peak = gpu_peak(profile, index);
    let kind_peaks = gpu_kind_peaks(profile, index);
    GpuSummary {
        index: index.0,
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        total_bytes: gpu.total,
        pci_bus_id: gpu.pci_bus_id.clone(),
        driver_version: gpu.driver_version.clone(),
        cuda_version: gpu.cuda_version,
        peak_bytes: peak.total,
        peak_exact: peak.exact,
        peak_at_least_bytes: peak.at_least,
        peak_at_ns: peak.t,
        peak_share: (!gpu.total.is_zero()).then(|| peak.total.0 as f64 / gpu.total.0 as f64),
        kinds_approximate: accounts.iter().any(|account| account.kinds_approximate),
        kinds: Kind::ALL
            .iter()
            .map(|&kind| (kind.key(), kind_summary(profile, index, kind, &peak, kind_peaks[kind.index()])))
            .collect(),
        nvml: nvml(profile, index),
        load: load::gpu(profile, index).filter(|_| profile.gpu_clock.is_real()),
        estimate: filling::of_gpu(profile, index).map(|found| EstimateSummary {
            over_ns: found.over,
            kernel_time_share: found.kernels,
            sm_active_share: found.filling.map(|filling| filling.active),
            sm_occupancy_share: found.filling.map(|filling| filling.resident),
        }),
        quotas: quota::in_force(profile, index),
        failed_requests: accounts.iter().map(|account| account.failed).fold(0, u64::saturating_add),
    }
}

fn kind_summary(profile: &Profile, gpu: GpuIndex, kind: Kind, at: &Peak, peak: KindPeak) -> KindSummary {
    let mut summary = KindSummary {
        at_peak_bytes: at.kinds[kind.index()],
        peak_bytes: peak.bytes,
        peak_exact: peak.exact,
        peak_at_least_bytes: peak.at_least,
        ..KindSummary::default()
    };
    for process in &profile.processes {
        let Some(account) = process.account(gpu) else { continue };
        summary.add(&account.kinds[kind.index()], process.state.end);
    }
    summary
}

impl KindSummary {
    /// Adds what one process did and has left. What it holds when it ends it
    /// holds no longer: the driver takes it back.
    pub(super) fn add(&mut self, account: &KindAccount, end: End) {
        let (bytes, blocks) = match end {
            End::Running => (&mut self.now_bytes, &mut self.blocks),
            _ => (&mut self.unfreed_bytes, &mut self.unfreed_blocks),
        };
        *bytes = *bytes + account.now;
        *blocks = blocks.saturating_add(account.blocks);
        self.allocations = self.allocations.saturating_add(account.allocations);
        self.frees = self.frees.saturating_add(account.frees);
    }
}

fn nvml(profile: &Profile, index: GpuIndex) -> Option<NvmlSummary> {
    let samples: Vec<&NvmlSample> = profile.samples.iter().filter(|sample| sample.gpu == index).collect();
    if samples.is_empty() {
        return None;
    }
    let of_job = |sample: &&NvmlSample| sample.processes.iter().filter_map(|p| p.used).reduce(|a, b| a + b);
    let remainder = highest_sum(profile, |process| {
        let found = process.state.remainders.iter().find(|remainder| remainder.gpu == index);
        found.map(|remainder| remainder.bytes())
    });
    let is_real = profile.gpu_clock.is_real();
    Some(NvmlSummary {
        samples: samples.len() as u64,
        job_samples: samples.iter().filter(|sample| !sample.processes.is_empty()).count() as u64,
        used_peak_bytes: samples.iter().map(|sample| sample.used).max().unwrap_or_default(),
        job_peak_bytes: samples.iter().filter_map(of_job).max(),
        remainder_bytes: remainder.map(clamped),
        others_peak_bytes: samples.iter().map(|sample| sample.others).max().unwrap_or_default(),
        mean_utilization: mean_utilization(&samples, profile.duration()).filter(|_| is_real),
        max_power_mw: samples.iter().filter_map(|sample| sample.power_mw).max().filter(|_| is_real),
        max_temperature: samples.iter().filter_map(|sample| sample.temperature).max().filter(|_| is_real),
    })
}

/// Every sample counts for the time until the next one: samples are thinned as
/// a run grows long.
fn mean_utilization(samples: &[&NvmlSample], end: Nanos) -> Option<f64> {
    let mut sum = 0.0;
    let mut time = 0.0;
    for (at, sample) in samples.iter().enumerate() {
        let Some(utilization) = sample.utilization else { continue };
        let until = samples.get(at + 1).map_or(end, |next| next.t);
        let span = until.minus(sample.t).as_secs_f64().max(1e-3);
        sum += f64::from(utilization) * span;
        time += span;
    }
    (time > 0.0).then(|| sum / time)
}

impl GpuSummary {
    /// Peaks of the kinds of memory outside the device total; only kinds that were used.
    pub fn beside(&self) -> Vec<Beside> {
        [Kind::Managed, Kind::PinnedHost, Kind::Imported]
            .into_iter()
            .filter_map(|kind| {
                let summary = self.kinds.get(kind.key())?;
                let (peak, exact) = (summary.peak_bytes, summary.peak_exact);
                (!peak.is_zero()).then_some(Beside { label: kind.label(), peak, exact })
            })
            .collect()
    }

    /// Device memory that running processes held at the end, and that others
    /// held when they ended.
    pub fn left_over(&self) -> (LeftOver, LeftOver) {
        let (mut held, mut unfreed) = (LeftOver::default(), LeftOver::default());
        for kind in Kind::DEVICE.into_iter().chain([Kind::PoolUsed]) {
            let Some(summary) = self.kinds.get(kind.key()) else { continue };
            // A pool's memory is in `PoolReserved`, its blocks are in `PoolUsed`.
            if kind.in_total() {
                held.bytes = held.bytes + summary.now_bytes;
                unfreed.bytes = unfreed.bytes + summary.unfreed_bytes;
            }
            held.blocks = held.blocks.saturating_add(summary.blocks);
            unfreed.blocks = unfreed.blocks.saturating_add(summary.unfreed_blocks);
        }
        (held, unfreed)
    }

    /// True if the job did anything on this GPU.
    pub fn used(&self) -> bool {
        !self.peak_bytes.is_zero()
            || self.failed_requests > 0
            || self.kinds.values().any(|kind| kind.allocations > 0 || !kind.peak_bytes.is_zero())
    }
}
