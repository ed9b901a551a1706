//! Errors of finding limits or of bringing them into force.

use std::io;
use std::path::{Path, PathBuf};

use radrm_base::reason;
use thiserror::Error;

use crate::mps::control::Silence;
use crate::requested::Name;

/// Reason that limits are not known or cannot be brought into force, as one sentence. Causes that are errors of
/// other crates are kept as text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum LimitError {
    #[error("`{0}` is not an amount of memory: write for instance 10GiB or 10Gi, 500MB, 50% or plain bytes")]
    NoAmount(String),
    #[error("`{0}` is not an amount of memory such as 10GiB")]
    NotBytes(String),
    #[error("`{0}` is not a share between 0% and 100%")]
    NoShare(String),
    #[error(
        "`{text}` can mean two things: write {number}{letter}iB or {number}{letter}i (2^{} bytes each), or {number}{letter}B (10^{})",
        10 * power, 3 * power
    )]
    AmbiguousUnit { text: String, number: String, letter: char, power: usize },
    #[error("`{text}` is more than {bound}")]
    TooLarge { text: String, bound: String },
    #[error("`{0}` means {0} bytes, which no program can work with: write {0}GiB, {0}MiB or {0}%")]
    TooSmall(String),
    #[error(
        "`{0}` is not an amount in HAMi's units: write 3g, 3000m or 3072000k (powers of 1024), or plain bytes"
    )]
    NoHamiAmount(String),
    #[error("`{0}` means {0} bytes, which no program can work with: write {0}m for MiB or {0}g for GiB")]
    FewHamiBytes(u64),
    #[error(
        "`{0}` is not a whole number of MiB, as NVIDIA's container toolkit reads it: write 4096 for 4 GiB"
    )]
    NoMebibytes(String),
    #[error("`{0}` MiB is more than the {1} MiB of NVIDIA_GPU_MEMORY_LIMIT: a request is at most the limit")]
    RequestAboveLimit(String, String),
    #[error(
        "which GPU the program numbers so is not known, as the GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the \
         GPU in --mem-limit"
    )]
    UnknownOrder,
    #[error("`{0}` is not a percentage between 1 and 100")]
    NoPercentage(String),
    #[error("`{0}` is not a mode that lets its owner write, such as 0644")]
    NoMode(String),
    #[error("`{0}` names no job: letters, digits, - and . are permitted, at most 64")]
    NoJobName(String),
    #[error("`{0}` is none of off, count, sample, sample:PERCENT (up to 100), all")]
    NoKernelsMode(String),
    #[error("no limit is given")]
    NoLimit,
    #[error("`{0}` has an empty part")]
    EmptyPart(String),
    #[error("GPU {gpu} is named twice in `{list}`")]
    NamedTwice { gpu: Name, list: String },
    #[error("`{0}` has two limits for all GPUs")]
    TwoForAll(String),
    #[error("`{0}` names no GPU: give its number in nvidia-smi, or the beginning of its GPU-… or MIG-… UUID")]
    NoGpuName(String),

    #[error("{}{}: {what}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Configuration { path: PathBuf, line: Option<usize>, what: String },
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{}: {section} belongs into {}; in your own file [default] is you", path.display(), crate::files::SYSTEM)]
    ForeignSection { path: PathBuf, section: String },
    #[error("{place}: {error}")]
    In { place: String, error: Box<Self> },

    #[error("NVML does not work: {0}; `radrm doctor` checks the driver")]
    Nvml(String),
    #[error("the GPUs in `{list}` cannot be found: {error}")]
    NoLookUp { list: String, error: Box<Self> },
    #[error("limits cannot be compared: {0}")]
    NoComparison(Box<Self>),
    #[error("{0} and {1} are the same GPU")]
    SameGpu(Name, Name),
    #[error("there is no GPU {index}{}", if known.is_empty() { ": NVML knows none".into() } else { format!(", only {known}") })]
    NoGpu { index: u32, known: String },
    #[error("there is no GPU whose UUID begins with {0}")]
    NoUuid(String),
    #[error("{text} fits {first} and {second}: give more of the UUID")]
    AmbiguousUuid { text: String, first: String, second: String },
    #[error("GPU {0} is divided into MIG instances, which are limited one by one: name them (MIG-…)")]
    Divided(Name),
    #[error("there is no emulated machine {}", .0.display())]
    NoMachine(PathBuf),

    #[error("{name} is not in {directories}: {remedy}")]
    NoLibrary { name: String, directories: String, remedy: &'static str },
    #[error("{} {what}", library.display())]
    Unloadable { library: PathBuf, what: String },

    #[error("no limit can hold, since the job's ledger cannot be made: {0}")]
    NoLedger(String),
    #[error("the limit of {whose} cannot hold: {why}; {administrator} sets it up by `{command}`")]
    NotJoined { whose: String, why: String, administrator: &'static str, command: String },
    #[error("the limit of {whose} cannot be set up: {why}")]
    NotSetUp { whose: String, why: String },
    #[error("the share cannot be set: {0}")]
    Share(String),

    #[error("{who} names the MPS pipe directory {}, but no control daemon answers there: {why}", pipe.display())]
    NoMpsDaemon { who: String, pipe: PathBuf, why: String },
    #[error("MPS cannot be started: {0}")]
    MpsNotStarted(Box<Self>),
    #[error("{0}")]
    MpsDropsList(String),
    #[error("{0}")]
    MpsSilent(String),
    #[error("its daemon does not answer; its log is in {}", .0.display())]
    MpsMute(PathBuf),
    #[error("the path {} is too long for its socket", .0.display())]
    LongPath(PathBuf),
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("{} belongs to another user or is open to others", .0.display())]
    NotPrivate(PathBuf),
    #[error("its lock cannot be taken: {0}")]
    NoLock(String),
    #[error("another radrm-run is starting or ending it and does not get done")]
    LockHeld,
}

impl LimitError {
    /// At a path, what the system says.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), why: reason(error) }
    }

    /// In a file or an option.
    #[must_use]
    pub fn at(self, place: impl ToString) -> Self {
        Self::In { place: place.to_string(), error: Box::new(self) }
    }
}

impl From<Silence> for LimitError {
    fn from(silence: Silence) -> Self {
        Self::MpsSilent(silence.to_string())
    }
}

/// At the edge, where a sentence is all that is left of an error.
impl From<LimitError> for String {
    fn from(error: LimitError) -> Self {
        error.to_string()
    }
}
