//! Making a segment: the launcher's side.

use crate::layout::*;
use crate::sys;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Reason that a segment could not be made.
#[derive(Debug)]
pub enum CreateError {
    /// The directory exists but belongs to another user or is open to others.
    UnsafeDirectory(PathBuf),
    /// The soft limit on the size of files (`ulimit -f`) is too small for the sparse file.
    FileSizeLimit,
    /// A system call failed.
    Io(PathBuf, std::io::Error),
}

impl std::fmt::Display for CreateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnsafeDirectory(path) => {
                write!(f, "{} belongs to another user or is open to others", path.display())
            }
            Self::FileSizeLimit => {
                f.write_str("the limit on file sizes (ulimit -f) is too small for a segment")
            }
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CreateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

/// A segment that this process made. Dropping it removes the file, unless [`SegmentFile::leave`] was called: that is for
/// its maker to decide, which knows which processes can still join. Programs that joined keep their mappings.
#[derive(Debug)]
pub struct SegmentFile {
    file: File,
    path: PathBuf,
    name: SegmentName,
    unlink: bool,
}

impl SegmentFile {
    /// Directories for segments of this user, the best first: `$XDG_RUNTIME_DIR/radrm/`, `/run/radrm/UID/`,
    /// `/dev/shm/radrm-UID/`.
    pub fn directories() -> Vec<PathBuf> {
        Self::directories_in(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
    }

    /// The same for a process of this user with another `XDG_RUNTIME_DIR`.
    pub fn directories_in(runtime: Option<PathBuf>) -> Vec<PathBuf> {
        let uid = rustix::process::getuid().as_raw();
        let runtime = runtime.filter(|dir| dir.is_absolute());
        let others = [format!("/run/radrm/{uid}"), format!("/dev/shm/radrm-{uid}")].map(PathBuf::from);
        runtime.map(|dir| dir.join("radrm")).into_iter().chain(others).collect()
    }

    /// Makes a segment in the first of [`SegmentFile::directories`] that takes it, else without a name,
    /// reachable as `/proc/PID/fd/N` as long as this process lives.
    ///
    /// # Errors
    ///
    /// Only if all of them fail; the error is the last one's.
    pub fn create(job_id: u64) -> Result<Self, CreateError> {
        for directory in Self::directories() {
            if let Ok(made) = Self::create_in(&directory, job_id) {
                return Ok(made);
            }
        }
        Self::create_unnamed(job_id)
    }

    /// Makes a segment in `directory`, which is made too if its parent exists.
    ///
    /// # Errors
    ///
    /// See [`CreateError`]. Nothing is left behind.
    pub fn create_in(directory: &Path, job_id: u64) -> Result<Self, CreateError> {
        let io = |error| CreateError::Io(directory.to_owned(), error);
        private_directory(directory)?;
        let name = SegmentName::own().map_err(|e| io(e.into()))?;
        let path = directory.join(name.with_job(job_id));
        let io = |error| CreateError::Io(path.clone(), error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)
            .map_err(io)?;
        // From here on an error removes the file again.
        let made = Self { file, path: path.clone(), name, unlink: true };
        // Held for as long as the launcher lives: in another pid namespace its pid says nothing of that.
        let _ = made.file.try_lock();
        // The mode above has gone through the umask; this one has not.
        made.file.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
        made.fill(job_id)?;
        Ok(made)
    }

    /// Makes a segment without a name.
    ///
    /// # Errors
    ///
    /// See [`CreateError`].
    pub fn create_unnamed(job_id: u64) -> Result<Self, CreateError> {
        let io = |error: rustix::io::Errno| CreateError::Io(PathBuf::from("memfd"), error.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(c"radrm-segment", flags).map_err(io)?);
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(io)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        let made = Self { file, path, name: SegmentName::own().map_err(io)?, unlink: false };
        made.fill(job_id)?;
        let _ =
            rustix::fs::fcntl_add_seals(&made.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        Ok(made)
    }

    fn fill(&self, job_id: u64) -> Result<(), CreateError> {
        let io = |error: std::io::Error| CreateError::Io(self.path.clone(), error);
        // Beyond the limit ftruncate would not fail: it would kill with SIGXFSZ.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < TOTAL_BYTES) {
            return Err(CreateError::FileSizeLimit);
        }
        self.file.set_len(TOTAL_BYTES).map_err(io)?;
        match sys::allocate(&self.file, 0, HEADER_BYTES) {
            Ok(()) => {}
            // Writing zeros allocates too, where the file system knows no other way.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                self.file.write_all_at(&[0; HEADER_BYTES as usize], 0).map_err(io)?;
            }
            Err(error) => return Err(io(error.into())),
        }
        // In the order of `Header`, the magic last.
        let words = [
            VERSION,
            TOTAL_BYTES,
            u64::from(self.name.pid),
            self.name.start,
            sys::monotonic_ns(),
            sys::realtime_ns(),
            job_id,
            sys::pid_namespace(),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 8).map_err(io)?;
        self.file.write_all_at(&MAGIC.to_ne_bytes(), 0).map_err(io)
    }

    /// Gives the job a quota: from now on its processes count what they reserve in the segment's ledger,
    /// under these limits. Before the first process starts; what a process holds that joined earlier is unknown.
    ///
    /// # Errors
    ///
    /// If there is no memory for the ledger.
    pub fn arm(
        &self,
        limits: &[crate::ledger::Limit],
    ) -> Result<crate::ledger::LedgerView, crate::ledger::LedgerError> {
        let place = crate::ledger::Place::Segment;
        crate::ledger::fill(&self.file, place)
            .map_err(|error| crate::ledger::LedgerError::Io(self.path.clone(), error))?;
        let view = crate::ledger::LedgerView::open(&self.path, place)?;
        view.set_limits(limits);
        Ok(view)
    }

    /// Gives the job these limits, what a context is taken to need on each GPU, and the segment the name `path` in the
    /// directory that it was made in. Under that name it outlives this process, for every process that can reach it,
    /// whatever its user: as a container has it, whose user its maker does not know. Nothing stays mapped.
    ///
    /// # Errors
    ///
    /// See [`CreateError`]; nothing is left behind.
    pub fn publish(
        mut self,
        path: &Path,
        limits: &[crate::ledger::Limit],
        contexts: &[([u8; 16], u64)],
    ) -> Result<(), CreateError> {
        let io = |error| CreateError::Io(path.to_owned(), error);
        crate::ledger::fill_with(&self.file, crate::ledger::Place::Segment, |area| {
            crate::ledger::set_limits(area, limits);
            for (uuid, bytes) in contexts {
                crate::ledger::set_context(area, Some(uuid), *bytes);
            }
        })
        .map_err(io)?;
        self.file.set_permissions(Permissions::from_mode(0o666)).map_err(io)?;
        std::fs::rename(&self.path, path).map_err(io)?;
        self.unlink = false;
        Ok(())
    }

    /// Lets the file stay when this value is dropped.
    pub fn leave(&mut self) {
        self.unlink = false;
    }

    /// Returns true if other processes reach it by a name that does not end with this process.
    pub fn is_named(&self) -> bool {
        !self.path.starts_with("/proc")
    }

    /// Its maker: this process.
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Value of `RADRM_SEGMENT`: the path of the segment.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A reader of this segment.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened once more.
    pub fn segment(&self) -> Result<crate::Segment, crate::SegmentError> {
        crate::Segment::from_file(self.file.try_clone().map_err(crate::SegmentError::Io)?)
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if self.unlink {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Process that made a segment, from the name of the segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// Process id of its maker, in the maker's pid namespace.
    pub pid: u32,
    /// Start time of its maker in clock ticks since boot.
    pub start: u64,
    /// Session of its maker; 0: not known.
    pub session: u32,
}

impl SegmentName {
    /// Reads the last part of a path; `None` if it is not a segment's.
    pub fn parse(path: &Path) -> Option<Self> {
        let mut parts = path.file_name()?.to_str()?.strip_prefix("segment-")?.split('-');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let session = parts.nth(1).and_then(|session| session.parse().ok()).unwrap_or(0);
        Some(Self { pid, start, session })
    }

    fn own() -> Result<Self, rustix::io::Errno> {
        // 0 in a pid namespace that does not have the session's leader, which rustix takes for impossible.
        //
        // SAFETY: a plain system call that only reads.
        let session = unsafe { libc::getsid(0) }.max(0).unsigned_abs();
        Ok(Self { pid: std::process::id(), start: crate::process::own()?.start, session })
    }

    fn with_job(self, job_id: u64) -> String {
        let Self { pid, start, session } = self;
        format!("segment-{pid}-{start}-{job_id:016x}-{session}")
    }

    /// Returns true if the maker of this file runs, or a process that it left the file to: they hold the file's lock,
    /// and where there are no locks the maker's pid decides.
    pub fn is_held(self, path: &Path) -> bool {
        crate::process::is_running(self.pid, self.start) || is_locked(path)
    }
}

/// Makes a directory for this user only, or checks that it is one.
fn private_directory(directory: &Path) -> Result<(), CreateError> {
    let io = |error| CreateError::Io(directory.to_owned(), error);
    // `/run/radrm` itself is made by root once; with its sticky bit users cannot touch each other's.
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(error)),
        // A umask can only have taken bits away.
        Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(io)?,
        Err(_) => {}
    }
    let found = std::fs::symlink_metadata(directory).map_err(io)?;
    let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if !ours || found.mode() & 0o077 != 0 {
        return Err(CreateError::UnsafeDirectory(directory.to_owned()));
    }
    Ok(())
}

/// Returns true if a process holds a segment's lock.
fn is_locked(path: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_segments_name_says_who_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SegmentFile::create_in(&folder.path().join("r"), 7).unwrap();
        let name = SegmentName::parse(file.path()).unwrap();
        let own = crate::process::own().unwrap();
        assert_eq!((name.pid, name.start), (std::process::id(), own.start));
        // 0 where the session's leader is not in this pid namespace.
        //
        // SAFETY: a plain system call that only reads.
        assert_eq!(name.session.cast_signed(), unsafe { libc::getsid(0) });
        assert!(name.is_held(file.path()) && file.is_named());
        let path = file.path().to_owned();
        file.leave();
        drop(file);
        assert!(path.exists() && !is_locked(&path));
        let parsed = |name: &str| SegmentName::parse(Path::new(name));
        assert_eq!(parsed("/a/segment-12-34-00ff"), Some(SegmentName { pid: 12, start: 34, session: 0 }));
        for other in ["segment", "segment-12", "segment-x-1-2", "other-1-2-3"] {
            assert_eq!(parsed(other), None);
        }
    }

    #[test]
    fn a_lock_outlives_the_pid_that_took_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("r"), 7).unwrap();
        let gone = SegmentName { pid: i32::MAX.unsigned_abs(), start: 1, session: 0 };
        assert!(gone.is_held(file.path()));
        let unnamed = SegmentFile::create_unnamed(7).unwrap();
        assert!(!unnamed.is_named());
    }
}
