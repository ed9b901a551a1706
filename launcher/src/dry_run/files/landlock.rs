//! Landlock: the kernel refuses a program to write anywhere but in some folders.
//!
//! With layers it keeps the program from what lies below them: a descriptor that was opened outside of the layers, or another
//! process's root, leads there.
//!
//! It does not cover modes, owners, times and attributes of files: [`super::metadata`] does.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use radrm_base::reason;
use thiserror::Error;

use super::inherited;
use super::metadata::Filter;
use super::mounts::{self, Mount};

/// The first version that refuses to truncate files.
const VERSION: i64 = 3;
/// Asks for the version.
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

const WRITE_FILE: u64 = 1 << 1;
const TRUNCATE: u64 = 1 << 14;
/// Writing, removing, making of each kind of file, linking and renaming, truncating.
const WRITES: u64 = WRITE_FILE | 0b1_1111_1111 << 4 | 1 << 13 | TRUNCATE;

/// Folders of things that end with a boot, if they are in memory.
const IN_MEMORY: [&str; 2] = ["/dev", "/run"];
/// Paths to which programs write in any case.
const FREE: [&str; 9] = [
    "/proc",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Reason that writes cannot be refused, as a clause.
#[derive(Debug, Error)]
pub(super) enum LandlockError {
    /// The kernel has none, or it is off.
    #[error("Landlock: {}", reason(.0))]
    None(io::Error),
    /// Files could be emptied.
    #[error("Landlock: version {0} of this kernel does not protect files from being truncated")]
    Old(i64),
}

/// Folders in memory below which no file system holds files of a user: a disk may be mounted at `/run/media`.
fn in_memory() -> Vec<PathBuf> {
    let mounts = mounts::visible().unwrap_or_default();
    let holds_files = |path: &Path| {
        let mut below = mounts.iter().filter(|mount| mount.at.starts_with(path));
        below.any(|mount| !mount.is_in_memory() && mount.holds_files())
    };
    let is_in_memory = |path: &Path| {
        let of = mounts.iter().rfind(|mount| path.starts_with(&mount.at));
        of.is_some_and(Mount::is_in_memory)
    };
    let mut found = Vec::new();
    for folder in IN_MEMORY.map(Path::new).into_iter().filter(|folder| is_in_memory(folder)) {
        if !holds_files(folder) {
            found.push(folder.to_owned());
            continue;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        found.extend(entries.filter(|path| !path.is_symlink() && !holds_files(path)));
    }
    // Where it is a file system of its own.
    found.extend(Some(PathBuf::from("/dev/shm")).filter(|path| is_in_memory(path)));
    found
}

/// Rules on what a program may write.
pub(crate) struct Ruleset {
    paths: OwnedFd,
    /// `None`: the program has layers, which take such calls.
    metadata: Option<Filter>,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

impl Ruleset {
    /// One that allows writes in these folders and files.
    pub(super) fn new(real: &[PathBuf]) -> Result<Self, LandlockError> {
        let ruleset = Self { paths: handled()?, metadata: Some(Filter::new()) };
        ruleset.allow_usual(real);
        Ok(ruleset)
    }

    /// One for a program in layers that show the folders `roots`: it may write there, and in the `real` folders and files.
    pub(super) fn over(roots: &[OwnedFd], real: &[PathBuf]) -> Result<Self, LandlockError> {
        let ruleset = Self { paths: handled()?, metadata: None };
        ruleset.allow_usual(real);
        for mount in mounts::visible().unwrap_or_default().iter().filter(|mount| mount.is_writable_kernel()) {
            ruleset.allow(&mount.at);
        }
        roots.iter().for_each(|root| ruleset.allow_below(root.as_fd(), WRITES));
        Ok(ruleset)
    }

    fn allow_usual(&self, real: &[PathBuf]) {
        for path in FREE.iter().map(PathBuf::from).chain(in_memory()).chain(real.iter().cloned()) {
            self.allow(&path);
        }
        for fd in inherited::writable() {
            self.allow_below(fd.as_fd(), WRITE_FILE | TRUNCATE);
        }
    }

    /// Allows writes below a path, also in what is mounted there; one that is not there needs no leave.
    fn allow(&self, path: &Path) {
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) else { return };
        let is_folder = file.metadata().is_ok_and(|meta| meta.is_dir());
        self.allow_below(file.as_fd(), if is_folder { WRITES } else { WRITE_FILE | TRUNCATE });
    }

    fn allow_below(&self, file: BorrowedFd<'_>, allowed_access: u64) {
        let rule = PathBeneath { allowed_access, parent_fd: file.as_raw_fd() };
        // SAFETY: open descriptors and a structure that lives here.
        unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.paths.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0_u32,
            )
        };
    }

    /// Puts this process under it; only async-signal-safe calls. One with layers has the right to do so by its namespaces,
    /// and setuid programs keep what these leave them.
    pub(super) fn enter(&self) -> bool {
        // SAFETY: system calls on an open descriptor that change this process only.
        unsafe {
            (self.metadata.is_none() || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
                && libc::syscall(libc::SYS_landlock_restrict_self, self.paths.as_raw_fd(), 0_u32) == 0
                && self.metadata.as_ref().is_none_or(Filter::enter)
        }
    }
}

/// An empty ruleset, which refuses all writes.
fn handled() -> Result<OwnedFd, LandlockError> {
    // SAFETY: asks for a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u64>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    if version < 0 {
        return Err(LandlockError::None(io::Error::last_os_error()));
    }
    if version < VERSION {
        return Err(LandlockError::Old(version));
    }
    let handled: u64 = WRITES;
    // SAFETY: a structure of one number, and its size.
    let fd = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0_u32)
    };
    let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) else {
        return Err(LandlockError::None(io::Error::last_os_error()));
    };
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
