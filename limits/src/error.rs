//! Why limits are not known or cannot be brought into force.

use std::io;
use std::path::{Path, PathBuf};

use radrm_console::output::reason;
use thiserror::Error;

use crate::mps::control::Silence;
use crate::requested::Name;

/// Why limits are not known or cannot be brought into force, as one sentence. Causes that are errors of other crates
/// are kept as text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LimitError {
    /// A text is no amount.
    #[error("`{0}` is no amount of memory: write for instance 10GiB, 500MB, 50% or plain bytes")]
    NoAmount(String),
    /// A share is not one.
    #[error("`{0}` is not a share between 0% and 100%")]
    NoShare(String),
    /// A unit of one letter.
    #[error(
        "`{text}` can mean two things: write {number}{letter}iB (2^{} bytes each) or {number}{letter}B (10^{})",
        10 * power, 3 * power
    )]
    AmbiguousUnit {
        /// As written.
        text: String,
        /// Its digits.
        number: String,
        /// Its unit in upper case.
        letter: char,
        /// Of 1000, or of 1024.
        power: usize,
    },
    /// An amount beyond a bound.
    #[error("`{text}` is more than {bound}")]
    TooLarge {
        /// As written.
        text: String,
        /// The bound, as a clause.
        bound: String,
    },
    /// A number without a unit that nothing on a GPU is as small as.
    #[error("`{0}` means {0} bytes, which no program can work with: write {0}GiB, {0}MiB or {0}%")]
    TooSmall(String),
    /// A text is no percentage.
    #[error("`{0}` is no percentage between 1 and 100")]
    NoPercentage(String),
    /// A text is no mode of recording kernels.
    #[error("`{0}` is none of off, count, sample, sample:PERCENT (up to 100), all")]
    NoKernelsMode(String),
    /// An empty list.
    #[error("no limit is given")]
    NoLimit,
    /// A comma too many.
    #[error("`{0}` has an empty part")]
    EmptyPart(String),
    /// A GPU with two limits.
    #[error("GPU {gpu} is named twice in `{list}`")]
    NamedTwice {
        /// The GPU.
        gpu: Name,
        /// As written.
        list: String,
    },
    /// Two limits without a GPU.
    #[error("`{0}` has two limits for all GPUs")]
    TwoForAll(String),
    /// A text is no name of a GPU.
    #[error("`{0}` names no GPU: give its number in nvidia-smi, or the beginning of its GPU-… or MIG-… UUID")]
    NoGpuName(String),

    /// A configuration file says something wrong.
    #[error("{}{}: {what}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: Option<usize>,
        /// What is wrong.
        what: String,
    },
    /// A configuration file cannot be read.
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A user's own file has a section for another user.
    #[error("{}: {section} belongs into {}; in your own file [default] is you", path.display(), crate::files::SYSTEM)]
    ForeignSection {
        /// The file.
        path: PathBuf,
        /// The section.
        section: String,
    },
    /// What is wrong with the limits that stand in one place.
    #[error("{place}: {error}")]
    In {
        /// A file or an option.
        place: String,
        /// What is wrong.
        error: Box<Self>,
    },

    /// NVML does not answer.
    #[error("NVML does not work: {0}")]
    Nvml(String),
    /// GPUs are named, and NVML does not answer.
    #[error("the GPUs in `{list}` cannot be looked up: {error}")]
    NoLookUp {
        /// As written.
        list: String,
        /// Why.
        error: Box<Self>,
    },
    /// Limits can only be compared on known GPUs.
    #[error("limits cannot be compared: {0}")]
    NoComparison(Box<Self>),
    /// Two names of one GPU.
    #[error("{0} and {1} are the same GPU")]
    SameGpu(Name, Name),
    /// There is no GPU of a number.
    #[error("there is no GPU {index}{}", if known.is_empty() { ": NVML knows none".into() } else { format!(", only {known}") })]
    NoGpu {
        /// The number.
        index: u32,
        /// The numbers that there are.
        known: String,
    },
    /// There is no GPU of a UUID.
    #[error("there is no GPU whose UUID begins with {0}")]
    NoUuid(String),
    /// A UUID that is cut too short.
    #[error("{text} fits {first} and {second}: give more of the UUID")]
    AmbiguousUuid {
        /// As written.
        text: String,
        /// A UUID.
        first: String,
        /// Another one.
        second: String,
    },
    /// Only its instances can be limited.
    #[error("GPU {0} is divided into MIG instances, which are limited one by one: name them (MIG-…)")]
    Divided(Name),
    /// The file of an emulated machine is not there.
    #[error("there is no emulated machine {}", .0.display())]
    NoMachine(PathBuf),

    /// A library of this project is not installed.
    #[error("{name} is not in {directories}")]
    NoLibrary {
        /// The library.
        name: String,
        /// Where it was looked for.
        directories: String,
    },
    /// The loader will not take a library.
    #[error("{} {what}", library.display())]
    Unloadable {
        /// The library.
        library: PathBuf,
        /// What is wrong, as the end of the sentence.
        what: String,
    },

    /// There is no ledger for the job.
    #[error("no limit can hold, since the job's ledger cannot be made: {0}")]
    NoLedger(String),
    /// The ledger of a user or group cannot be joined.
    #[error("the limit of {whose} cannot hold: {why}; {administrator} sets it up by `{command}`")]
    NotJoined {
        /// User or group.
        whose: String,
        /// Why.
        why: String,
        /// Who can repair it.
        administrator: &'static str,
        /// How.
        command: String,
    },
    /// The ledger of a user or group cannot be made.
    #[error("the limit of {whose} cannot be set up: {why}")]
    NotSetUp {
        /// User or group.
        whose: String,
        /// Why.
        why: String,
    },
    /// A launch budget cannot be written.
    #[error("the share cannot be set: {0}")]
    Share(String),

    /// The pipe directory that was named has no control daemon of MPS.
    #[error("{who} names the MPS pipe directory {}, but no control daemon answers there: {why}", pipe.display())]
    NoMpsDaemon {
        /// What names it.
        who: String,
        /// The directory.
        pipe: PathBuf,
        /// Why.
        why: String,
    },
    /// The user's own control daemon cannot be started.
    #[error("MPS cannot be started: {0}")]
    MpsNotStarted(Box<Self>),
    /// MPS would drop the list that was given.
    #[error("{0}")]
    MpsDropsList(String),
    /// The control daemon has no answer.
    #[error("{0}")]
    MpsSilent(String),
    /// The control daemon was started and does not answer.
    #[error("its daemon does not answer; its log is in {}", .0.display())]
    MpsMute(PathBuf),
    /// A socket has no room for the path.
    #[error("the path {} is too long for its socket", .0.display())]
    LongPath(PathBuf),
    /// A file or directory cannot be used.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A directory is not the user's alone.
    #[error("{} belongs to another user or is open to others", .0.display())]
    NotPrivate(PathBuf),
    /// The system refuses a lock.
    #[error("its lock cannot be taken: {0}")]
    NoLock(String),
    /// A lock is held for too long.
    #[error("another radrm-run is starting or ending it and does not get done")]
    LockHeld,
}

impl LimitError {
    /// At a path, what the system says.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), why: reason(error) }
    }

    /// In a file or an option.
    pub(crate) fn at(self, place: impl ToString) -> Self {
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
