//! All figures of a job.

use super::{
    BlockMap, DryRunFigures, DryRunRanks, Event, Expected, Fit, Gpu, GpuClock, GpuIndex, GpuSpan, Host,
    InitFailure, Job, KernelMetrics, KernelSpan, MemoryLimit, Note, NvmlSample, Outcome, Postmortem,
    PredictedStep, Process, RangeEvent, TimedLaunch, UncountedProcess,
};
use crate::units::Nanos;

/// A whole profile, as read from a file or as built up by a running job.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Description of the job: its user, command, host and start time.
    pub job: Job,
    /// The GPUs that the job's processes or NVML showed, by index.
    pub gpus: Vec<Gpu>,
    /// Every process that used a GPU, in the order in which they joined.
    pub processes: Vec<Process>,
    /// Processes that were too many to keep one by one.
    pub processes_not_kept: u64,
    /// Relation of the GPUs' time to the host's time.
    pub gpu_clock: GpuClock,
    /// NVML's samples, in time order.
    pub samples: Vec<NvmlSample>,
    /// Activity of the GPUs, by time for each GPU.
    pub activity: Vec<GpuSpan>,
    /// Launches and copies of the processes, by time for each process.
    pub kernel_activity: Vec<KernelSpan>,
    /// Single launches that were timed, by the time of launch for each process and span.
    pub launches: Vec<TimedLaunch>,
    /// Single ranges and marks of the programs, some of them where there are many; by process and span.
    pub range_events: Vec<RangeEvent>,
    /// Limits on the GPUs' memory and their changes, by time.
    pub memory_limits: Vec<MemoryLimit>,
    /// Addresses of blocks of memory, at some moments; by time for each process and GPU.
    pub block_maps: Vec<BlockMap>,
    /// The host's side.
    pub host: Host,
    /// Figures of load that could not be taken, each as a clause with its reason.
    pub unmeasured: Vec<String>,
    /// Rare, notable events, in time order per process.
    pub events: Vec<Event>,
    /// Events that were seen but left out to bound the file's size.
    pub events_thinned: u64,
    /// Time of the last state that is in the profile.
    pub last_state: Nanos,
    /// Time of the state before that one.
    pub state_before: Nanos,
    /// Outcome of the job; `None` while it runs or if its watcher died.
    pub outcome: Option<Outcome>,
    /// End of the program, from its start, where processes that it left were recorded further.
    pub program_ended: Option<Nanos>,
    /// Refused requests with what stood around them, in the order in which they
    /// were seen.
    pub postmortems: Vec<Postmortem>,
    /// Figures of a dry run; `None` for any other run.
    pub dry_run: Option<DryRunFigures>,
    /// Cards, and whether the program fits on them: from a dry run that succeeded.
    pub fits: Vec<Fit>,
    /// Need on a real GPU that the dry run's figures stand for: from a dry run that succeeded.
    pub expected: Option<Expected>,
    /// Work and predicted time of one optimizer step: from a dry run that succeeded.
    pub step: Option<PredictedStep>,
    /// The ranks of a large job that a dry run ran, if it was asked to run only some.
    pub ranks: Option<DryRunRanks>,
    /// Metrics of kernels that a profiler measured, if they were imported.
    pub kernel_metrics: Option<KernelMetrics>,
    /// Processes of the job that no figure contains.
    pub uncounted: Vec<UncountedProcess>,
    /// Processes in which `cuInit` failed.
    pub init_failures: Vec<InitFailure>,
    /// Parts of the job that could not be read, each as a clause such as
    /// "RADRM_DISABLE is set". What happened there is in no figure.
    pub unseen: Vec<String>,
    /// Warnings for the reader: damaged or cut-off parts of the file, parts of
    /// the measurement that could not be made.
    pub notes: Vec<Note>,
}

impl Profile {
    /// A profile in which nothing has happened yet.
    pub fn new(job: Job) -> Profile {
        // Where nothing is said, emulated GPUs take no time.
        let gpu_clock = if job.emulated.is_some() { GpuClock::Modelled } else { GpuClock::Real };
        Profile {
            job,
            gpu_clock,
            gpus: Vec::new(),
            processes: Vec::new(),
            processes_not_kept: 0,
            samples: Vec::new(),
            activity: Vec::new(),
            kernel_activity: Vec::new(),
            launches: Vec::new(),
            range_events: Vec::new(),
            memory_limits: Vec::new(),
            block_maps: Vec::new(),
            host: Host::default(),
            unmeasured: Vec::new(),
            events: Vec::new(),
            events_thinned: 0,
            last_state: Nanos::ZERO,
            state_before: Nanos::ZERO,
            outcome: None,
            program_ended: None,
            postmortems: Vec::new(),
            dry_run: None,
            fits: Vec::new(),
            expected: None,
            step: None,
            ranks: None,
            uncounted: Vec::new(),
            init_failures: Vec::new(),
            kernel_metrics: None,
            unseen: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The GPU with this job-wide index, if the profile knows it.
    pub fn gpu(&self, index: GpuIndex) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.index == index)
    }

    /// Duration of the job: its outcome's duration, else the time of the last state.
    pub fn duration(&self) -> Nanos {
        self.outcome.as_ref().map_or(self.last_state, |outcome| outcome.duration)
    }
}
