//! The figures of a profile.
//!
//! Times count from the job's start (monotonic); sizes are bytes. Nothing in
//! here does input or output.

mod activity;
mod block_map;
mod clock;
pub mod dry_run;
mod host;
mod job;
mod kernel_activity;
mod kernel_metrics;
mod key;
mod launch;
mod limit;
mod memory;
pub mod postmortem;
mod process;
mod ranges;
mod recording;
mod sample;
mod stacks;
mod tensors;
mod throttling;
mod timings;
mod uncounted;

pub use activity::{GpuSpan, Meter, Share};
pub use block_map::{BlockMap, BlockRun};
pub use clock::GpuClock;
pub use dry_run::{DryRunFigures, Expected, Fit, Ranks as DryRunRanks};
pub use host::{CountSource, Host, HostCount, HostCounter, HostNews, HostSpan};
pub use job::{Exit, Gpu, GpuIndex, Job, Outcome, Reason, WITH_FAULTS};
pub use kernel_activity::{COPY_WAYS, Filling, GpuTime, KernelActivity, KernelSpan, Shapes};
pub use kernel_metrics::{KernelMetrics, ProfiledKernel};
pub use key::ProcessKey;
pub use launch::TimedLaunch;
pub use limit::MemoryLimit;
pub use memory::{
    Account, Block, FailedRequest, KindAccount, RESULT_OUT_OF_MEMORY, Timeline, TimelinePoint, device_total,
};
pub use postmortem::Postmortem;
pub use process::{Bypass, End, Framework, Identity, Kernel, Process, ProcessState, Remainder, frameworks};
pub use ranges::{OpenRange, RangeEvent, RangeMemory, RangeName, Ranges};
pub use recording::{KernelsMode, Recording};
pub use sample::{Event, EventKind, NvmlSample, ProcessUse};
pub use stacks::{
    Site, StackCode, StackFrame, StackModule, StackMoment, StackRefusal, StackRefusals, Stacks, Symbol,
};
pub use tensors::{
    GpuTensors, TensorCategory, TensorHolder, TensorModule, TensorMoment, TensorStack, Tensors,
};
pub use throttling::Throttling;
pub use timings::{Copies, KernelTime, TimedSpan, Timings};
pub use uncounted::{InitFailure, Uncounted, UncountedMemory, UncountedProcess};

use crate::units::Nanos;
pub use radrm_base::{KIND_COUNT, Kind};

/// A whole profile, as read from a file or as built up by a running job.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Who ran what, where and when.
    pub job: Job,
    /// The GPUs that the job's processes or NVML showed, by index.
    pub gpus: Vec<Gpu>,
    /// Every process that used a GPU, in the order in which they joined.
    pub processes: Vec<Process>,
    /// Processes that were too many to keep one by one.
    pub processes_not_kept: u64,
    /// What the GPUs' time is.
    pub gpu_clock: GpuClock,
    /// What NVML said, in time order.
    pub samples: Vec<NvmlSample>,
    /// What the GPUs did, by time for each GPU.
    pub activity: Vec<GpuSpan>,
    /// What the processes launched and copied, by time for each process.
    pub kernel_activity: Vec<KernelSpan>,
    /// Single launches that were timed, by the time of launch for each process and span.
    pub launches: Vec<TimedLaunch>,
    /// Single ranges and marks of the programs, some of them where there are many; by process and span.
    pub range_events: Vec<RangeEvent>,
    /// Limits on the GPUs' memory and their changes, by time.
    pub memory_limits: Vec<MemoryLimit>,
    /// Where blocks of memory lay, at some moments; by time for each process and GPU.
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
    /// How the job ended; `None` while it runs or if its watcher died.
    pub outcome: Option<Outcome>,
    /// Refused requests with what stood around them, in the order in which they
    /// were seen.
    pub postmortems: Vec<Postmortem>,
    /// What a dry run found out; `None` for any other run.
    pub dry_run: Option<DryRunFigures>,
    /// Cards, and whether the program fits on them: from a dry run that succeeded.
    pub fits: Vec<Fit>,
    /// What the dry run's figures stand for on a real GPU: from a dry run that succeeded.
    pub expected: Option<Expected>,
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
            postmortems: Vec::new(),
            dry_run: None,
            fits: Vec::new(),
            expected: None,
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

    /// How long the job took: its outcome's duration, else the time of the
    /// last state.
    pub fn duration(&self) -> Nanos {
        self.outcome.as_ref().map_or(self.last_state, |outcome| outcome.duration)
    }
}

/// One sentence about the profile itself that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The file ends inside a frame: the job or its watcher was cut off.
    Truncated {
        /// Offset of the incomplete frame.
        at: u64,
        /// Bytes of it that are there.
        bytes: u64,
    },
    /// A frame's checksum or content is wrong.
    Damaged {
        /// Offset of the frame.
        at: u64,
        /// Bytes that had to be ignored.
        bytes: u64,
    },
    /// Frames of a type that this version does not know were passed over.
    UnknownFrames {
        /// How many.
        count: u64,
    },
    /// Something the collector reported, in its own words.
    Collector(String),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Truncated { at, .. } => {
                write!(f, "the profile is cut off at byte {at}; everything before it is shown")
            }
            Note::Damaged { at, bytes } => {
                write!(f, "the profile is damaged at byte {at}; {bytes} bytes were ignored")
            }
            Note::UnknownFrames { count } => write!(
                f,
                "the profile holds {count} record(s) of a kind that this version of radrm does not know"
            ),
            Note::Collector(text) => f.write_str(text),
        }
    }
}
