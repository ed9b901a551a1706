//! Reasons that a process cannot join its job's segment or a ledger of its limits, with words for its user.
//!
//! The words are used by the shim too, which has no allocation: all of them are constant.

use crate::layout::VERSION;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Error of a process that could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The segment's file could not be opened; error number of the system.
    Open(i32),
    /// The file is not a segment.
    Foreign,
    /// The segment has another layout; its version.
    Version(u64),
    /// The segment could not be mapped; error number of the system.
    Map(i32),
    /// No slot is free, and none has been saved.
    Full,
    /// No memory left for the slot; error number of the system.
    NoSpace(i32),
    /// `/proc` does not identify this process; error number of the system.
    Identity(i32),
}

impl std::fmt::Display for JoinError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(errno) => write!(f, "the segment cannot be opened (errno {errno})"),
            Self::Foreign => f.write_str("the file is not a segment"),
            Self::Version(version) => {
                write!(f, "the segment has layout version {version}, this library {VERSION}")
            }
            Self::Map(errno) => write!(f, "the segment cannot be mapped (errno {errno})"),
            Self::Full => f.write_str("all slots of the segment are in use"),
            Self::NoSpace(errno) => write!(f, "no memory left for the segment (errno {errno})"),
            Self::Identity(errno) => {
                write!(f, "/proc does not show this process's start time (errno {errno})")
            }
        }
    }
}

impl std::error::Error for JoinError {}

macro_rules! failures {
    ($($(#[$doc:meta])* $variant:ident = $raw:literal, $code:literal, $sentence:expr, $remedy:expr;)+) => {
        /// Reason that a process cannot join its job.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum JoinFailure { $($(#[$doc])* $variant = $raw,)+ }

        impl JoinFailure {
            /// Every value, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value with this number, if there is one.
            #[inline]
            pub const fn from_raw(raw: u8) -> Option<Self> {
                match raw { $($raw => Some(Self::$variant),)+ _ => None }
            }

            /// Stable name for programs, and in the administrators' manual.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Sentence about the process, without its subject.
            #[inline]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)+ }
            }

            /// Remedy: the action that the user can take.
            #[inline]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

failures! {
    /// `RADRM_SEGMENT` is not set.
    NoSegment = 1, "no-segment",
        "has the shim loaded, and RADRM_SEGMENT is not in its environment: it counts in no job",
        "let the parent pass RADRM_SEGMENT on, or start it under radrm-run";
    /// `RADRM_SEGMENT` is empty.
    EmptySegment = 2, "empty-segment",
        "has the shim loaded, and RADRM_SEGMENT is empty: it counts in no job",
        "let the parent pass RADRM_SEGMENT on unchanged";
    /// The path does not exist here.
    SegmentGone = 3, "segment-gone",
        "does not find the segment that RADRM_SEGMENT names: the job has ended, or the process has a /dev/shm or /run of \
         its own, as in a sandbox or container",
        "start it under radrm-run again, or give the sandbox the segment's directory (bwrap --bind /dev/shm /dev/shm)";
    /// The user may not open it.
    SegmentForbidden = 4, "segment-forbidden",
        "may not open its job's segment: it runs as another user than radrm-run, or with fewer rights",
        "start radrm-run as the user that the process runs as, behind sudo or su";
    /// The process or the system has no file descriptor left.
    NoDescriptor = 5, "no-descriptor",
        "has no file descriptor left to open its job's segment",
        "raise the limit on open files (ulimit -n)";
    /// The file is not a segment, or is a damaged one.
    NotASegment = 6, "not-a-segment",
        "finds no segment in the file that RADRM_SEGMENT names, or a damaged one",
        "let the parent pass RADRM_SEGMENT on as radrm-run has set it, or start the job anew";
    /// Shim and launcher are of different versions.
    OtherVersion = 7, "other-version",
        "has loaded a shim of another version than the radrm-run of its job",
        "take radrm-run and libradrm.so from one package, in containers too";
    /// The limit on the address space is too small.
    AddressSpace = 8, "address-space",
        "cannot map its job's segment: the limit on its address space (ulimit -v) is too small",
        "raise the limit by 1 GiB, or remove it (ulimit -v unlimited)";
    /// The kernel does not map it.
    NoMapping = 9, "no-mapping",
        "cannot map its job's segment",
        "check vm.max_map_count and the system call filter of the container";
    /// All places of the segment or of a ledger are taken.
    Full = 10, "job-full",
        "found all places of its job's segment taken",
        "run fewer processes with CUDA at once in one job";
    /// The file system of the segment is full.
    NoSpace = 11, "segment-full",
        "found no memory left for its place in its job's segment",
        "free memory in the file system of the segment (df -h /dev/shm /run)";
    /// `/proc` does not show the process.
    NoProc = 12, "no-proc",
        "cannot read its own entry in /proc",
        "mount /proc where the process runs (bwrap --proc /proc)";
    /// The segment has no limit, and `RADRM_QUOTA` is set.
    NoLedger = 13, "no-ledger",
        "has RADRM_QUOTA in its environment, and the segment that RADRM_SEGMENT names has no limit: no request for \
         memory is granted",
        "let the parent pass RADRM_SEGMENT and RADRM_QUOTA on unchanged";
    /// A ledger of the user or of a group cannot be joined.
    SharedLedger = 14, "shared-ledger",
        "cannot join the ledger of its user's or group's limit that RADRM_LEDGERS names",
        "give the sandbox or container /run/radrm, or have root run `radrm quota init`";
    /// The kernel cannot clear the shim's memory in forked children.
    NoWipe = 15, "no-wipe",
        "runs on a kernel that cannot clear memory in forked children (MADV_WIPEONFORK)",
        "use Linux 4.14 or newer, and allow madvise in the container's system call filter";
}

impl JoinFailure {
    /// The failure behind an error of this process.
    #[inline]
    pub fn of(error: JoinError) -> Self {
        let number = |errno: Errno| errno.raw_os_error();
        match error {
            JoinError::Open(errno) if errno == number(Errno::MFILE) || errno == number(Errno::NFILE) => {
                Self::NoDescriptor
            }
            JoinError::Open(errno)
                if [Errno::ACCESS, Errno::PERM, Errno::ROFS].map(number).contains(&errno) =>
            {
                Self::SegmentForbidden
            }
            JoinError::Open(errno) if errno == number(Errno::ISDIR) => Self::NotASegment,
            JoinError::Open(_) => Self::SegmentGone,
            JoinError::Foreign => Self::NotASegment,
            JoinError::Version(_) => Self::OtherVersion,
            JoinError::Map(errno)
                if errno == number(Errno::NOMEM) && getrlimit(Resource::As).current.is_some() =>
            {
                Self::AddressSpace
            }
            JoinError::Map(_) => Self::NoMapping,
            JoinError::Full => Self::Full,
            JoinError::NoSpace(_) => Self::NoSpace,
            JoinError::Identity(errno) if errno == number(Errno::MFILE) || errno == number(Errno::NFILE) => {
                Self::NoDescriptor
            }
            JoinError::Identity(_) => Self::NoProc,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_a_code_a_sentence_and_a_remedy_of_its_own() {
        for text in [JoinFailure::code, JoinFailure::sentence, JoinFailure::remedy] {
            let mut texts: Vec<_> = JoinFailure::ALL.iter().map(|failure| text(*failure)).collect();
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(['\n', '{'])), "{texts:?}");
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len(), JoinFailure::ALL.len());
        }
        for failure in JoinFailure::ALL {
            assert_eq!(JoinFailure::from_raw(*failure as u8), Some(*failure));
        }
    }

    #[test]
    fn an_error_number_names_its_failure() {
        for (error, failure) in [
            (JoinError::Open(libc::EMFILE), JoinFailure::NoDescriptor),
            (JoinError::Identity(libc::ENFILE), JoinFailure::NoDescriptor),
            (JoinError::Open(libc::ENOENT), JoinFailure::SegmentGone),
            (JoinError::Open(libc::ENOTDIR), JoinFailure::SegmentGone),
            (JoinError::Open(libc::EACCES), JoinFailure::SegmentForbidden),
            (JoinError::Open(libc::EROFS), JoinFailure::SegmentForbidden),
            (JoinError::Open(libc::EISDIR), JoinFailure::NotASegment),
            (JoinError::Map(libc::EPERM), JoinFailure::NoMapping),
            (JoinError::Identity(libc::ENOENT), JoinFailure::NoProc),
        ] {
            assert_eq!(JoinFailure::of(error), failure, "{error:?}");
        }
    }
}
