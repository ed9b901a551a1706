//! Reasons that a job is not accepted as described, or that there is no answer.

use std::path::PathBuf;

use radrm_scheduler_core::Bytes;
use thiserror::Error;

use crate::bounds::{MAX_DEPENDENCIES, MAX_ESTIMATES, MAX_NAME, MAX_PATH, MAX_TASKS, MAX_TOGETHER};

/// Error of a reference to a job, of a job's description, or of a request to the daemon, as one sentence.
/// It reports that a text names no job, a job is not accepted as described, or a daemon does not answer. Causes that
/// are errors of the system are kept as text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ProtocolError {
    /// A text is no reference to a job.
    #[error("`{0}` is not a job number: write 12, or 12_3 for one job of an array")]
    NoJob(String),
    /// A condition is not known.
    #[error("`{0}` is neither any nor ok, as in any:12 or ok:12,13")]
    NoCondition(String),
    /// A text is not a list of indices.
    #[error("`{0}` are no indices such as 0-99, 1,3,5 or 0-99%4")]
    NoIndices(String),
    /// An array that may have no job at once.
    #[error("with a bound of 0 no job of the array would start")]
    ZeroAtOnce,
    /// An array with too many jobs.
    #[error("an array has at most {MAX_TASKS} jobs")]
    LargeArray,

    /// No program is named.
    #[error("the job has no command")]
    NoCommand,
    /// Too many words.
    #[error("the job's command line is too long")]
    ManyWords,
    /// A word that no program can be given.
    #[error("a word of the job contains a zero byte")]
    ZeroByte,
    /// A client filled in what the daemon finds.
    #[error("the job's place in an array or a group, and the jobs that it waits for, are found by radrmd")]
    NotTheClients,
    /// As many jobs as no group has.
    #[error("a group has {0} jobs; 1 to {MAX_TOGETHER} jobs start together at most")]
    GroupSize(usize),
    /// A job of a group that is an array.
    #[error("an array cannot start together with other jobs")]
    ArrayInGroup,
    /// Jobs of a site with different numbers of GPUs.
    #[error("jobs that share GPUs from the start ask for as many GPUs each")]
    SiteGpus,
    /// Jobs of a group for GPUs of different models.
    #[error("jobs that start together ask for the same model of GPU")]
    GroupModels,
    /// A name that no producer of `radrm.share` can have.
    #[error("the loader's name {0:?} is not 1 to 64 letters, digits, `-`, `_` and `.`, without `.` in front")]
    LoaderName(String),
    /// A client submits what the daemon submits.
    #[error("producers of loaders are submitted by radrmd, for the jobs that name them")]
    ProducerByClient,
    /// Too many dependencies.
    #[error("the job waits for more than {MAX_DEPENDENCIES} jobs and arrays")]
    ManyDependencies,
    /// A relative directory.
    #[error("the job's directory {} is not absolute", .0.display())]
    RelativeDirectory(PathBuf),
    /// More GPUs than there can be.
    #[error("{0} GPUs at once are more than one machine has")]
    ManyGpus(u16),
    /// GPU options of a job without GPUs.
    #[error("a job without GPUs has no GPU memory, share, latency, lowest speed or GPUs of its own")]
    NoGpus,
    /// A share out of its range.
    #[error("a share is between 0.1% and 100%")]
    Share,
    /// A target out of its range.
    #[error("a latency target is p1 to p99.9 of 1us to 1h, and a lowest speed above 0 and at most 1")]
    Target,
    /// No memory.
    #[error("a job on a GPU needs more than 0 bytes of its memory")]
    NoMemory,
    /// A need above its upper bound.
    #[error("GPU memory of {bytes} is above its upper bound of {upper}")]
    AboveBound {
        /// The need.
        bytes: Bytes,
        /// Its bound.
        upper: Bytes,
    },
    /// No time to run in.
    #[error("with a time limit of 0 the job would end at once")]
    ZeroTime,
    /// No slot to run in.
    #[error("with a slot of 0 the job would give way at once")]
    ZeroSlot,
    /// The grace time is not shorter than the time it comes before.
    #[error(
        "with a grace of {} s the checkpoint signal would come at the job's start: its {what} is {} s",
        *grace_ms as f64 / 1000.0, *limit_ms as f64 / 1000.0
    )]
    LongGrace {
        /// The time limit or the slot.
        what: &'static str,
        /// The grace time.
        grace_ms: u64,
        /// Time that it exceeds.
        limit_ms: u64,
    },
    /// No expected run time.
    #[error("no job is expected to take no time at all")]
    ZeroExpected,
    /// SIGKILL, SIGSTOP, or a number that is not a signal.
    #[error("the checkpoint signal is not one that a program can catch")]
    Uncatchable,
    /// A word that the kernel does not pass to a program.
    #[error("{what} has {bytes} bytes; a program is given less than 128 KiB")]
    LongWord {
        /// Description of the word.
        what: String,
        /// Its length.
        bytes: usize,
    },
    /// More than the kernel passes to a program.
    #[error("the job's command and environment have {0} KiB together; 2 MiB is the most")]
    LongCommand(usize),
    /// Too many estimates.
    #[error("the job has more than {MAX_ESTIMATES} estimates")]
    ManyEstimates,
    /// A name that is too long.
    #[error("the job's {what} has {bytes} bytes; {MAX_NAME} are the most")]
    LongName {
        /// Of what.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A path that the kernel rejects.
    #[error("a path of the job has {0} bytes; a path has less than {MAX_PATH}")]
    LongPath(usize),
    /// A summary of a model with what only its reader needs.
    #[error("the summary of the job's model comes with its layers")]
    Layers,

    /// There is no daemon.
    #[error("no radrmd answers ({0}); start radrmd, or name its socket with --socket")]
    NoDaemon(String),
    /// The connection broke during the greeting.
    #[error("the other side does not answer: {0}")]
    NoGreeting(String),
    /// Another program listens there.
    #[error("the other side is no radrmd")]
    NotRadrmd,
    /// The daemon is of another version.
    #[error("radrm and radrmd are of different versions (protocol {own} and {other})")]
    Version {
        /// This side's.
        own: u8,
        /// The other's.
        other: u8,
    },
    /// The connection broke.
    #[error("radrmd does not answer: {0}")]
    Broken(String),
    /// The daemon ended the connection.
    #[error("radrmd closed the connection")]
    Closed,
    /// An answer that does not belong to its request.
    #[error("radrmd gave an answer to another question")]
    OddAnswer,
    /// The daemon rejects the request.
    #[error("{0}")]
    Refused(String),
    /// The daemon cannot accept the request now; the same one may be accepted later.
    #[error("{0}")]
    Later(String),
}

impl ProtocolError {
    /// Returns true if no daemon answers at the moment: there is none, or the connection is gone.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.is_lost() || matches!(self, Self::NoDaemon(_) | Self::NoGreeting(_))
    }

    /// Returns true if the connection is gone: the daemon may be about to come back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Closed)
    }
}
