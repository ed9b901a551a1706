//! What a profile says, drawn together. This is also the JSON report: the
//! fields are its keys. Keys that end in `_bytes` are exact bytes, `_ns`
//! nanoseconds since the job's start, `_share` a number from 0 to 1.

mod build;
mod features;
mod gpu;
mod limits;
mod load;
pub mod oom;
mod process;
mod recorded;
mod window;

use crate::text::style::grouped;
pub use features::Feature;
pub use limits::LimitSummary;
pub use load::{CounterSummary, HostSummary, LoadSummary};
pub use oom::{HeldSummary, LeftOutSummary, PostmortemSummary, QuotaSummary};
use radrm_profile::model::GpuClock;
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;
pub use window::WindowSummary;

/// Version of the JSON report. It rises when a key is renamed, removed or
/// changes its meaning; not when one is added.
pub const SCHEMA: u32 = 2;

/// A summary of one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Specification of the emulated machine; null on real GPUs. If it is set,
    /// no figure in here was measured on a GPU.
    pub emulated: Option<String>,
    /// What the time of the GPUs is: the host's (`real`), `modelled` where waiting for emulated GPUs takes none, so that
    /// it cannot be set against the host's, or `absent` in a dry run, which computes nothing.
    pub gpu_clock: GpuClock,
    /// Who ran what.
    pub job: JobSummary,
    /// How it ended.
    pub outcome: OutcomeSummary,
    /// Per GPU that the job used or NVML showed.
    pub gpus: Vec<GpuSummary>,
    /// Per process that joined the job.
    pub processes: Vec<ProcessSummary>,
    /// Processes that were too many to keep one by one.
    pub processes_not_kept: u64,
    /// Of these, how many whose launches, kernels and copies were not recorded (`--kernels off`): they are in no figure
    /// of the three.
    pub processes_without_kernels: u64,
    /// Kernels of all processes merged by name: those that took the most time
    /// on the GPU first where launches were timed, else those with the most
    /// launches.
    pub kernels: Vec<KernelSummary>,
    /// Time that GPUs were in use without a kernel running, as a share of it,
    /// where launches were timed: at least so much, as the times of kernels are added up, also of those that ran beside
    /// each other, each at the upper end of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_idle_share: Option<f64>,
    /// Copies and memsets, most bytes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopySummary>,
    /// What the job did on the host; null if nothing of it was recorded.
    pub host: Option<HostSummary>,
    /// What held the job up.
    pub limits: LimitSummary,
    /// What a launch budget did, if launches waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<ThrottlingSummary>,
    /// Figures of load that could not be taken, each as a clause with its reason.
    pub unmeasured: Vec<String>,
    /// Kernel launches by the program, of all processes.
    pub launches: u64,
    /// Graph launches, of all processes.
    pub graph_launches: u64,
    /// Refused memory requests by time: the first and the last ones of each
    /// process.
    pub failed_requests: Vec<FailureSummary>,
    /// How many memory requests were refused.
    pub failed_requests_total: u64,
    /// Who held what when a request was refused, by time: of each process and
    /// GPU the first refusal, and the latest that is known.
    pub postmortems: Vec<PostmortemSummary>,
    /// Events that the profile keeps.
    pub events: u64,
    /// What could not be looked at, or why nothing was seen: sentences, which
    /// are in `notes` too. Figures are missing what happened there.
    pub unseen: Vec<String>,
    /// What the reader should know: damage, lost records, incomplete figures.
    pub notes: Vec<String>,
}

/// What a launch budget did to the job's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ThrottlingSummary {
    /// The budget's share of the GPU's time when it was last seen.
    pub share: f64,
    /// Launches that waited for the job's turn.
    pub launches: u64,
    /// How long they waited together, over all threads.
    pub waited_ns: u64,
}

impl ThrottlingSummary {
    fn of(profile: &radrm_profile::Profile) -> Option<Self> {
        let held = || profile.processes.iter().map(|process| process.throttling);
        let launches = held().map(|held| held.launches).fold(0, u64::saturating_add);
        let share = held().filter(|held| !held.is_none()).map(|held| held.share_permille).max()?;
        let waited_ns = held().map(|held| held.waited.0).fold(0, u64::saturating_add);
        Some(Self { share: f64::from(share) / 1000.0, launches, waited_ns })
    }

    /// As a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "held back by a launch budget of {} %: {:.1} s in {} {}",
            (self.share * 1000.0).round() / 10.0,
            self.waited_ns as f64 / 1e9,
            grouped(self.launches),
            if self.launches == 1 { "launch" } else { "launches" }
        )
    }
}

/// Who ran what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobSummary {
    /// Version of radrm that wrote the profile.
    pub radrm_version: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The file that was executed.
    pub program: Option<String>,
    /// Its SHA-256, hexadecimal.
    pub program_sha256: Option<String>,
    /// Working directory.
    pub cwd: String,
    /// User name.
    pub user: Option<String>,
    /// Numeric user id.
    pub uid: u32,
    /// Host name.
    pub host: String,
    /// Process id of the program.
    pub pid: u32,
    /// Start: nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Environment variables that matter to GPU programs.
    pub environment: BTreeMap<String, String>,
}

/// How the job ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutcomeSummary {
    /// `exited`, `signaled`, `not_started`, `unknown` (nobody saw the end) or
    /// `unfinished` (the profile has no end: still running or cut off).
    pub status: &'static str,
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Signal, if one killed it.
    pub signal: Option<i32>,
    /// The signal's name.
    pub signal_name: Option<&'static str>,
    /// True for exit code 0.
    pub success: bool,
    /// True if it failed after a refusal for lack of GPU memory.
    pub out_of_memory: bool,
    /// Any other reason, in words.
    pub reason: Option<String>,
    /// How long the job took; without an end, how far the profile reaches.
    pub duration_ns: Nanos,
}

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
    /// When the peak was reached.
    pub peak_at_ns: Nanos,
    /// Peak as a share of the card; null if the card's size is unknown.
    pub peak_share: Option<f64>,
    /// True if the kinds at the peak need not add up to it: other threads
    /// were allocating at that moment.
    pub kinds_approximate: bool,
    /// By kind of memory; all kinds are always there.
    pub kinds: BTreeMap<&'static str, KindSummary>,
    /// What NVML said; null if it was not asked.
    pub nvml: Option<NvmlSummary>,
    /// What it did; null if nobody looked.
    pub load: Option<LoadSummary>,
    /// What the job's kernels made of it, estimated; only where launches were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateSummary>,
    /// Refused memory requests.
    pub failed_requests: u64,
}

/// What a job's kernels made of a GPU, estimated from the shapes of launches and the times of those that were timed.
/// It does not tell what others do there, nor what the memory's bandwidth is used to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EstimateSummary {
    /// From when the first process joined to when the last one ended: what follows is of this time.
    pub over_ns: Nanos,
    /// GPU time of its kernels as a share of it, at most 1. Those that ran beside each other count each: a kernel may
    /// have run in less of the time.
    pub kernel_time_share: f64,
    /// Share of the SMs that were active (SMACT); null where the driver told nothing of occupancy.
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
    /// What processes held when they ended: never freed by them, then taken
    /// back by the driver. Of several processes the sum.
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
    /// How much.
    pub bytes: Bytes,
    /// In how many blocks; a pool can hold memory without any.
    pub blocks: u64,
}

impl std::fmt::Display for LeftOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.blocks {
            0 => write!(f, "{}", self.bytes),
            1 => write!(f, "{} in 1 block", self.bytes),
            many => write!(f, "{} in {} blocks", self.bytes, grouped(many)),
        }
    }
}

/// What NVML said of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NvmlSummary {
    /// Samples in the profile.
    pub samples: u64,
    /// Of these, samples that list a process of this job.
    pub job_samples: u64,
    /// Highest memory in use by anybody.
    pub used_peak_bytes: Bytes,
    /// Highest memory of this job's processes in one sample; null if the
    /// driver does not tell it per process.
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

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// The executable.
    pub exe: String,
    /// Command line.
    pub command: String,
    /// When it joined.
    pub joined_ns: Nanos,
    /// When it was seen to have ended.
    pub ended_ns: Option<Nanos>,
    /// How it ended.
    pub end: EndSummary,
    /// Frameworks and runtimes seen.
    pub frameworks: Vec<FrameworkSummary>,
    /// Per GPU that it touched.
    pub gpus: Vec<ProcessGpuSummary>,
    /// What was recorded of its launches and copies: `off` (nothing: zeros say nothing), `count`, `sample` or `all`
    /// (launches that were timed); null if that is not known.
    pub kernels_mode: Option<&'static str>,
    /// Kernel launches by the program.
    pub launches: u64,
    /// Graph launches.
    pub graph_launches: u64,
    /// Reasons for which calls were passed through uncounted.
    pub bypasses: Vec<BypassSummary>,
    /// Events lost in the ring.
    pub events_dropped: u64,
    /// Features for models of interference, each with how it was obtained.
    pub features: Vec<Feature>,
    /// What it did over time; later windows are longer.
    pub windows: Vec<WindowSummary>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EndSummary {
    /// `running`, `exited`, `signaled`, `exec` or `vanished`.
    pub status: &'static str,
    /// Exit code, if known.
    pub exit_code: Option<i32>,
    /// Signal, if one killed it.
    pub signal: Option<i32>,
}

/// A framework or runtime library.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FrameworkSummary {
    /// Its name.
    pub name: String,
    /// Its version, if known.
    pub version: Option<String>,
}

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessGpuSummary {
    /// The GPU.
    pub gpu: u8,
    /// Highest device total (exact).
    pub peak_bytes: Bytes,
    /// When it was reached.
    pub peak_at_ns: Nanos,
    /// Device total at the end, if it was still running.
    pub now_bytes: Bytes,
    /// Device total when it ended: never freed by it, then taken back by the
    /// driver.
    pub unfreed_bytes: Bytes,
    /// True if the kinds at the peak need not add up to it: other threads
    /// were allocating at that moment.
    pub kinds_approximate: bool,
    /// By kind; all kinds are always there.
    pub kinds: BTreeMap<&'static str, KindSummary>,
    /// Refused memory requests.
    pub failed_requests: u64,
    /// What the driver itself takes for the process (its contexts, code), as it is charged under a quota; null without
    /// one.
    pub context_overhead_bytes: Option<Bytes>,
    /// NVML's highest figure for the process.
    pub nvml_peak_bytes: Option<Bytes>,
    /// NVML's figure less what was accounted.
    pub remainder_bytes: Option<i64>,
    /// Live blocks at its end, largest first.
    pub largest_blocks: Vec<BlockSummary>,
}

/// A live block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockSummary {
    /// Its size.
    pub size_bytes: Bytes,
    /// Its kind.
    pub kind: &'static str,
    /// When it was allocated.
    pub since_ns: Nanos,
}

/// Why calls were passed through uncounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BypassSummary {
    /// The reason.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// True if figures may be incomplete for it.
    pub matters: bool,
}

/// A kernel, over all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelSummary {
    /// Name in the source language.
    pub name: String,
    /// Without return type, parameters and namespaces.
    pub short_name: String,
    /// Name as the driver knows it.
    pub mangled_name: String,
    /// True if the driver's name was too long to keep whole.
    pub name_cut: bool,
    /// Launches by the program.
    pub launches: u64,
    /// Launches as a node of a graph.
    pub graph_launches: u64,
    /// Blocks over all launches.
    pub blocks: u64,
    /// Threads over all launches.
    pub threads: u64,
    /// Blocks per launch.
    pub mean_blocks: f64,
    /// Threads per block.
    pub mean_threads_per_block: f64,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub static_shared_bytes: Bytes,
    /// Dynamic shared memory per block, mean over the launches.
    pub mean_dynamic_shared_bytes: Bytes,
    /// Local memory per thread.
    pub local_bytes: Bytes,
    /// Most threads per block that the kernel allows.
    pub max_threads_per_block: u32,
    /// Processes that launched it.
    pub processes: u32,
    /// Time on the GPU, where launches were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<GpuTime>,
}

/// Time of a kernel on the GPU, over all launches: an estimate from those
/// that were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuTime {
    /// The estimate.
    pub total_ns: Nanos,
    /// Half the width of its 95 % confidence interval.
    pub half_width_ns: Nanos,
    /// Its part of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Launches that were timed.
    pub samples: u64,
}

/// Copies of one way, or memsets, of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopySummary {
    /// The way.
    pub way: String,
    /// How many.
    pub count: u64,
    /// Bytes, each copied byte once.
    pub bytes: Bytes,
}

/// A refused memory request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FailureSummary {
    /// When.
    pub t_ns: Nanos,
    /// Process id.
    pub pid: u32,
    /// The GPU.
    pub gpu: u8,
    /// The driver's entry point.
    pub call: String,
    /// Kind of memory.
    pub kind: &'static str,
    /// Size asked for.
    pub size_bytes: Bytes,
    /// What was free, if known.
    pub free_bytes: Option<Bytes>,
    /// The device's memory.
    pub device_total_bytes: Option<Bytes>,
    /// The driver's result code (2 = out of memory).
    pub result: u32,
    /// True if it was refused for lack of memory.
    pub out_of_memory: bool,
    /// True if the process was granted nothing more on this GPU: if it failed, this can be why.
    pub stands: bool,
}
