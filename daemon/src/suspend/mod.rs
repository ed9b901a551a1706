//! Suspending a job without loss, by `cuCheckpointProcess*`, and bringing it back.
//!
//! The driver's calls may block for seconds, or for ever, and they need libcuda: they are made by a helper
//! process of the job's user with a time limit, never by the daemon. The helper gets its orders on its
//! standard input, and leaves its answer in a file that it holds locked while it lives, so a daemon that was
//! killed meanwhile finds it. A job is either running or suspended, as a whole: what was begun and cannot be
//! finished is undone.
//!
//! | module | is |
//! |---|---|
//! | `eligible` | whether a job can be suspended, known beforehand |
//! | `driver` | the driver's calls |
//! | `work` | what is done to a job's processes, in which order, and what is undone |
//! | `helper` | the process that does it |
//! | `answer` | its file, and the thread that waits for it |

pub(crate) mod answer;
mod driver;
pub(crate) mod eligible;
mod helper;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;

use radrm_os::ProcessIdentity;
use radrm_scheduler_core::SuspendRefusal;
use serde::{Deserialize, Serialize};

use super::error::DaemonError;
use super::supervisor::User;

pub(crate) use helper::help;

/// The word on the command line that makes `radrmd` a helper.
pub(crate) const WORD: &str = "--suspend-one-job";

/// Bytes by the GPU's UUID.
pub(crate) type ByGpu = BTreeMap<String, u64>;

/// State of a job between running and suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// It runs, after it was suspended or was to be.
    #[default]
    Running,
    /// A helper takes it off its GPUs.
    Suspending,
    /// All its processes are checkpointed.
    Suspended,
    /// A helper brings it back.
    Resuming,
    /// A helper brings back what was begun and not finished; the scheduler takes the job for running.
    Undoing,
    /// It could not be brought back: it is killed, and runs again from its beginning.
    Lost,
}

/// The daemon's own record of a suspended job: NVML shows nothing of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Suspension {
    pub(crate) step: Step,
    /// The processes that are checkpointed, and what each held.
    pub(crate) processes: Vec<Saved>,
    /// Memory that the job held on each GPU.
    pub(crate) bytes: ByGpu,
    /// It had its GPUs to itself because its need is not known.
    pub(crate) whole: bool,
    /// Time for which its attempt ran before it was suspended last, ms.
    pub(crate) ran_ms: u64,
}

impl Suspension {
    /// Host memory that its device memory takes, bytes.
    pub(crate) fn host_bytes(&self) -> u64 {
        if self.step == Step::Suspended { self.bytes.values().sum() } else { 0 }
    }

    /// Returns true if its processes hold nothing on any GPU, or are about to.
    pub(crate) fn is_off(&self) -> bool {
        !matches!(self.step, Step::Running | Step::Undoing)
    }
}

/// A process that was checkpointed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) who: ProcessIdentity,
    /// Memory that it held, as far as NVML reports it.
    #[serde(default)]
    pub(crate) bytes: ByGpu,
}

/// Task of a helper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    #[default]
    Suspend,
    Resume,
}

/// A helper's orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) task: Task,
    /// The job's launcher, which holds its segment.
    pub(crate) launcher: u32,
    /// Its supervisor: all its processes are below it.
    pub(crate) supervisor: u32,
    /// Processes that are suspended, if that is known.
    pub(crate) processes: Vec<Saved>,
    /// Memory that the job holds or held on each GPU.
    pub(crate) bytes: ByGpu,
    /// The emulated machine and driver; `None`: the system's.
    pub(crate) emulated: Option<(PathBuf, PathBuf)>,
    /// Time for work that is under way to end, ms.
    pub(crate) lock_ms: u32,
    /// After so long the helper is ended, s.
    pub(crate) limit_s: u32,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<User>,
}

/// Result of a helper's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Everything of it is checkpointed.
    Suspended { processes: Vec<Saved>, bytes: ByGpu },
    /// It was not suspended, and runs as before.
    Refused { refusal: SuspendRefusal, sentence: String },
    /// It runs.
    Resumed,
    /// It is still suspended and whole: there is no room for it, or nothing could be begun.
    NoRoom { sentence: String },
    /// Some of it can never run again.
    Lost { sentence: String },
}

impl Answer {
    /// Nothing was done, and everything is as it was.
    pub(crate) fn not_begun(task: Task, why: &DaemonError) -> Self {
        let sentence = why.to_string();
        match task {
            Task::Suspend => Self::Refused { refusal: SuspendRefusal::Failed, sentence },
            Task::Resume => Self::NoRoom { sentence },
        }
    }
}
