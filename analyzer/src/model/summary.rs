//! The summary of a job. This is also the JSON report: the fields are its keys. Keys that end in `_bytes` are exact
//! bytes, `_ns` nanoseconds since the job's start, `_share` a number from 0 to 1.

use super::signals::signal_text;
use super::{
    CopySummary, GpuSummary, HostSummary, InitFailureSummary, JobStacksSummary, KernelSummary, LimitSummary,
    OwnSummary, PostmortemSummary, ProcessSummary, QuotaSummary, RangesSummary, StacksSummary,
    TensorsSummary, Training, TrainingSummary, UncountedSummary,
};
use radrm_profile::model::{DryRunFigures, DryRunRanks, Expected, Fit, GpuClock, PredictedStep, Profile};
use radrm_profile::{Bytes, Nanos};
use radrm_text::Untrusted;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

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
    /// Clock of the GPUs: the host's (`real`), `modelled` or `absent`.
    /// `modelled`: waiting for emulated GPUs takes no time, so their time is not comparable with the host's. `absent`:
    /// a dry run, which computes nothing.
    pub gpu_clock: GpuClock,
    /// Program, user, host and environment of the job.
    pub job: JobSummary,
    /// Outcome of the job.
    pub outcome: OutcomeSummary,
    /// Figures that are the run's own, if it is part of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnSummary>,
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
    /// Use of the host by the job; null if nothing of it was recorded.
    pub host: Option<HostSummary>,
    /// Bottleneck of the job.
    pub limits: LimitSummary,
    /// Effect of a launch budget, if launches waited for it.
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
    /// Number of refused memory requests.
    pub failed_requests_total: u64,
    /// Memory holders when a request was refused, by time: of each process and
    /// GPU the first refusal, and the latest that is known.
    pub postmortems: Vec<PostmortemSummary>,
    /// Memory holders by line, of each process and GPU whose call stacks were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<StacksSummary>,
    /// Memory holders by line of all processes together, if call stacks of several were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_stacks: Option<JobStacksSummary>,
    /// Holders of the memory of frameworks' allocators, of each process, if that was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorsSummary>,
    /// Phases that the program named itself (NVTX, or the Python module `radrm`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<RangesSummary>,
    /// Events that the profile keeps.
    pub events: u64,
    /// Processes of the job that no figure contains, those that held memory beside its limit first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<UncountedSummary>,
    /// Calls of `cuInit` that failed, by code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_failures: Vec<InitFailureSummary>,
    /// Data that could not be read, or reasons that nothing was recorded: sentences, which `notes` contains too.
    /// The figures lack what happened there.
    pub unseen: Vec<String>,
    /// Result of a dry run, if the run was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRunSummary>,
    /// Warnings: damage, lost records, incomplete figures.
    pub notes: Vec<String>,
}

/// Result of a dry run.
/// As JSON the figures, `kind`, `fits`, `expected`, `ranks`, `step` and `training` in one object. It has no `gpus` and `fits` where figures
/// are withheld: an empty list would read as "no memory".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRunSummary {
    /// The figures.
    pub figures: DryRunFigures,
    /// Cards, and whether the program fits on them; empty if its need is not known.
    pub fits: Vec<Fit>,
    /// Need on a real GPU.
    pub expected: Option<Expected>,
    /// The ranks that ran, of a large job.
    pub ranks: Option<DryRunRanks>,
    /// Work and predicted time of one optimizer step.
    pub step: Option<PredictedStep>,
    /// Predicted figures of the whole training, if its steps were named.
    pub training: Option<TrainingSummary>,
}

impl Serialize for DryRunSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(&self.figures).map_err(S::Error::custom)?;
        let serde_json::Value::Object(mut object) = value else {
            return Err(S::Error::custom("figures are no object"));
        };
        if self.figures.withheld.is_some() {
            object.remove("gpus");
        } else {
            let fits = serde_json::to_value(&self.fits).map_err(S::Error::custom)?;
            object.insert("fits".to_owned(), fits);
        }
        if let Some(kind) = self.figures.kind() {
            object.insert("kind".to_owned(), kind.as_str().into());
        }
        if let Some(expected) = &self.expected {
            let mut value = serde_json::to_value(expected).map_err(S::Error::custom)?;
            // As `radrm estimate --json` has it.
            value["source"] = serde_json::from_str(&expected.source).unwrap_or_default();
            object.insert("expected".to_owned(), value);
        }
        if let Some(ranks) = &self.ranks {
            object.insert("ranks".to_owned(), serde_json::to_value(ranks).map_err(S::Error::custom)?);
        }
        if let Some(step) = &self.step {
            object.insert("step".to_owned(), serde_json::to_value(step).map_err(S::Error::custom)?);
        }
        if let Some(training) = &self.training {
            object.insert("training".to_owned(), serde_json::to_value(training).map_err(S::Error::custom)?);
        }
        object.serialize(serializer)
    }
}

impl Summary {
    /// The same with the figures of a whole training, if the profile is that of a dry run with a predicted step.
    #[must_use]
    pub fn with_training(mut self, training: Option<&Training>) -> Self {
        if let (Some(dry_run), Some(training)) = (&mut self.dry_run, training) {
            dry_run.training = TrainingSummary::of(training, dry_run);
        }
        self
    }
}

impl DryRunSummary {
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let figures = profile.dry_run.clone()?;
        let (fits, ranks) = (profile.fits.clone(), profile.ranks.clone());
        let (expected, step) = (profile.expected.clone(), profile.step.clone());
        Some(Self { figures, fits, expected, ranks, step, training: None })
    }
}

/// Effect of a launch budget on the job's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ThrottlingSummary {
    /// The budget's share of the GPU's time when it was last seen.
    pub share: f64,
    /// Launches that waited for the job's time slice.
    pub launches: u64,
    /// Time that they waited, ns, summed over all threads.
    pub waited_ns: u64,
}

impl ThrottlingSummary {
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        let held = || profile.processes.iter().map(|process| process.throttling);
        let launches = held().map(|held| held.launches).fold(0, u64::saturating_add);
        let share = held().filter(|held| !held.is_none()).map(|held| held.share_permille).max()?;
        let waited_ns = held().map(|held| held.waited.0).fold(0, u64::saturating_add);
        Some(Self { share: f64::from(share) / 1000.0, launches, waited_ns })
    }
}

/// Program, user, host and environment of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobSummary {
    /// Version of radrm that wrote the profile.
    pub radrm_version: String,
    /// Program and arguments.
    pub command: Vec<Untrusted>,
    /// The file that was executed.
    pub program: Option<Untrusted>,
    /// Its SHA-256, hexadecimal.
    pub program_sha256: Option<String>,
    /// Working directory.
    pub cwd: Untrusted,
    /// User name.
    pub user: Option<String>,
    /// Numeric user id.
    pub uid: u32,
    /// Host name.
    pub host: Untrusted,
    /// Process id of the program.
    pub pid: u32,
    /// Start: nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Environment variables that matter to GPU programs.
    pub environment: BTreeMap<String, String>,
}

/// Outcome of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutcomeSummary {
    /// `exited`, `signaled`, `not_started`, `unknown` (the end was not seen),
    /// `running` or `unfinished` (the profile has no end, and no process of this machine writes it).
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
    /// Duration of the job; without an end, the time that the profile covers.
    pub duration_ns: Nanos,
    /// Duration of the program itself, where processes that it left ran on; else null.
    pub program_duration_ns: Option<Nanos>,
}

/// A refused memory request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FailureSummary {
    /// Time of the request.
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
    /// The limit that refused it; null where the driver did, or where that was not recorded.
    pub quota: Option<QuotaSummary>,
    /// True if the emulated driver refused it on purpose (`--faults`): there was enough memory.
    pub injected: bool,
    /// Free memory, if known.
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

impl OutcomeSummary {
    /// Outcome of the job in words, without its time: "exit code 1", "out of GPU memory".
    pub fn word(&self) -> String {
        match (self.out_of_memory, self.status, self.exit_code, self.signal) {
            (true, ..) => "out of GPU memory".to_owned(),
            (_, "exited", Some(code), _) => format!("exit code {code}"),
            (_, "signaled", _, Some(signal)) => signal_text(signal),
            (_, status, ..) => status.replace('_', " "),
        }
    }
}
