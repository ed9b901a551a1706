//! Errors of the daemon, a supervisor or a helper.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use radrm_base::reason;
use radrm_base::signal;
use radrm_limits::LimitError;
use radrm_os::nvml::NvmlError;
use radrm_protocol::ProtocolError;
use radrm_protocol::after::After;
use radrm_protocol::job_ref::JobRef;
use radrm_scheduler_core::{Breach, Bytes, Exceeded, Impossible, Reason};
use thiserror::Error;

/// Reason that something is not done, as one sentence. Clients and the log get its text.
#[derive(Debug, Error)]
pub(crate) enum DaemonError {
    /// A file or folder cannot be used.
    #[error("{}{failed}: {why}", path.display())]
    File { path: PathBuf, failed: &'static str, why: String },
    #[error("no process: {}", reason(.0))]
    NoProcess(io::Error),
    #[error("no thread: {}", reason(.0))]
    NoThread(io::Error),
    #[error("no eventfd: {}", reason(.0))]
    NoEventfd(io::Error),
    #[error("no memory: {}", reason(.0))]
    NoMemory(io::Error),
    #[error(transparent)]
    Limit(#[from] LimitError),

    #[error("another radrmd uses {}", .0.display())]
    OtherDaemon(PathBuf),
    #[error("another radrmd answers at {}", .0.display())]
    SocketTaken(PathBuf),
    #[error("{} is there and is not a socket", .0.display())]
    NoSocket(PathBuf),
    #[error("{} belongs to another user or is open to others", .0.display())]
    NotPrivate(PathBuf),
    #[error("NVML does not work: {0}")]
    Nvml(NvmlError),
    #[error("the emulated NVML does not work: {0}")]
    EmulatedNvml(NvmlError),
    /// The machine to emulate is not known, or cannot be made.
    #[error("{0}")]
    Emulation(String),

    /// In a configuration file.
    #[error("{}: {error}", path.display())]
    Configuration { path: PathBuf, error: Box<Self> },
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("kernels: {0}")]
    Kernels(LimitError),
    #[error("[estimator] order: {0}")]
    EstimatorOrder(radrm_need::UnknownEstimator),
    #[error("poll_ms is at least 50")]
    ShortPoll,
    #[error("metrics: `{0}` is no address")]
    NoAddress(String),
    #[error("metrics: {0} can be reached from other machines")]
    PublicAddress(SocketAddr),
    #[error("hooks.timeout_s is at least 1")]
    HookWithoutTime,
    #[error("hooks.{hook}: {}{what}", program.display())]
    HookRejected { hook: &'static str, program: PathBuf, what: String },

    #[error("the queue cannot be read: {0}")]
    QueueRead(rusqlite::Error),
    #[error("the queue cannot be written: {0}")]
    QueueWrite(rusqlite::Error),
    #[error("{} has queue version {found}, this radrmd knows version {known}: use the radrmd that wrote it", path.display())]
    QueueVersion { path: PathBuf, found: i64, known: i64 },
    #[error("{error}: stop it first, its jobs run on meanwhile")]
    StopFirst { error: Box<Self> },
    #[error(
        "{} is damaged: {why}; put a backup in its place, or move it away: job numbers go on",
        path.display()
    )]
    Damaged { path: PathBuf, why: String },
    #[error("{} does not have the highest job number", .0.display())]
    NoNumber(PathBuf),
    #[error("the job number cannot be kept: {}", reason(.0))]
    NumberNotKept(io::Error),
    #[error("the history cannot be read: {0}")]
    HistoryRead(rusqlite::Error),
    #[error("the GPU time cannot be read: {0}")]
    GpuTimeRead(rusqlite::Error),
    #[error("what became of job {job} is not known: {why}")]
    FateUnknown { job: u64, why: io::Error },

    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("a submission out of order")]
    OutOfOrder,
    #[error("this daemon does not run as root, so it starts its own user's jobs only")]
    OtherUser,
    #[error("user {0} has no account on this machine")]
    NoAccount(u32),
    #[error("the commands and environments of your jobs have {bytes} already, and {most} is the most")]
    NoRoom { bytes: Bytes, most: Bytes },
    #[error(
        "the outputs and profiles of your jobs take {bytes} on the disk, and {most} is the most: delete outputs of ended \
         jobs, which radrm show names, and submit again in some seconds"
    )]
    NoDisk { bytes: Bytes, most: Bytes },
    #[error(
        "the disk of the node's queue has only {free} free, which is kept for the jobs that are there: free some of its disk, or \
         wait until old jobs are removed"
    )]
    DiskReserved { free: Bytes },
    #[error(
        "the disk of the node's queue has room for only {free} files, which is kept for the jobs that are there: remove files \
         from it, or wait until old jobs are removed"
    )]
    InodesReserved { free: u64 },
    #[error("the job {0}")]
    Impossible(Box<Reason>),
    #[error("the array's {jobs} jobs are too many: {reason}")]
    LargeArray { jobs: u32, reason: Box<Reason> },
    #[error("{0}")]
    NotAdmitted(Box<Reason>),
    #[error("none of the {of} jobs is submitted, because of the one in place {at}: {why}")]
    Member { at: usize, of: usize, why: Box<Self> },
    #[error("the {jobs} jobs could never start together: {why}")]
    NeverTogether { jobs: usize, why: Impossible },
    #[error("another job of its group did not start")]
    NotTogether,
    #[error("the jobs of its group cannot be waited for: {}", reason(.0))]
    NoBarrier(io::Error),
    #[error("there is no job {0}, or it is another user's")]
    UnknownJob(JobRef),
    #[error("job {0} is over")]
    JobOver(JobRef),
    #[error("job {0} runs already: cancel it, or let it run")]
    JobRuns(u64),
    #[error("{named} jobs are named; {most} at once are the most")]
    ManyJobs { named: usize, most: usize },
    #[error("job {failed} did not succeed, so a job after {after} would never start")]
    AfterFailed { failed: u64, after: Box<After> },
    #[error("the job is rejected by a limit of its user: {0}")]
    NotAllowed(Breach),
    #[error("limits are set by administrators")]
    LimitsByAdmins,
    #[error("only administrators see the limits of other users")]
    OthersLimits,
    #[error("`{0}` is not default, user:NAME or group:NAME")]
    NoScope(String),
    #[error("this machine has no {0}")]
    UnknownScope(String),
    #[error("no administrator has set {name} of {scope}, so there is nothing to unset")]
    LimitNotSet { name: String, scope: String },
    #[error("gpu_reserve_mib = {reserve} leaves jobs nothing of any GPU: the largest has {largest} MiB")]
    GpuReserve { reserve: u64, largest: u64 },
    #[error("there is no limit {name}{hint}")]
    UnknownLimit { name: String, hint: String },
    #[error("{0}")]
    LimitValue(String),
    #[error("GPUs are drained by administrators")]
    DrainedByAdmins,
    #[error("a reason has one line of at most {0} bytes")]
    LongReason(usize),
    #[error("GPUs are reserved by administrators")]
    ReservedByAdmins,
    #[error("`{0}` is not a time such as \"2026-12-24 08:00\"")]
    NoTime(String),
    #[error("{0}: there is no such date, or the node's time zone leaves that hour out")]
    NoDate(String),
    #[error("a reservation is for users or groups: this one is for no user and no group")]
    ReservationOfNone,
    #[error("the reservation from {from} until {until} ends before it begins")]
    ReservationOrder { from: String, until: String },
    #[error("the reservation would be over: it ends at {0}")]
    ReservationOver(String),
    #[error("{0} reservations are the most; take some back with `radrm admin unreserve`")]
    ManyReservations(usize),
    #[error(
        "there is no reservation {0} that was made by `radrm admin reserve`; those of radrmd.toml end there"
    )]
    NoReservation(u64),
    #[error("[[reservations]]: {0}")]
    Reservation(Box<Self>),
    #[error("there is no GPU {0}")]
    NoGpu(String),
    #[error("the output of job {job}, {}, cannot be read: {}", path.display(), reason(why))]
    OutputUnread { job: u64, path: PathBuf, why: io::Error },
    #[error("only administrators see the GPU time of other users")]
    OthersGpuTime,

    #[error("it is gone")]
    JobGone,
    #[error("{} is missing", .0.display())]
    NoLauncher(PathBuf),
    #[error("no control group for job {job}: {}", reason(why))]
    NoGroup { job: u64, why: io::Error },
    #[error("its control group cannot be used: {}", reason(.0))]
    GroupUnusable(io::Error),
    #[error("its start cannot be written down: {}", reason(.0))]
    StartUnwritten(io::Error),
    #[error("this node's GPUs cannot be hidden from it: {}", reason(.0))]
    GpusNotHidden(io::Error),
    #[error("dry_run.{0} is at least 1")]
    DryRunSetting(&'static str),
    #[error("cannot become user {user}: {what}: {why}")]
    NotUser { user: String, what: &'static str, why: nix::Error },
    #[error("the user's name has a zero byte")]
    ZeroByteUser,
    #[error("a word has a zero byte")]
    ZeroByteWord,
    /// Most likely a word of the job's command is too long.
    #[error("its command cannot be executed: {}", reason(.0))]
    NotExecuted(io::Error),

    /// Before the hook's name and after a colon; the other errors of hooks are ends of such sentences.
    #[error("the {hook} {error}")]
    Hook { hook: &'static str, error: Box<Self> },
    #[error("cannot be started: {}", reason(.0))]
    HookNotStarted(io::Error),
    #[error("cannot be run: {}", reason(.0))]
    HookNotRun(io::Error),
    #[error("was killed after {0} s, its limit")]
    HookTimeout(u32),
    #[error("ended with exit code {0}")]
    HookExited(i32),
    #[error("was killed by {}", signal::name(*.0))]
    HookKilled(i32),
    #[error("was not begun")]
    HookNotBegun,
    /// As another process wrote it down.
    #[error("{0}")]
    HookFailed(String),

    #[error("cuInit: {0}")]
    CuInit(String),
    #[error("its segment cannot be read")]
    NoSegment,
    #[error("{gpu} does not report its memory: {why}")]
    NoMemoryFigure { gpu: String, why: NvmlError },
    #[error("{gpu} has {free} free, and {needed} are needed")]
    NoGpuMemory { gpu: String, free: Bytes, needed: Bytes },
    #[error("process {pid} cannot be brought back: {call}: {result}")]
    NotRestored { pid: u32, call: &'static str, result: String },
}

impl DaemonError {
    /// Returns true if the same request may be accepted later: its reason is the disk's or the queue's state.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::QueueRead(_)
            | Self::QueueWrite(_)
            | Self::NumberNotKept(_)
            | Self::HistoryRead(_)
            | Self::GpuTimeRead(_) => true,
            Self::Member { why, .. } => why.is_passing(),
            Self::NoRoom { bytes, .. } => bytes.0 > 0,
            Self::NoDisk { .. } | Self::DiskReserved { .. } | Self::InodesReserved { .. } => true,
            Self::NotAdmitted(reason) => {
                matches!(**reason, Reason::UserLimit { limit: Exceeded::Jobs { has, .. } } if has > 0)
            }
            _ => false,
        }
    }
}

impl DaemonError {
    /// A file that cannot be used, with what the system says.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::not(path, "", error)
    }

    /// Likewise, with what cannot be done with it: ` cannot be read`.
    pub(crate) fn not(path: &Path, failed: &'static str, error: &io::Error) -> Self {
        Self::by(path, failed, reason(error))
    }

    /// Likewise, by another error than the system's.
    pub(crate) fn by(path: &Path, failed: &'static str, why: impl ToString) -> Self {
        Self::File { path: path.to_owned(), failed, why: why.to_string() }
    }
}
