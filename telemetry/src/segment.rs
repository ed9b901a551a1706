//! Making a segment: the launcher's side.

use crate::layout::*;
use crate::sys;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a segment could not be made.
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

/// A segment that this process made. Dropping it removes the file, unless processes of a job with a quota live
/// on: their children must be able to join. Programs that joined keep their mappings.
#[derive(Debug)]
pub struct SegmentFile {
    file: File,
    path: PathBuf,
    unlink: bool,
}

impl SegmentFile {
    /// Where segments of this user lie, the best place first: `$XDG_RUNTIME_DIR/radrm/`, `/run/radrm/UID/`,
    /// `/dev/shm/radrm-UID/`.
    pub fn directories() -> Vec<PathBuf> {
        let uid = rustix::process::getuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
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

    /// Makes a segment in `directory`, which is made too if its parent exists. Removes segments there whose
    /// launchers are gone.
    ///
    /// # Errors
    ///
    /// See [`CreateError`]. Nothing is left behind.
    pub fn create_in(directory: &Path, job_id: u64) -> Result<Self, CreateError> {
        let io = |error| CreateError::Io(directory.to_owned(), error);
        private_directory(directory)?;
        remove_stale(directory);
        let start = crate::process::own().map_err(|e| io(e.into()))?.start;
        let path = directory.join(format!("segment-{}-{start}-{job_id:016x}", std::process::id()));
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
        let made = Self { file, path: path.clone(), unlink: true };
        // Held for as long as the launcher lives: in another pid namespace its pid says nothing of that.
        let _ = made.file.try_lock();
        // The mode above has gone through the umask; this one has not.
        made.file.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
        made.fill(job_id, start)?;
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
        let made = Self { file, path, unlink: false };
        made.fill(job_id, crate::process::own().map_err(io)?.start)?;
        let _ =
            rustix::fs::fcntl_add_seals(&made.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        Ok(made)
    }

    fn fill(&self, job_id: u64, start: u64) -> Result<(), CreateError> {
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
            u64::from(std::process::id()),
            start,
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

    /// What `RADRM_SEGMENT` is set to.
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
        if self.unlink && !has_living_members(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
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

/// Whether processes of a job with a quota are still running.
fn has_living_members(segment: &Path) -> bool {
    crate::ledger::LedgerView::open(segment, crate::ledger::Place::Segment)
        .is_ok_and(|ledger| !ledger.members().is_empty())
}

/// Whether no launcher holds a segment's lock. Where there are no locks the launcher's pid has to do.
fn is_unlocked(path: &Path) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.is_ok_and(|file| !matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Removes segments whose launchers are gone. What cannot be removed stays.
fn remove_stale(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let mut parts = name.to_str().unwrap_or_default().split('-');
        let (Some("segment"), Some(pid), Some(start)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if let (Ok(pid), Ok(start)) = (pid.parse(), start.parse())
            && !crate::process::is_running(pid, start)
            && is_unlocked(&entry.path())
            && !has_living_members(&entry.path())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
