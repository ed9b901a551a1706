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
mod note;
pub mod postmortem;
mod process;
mod profile;
mod ranges;
mod recording;
mod sample;
mod stacks;
pub mod step;
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
pub use note::Note;
pub use postmortem::Postmortem;
pub use process::{Bypass, End, Framework, Identity, Kernel, Process, ProcessState, Remainder, frameworks};
pub use profile::Profile;
pub use ranges::{OpenRange, RangeEvent, RangeMemory, RangeName, Ranges};
pub use recording::{KernelsMode, Recording};
pub use sample::{Event, EventKind, NvmlSample, ProcessUse};
pub use stacks::{
    Site, StackCode, StackFrame, StackModule, StackMoment, StackRefusal, StackRefusals, Stacks, Symbol,
};
pub use step::PredictedStep;
pub use tensors::{
    GpuTensors, TensorCategory, TensorHolder, TensorModule, TensorMoment, TensorStack, Tensors,
};
pub use throttling::Throttling;
pub use timings::{Copies, KernelTime, TimedSpan, Timings};
pub use uncounted::{InitFailure, Uncounted, UncountedMemory, UncountedProcess};

pub use radrm_base::{KIND_COUNT, Kind};
