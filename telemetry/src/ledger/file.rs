//! Making ledgers: the launcher's side.
//!
//! The ledger of a user lies where all sessions of that user look, whatever their environment says: two
//! ledgers for one user would be two quotas.

use super::layout::*;
use super::{Amount, Limit, Place, join, settle_limit};
use crate::layout::GPUS;
use crate::sync::Ordering::{Relaxed, Release};
use crate::sys;
use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Who may use a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One user: file mode 0600.
    User(u32),
    /// The members of a group: file mode 0660.
    Group(u32),
}

impl Access {
    fn file_mode(self) -> u32 {
        if matches!(self, Self::User(_)) { 0o600 } else { 0o660 }
    }

    fn directory_mode(self) -> u32 {
        if matches!(self, Self::User(_)) { 0o700 } else { 0o770 }
    }

    /// Whether a file or directory is the one that this is the ledger of, and closed to everybody else.
    fn is_safe(self, found: &std::fs::Metadata) -> bool {
        match self {
            Self::User(uid) => found.uid() == uid && found.mode() & 0o077 == 0,
            Self::Group(gid) => found.gid() == gid && found.mode() & 0o007 == 0,
        }
    }

    /// The directory that the ledger lies in: what an administrator has prepared under `/run/radrm`, else
    /// one in shared memory.
    pub fn directory(self) -> PathBuf {
        let name = match self {
            Self::User(uid) => uid.to_string(),
            Self::Group(gid) => format!("group-{gid}"),
        };
        let prepared = Path::new("/run/radrm").join(&name);
        if std::fs::symlink_metadata(&prepared).is_ok_and(|found| found.is_dir() && self.is_safe(&found)) {
            return prepared;
        }
        PathBuf::from(format!("/dev/shm/radrm-{name}"))
    }
}

/// Why a ledger cannot be used.
#[derive(Debug)]
pub enum LedgerError {
    /// The directory or the file belongs to somebody else or is open to others.
    Unsafe(PathBuf),
    /// The file is not a ledger, or one of another version.
    Foreign(PathBuf),
    /// A system call failed.
    Io(PathBuf, std::io::Error),
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsafe(path) => {
                write!(f, "{} belongs to somebody else or is open to others", path.display())
            }
            Self::Foreign(path) => {
                write!(f, "{} is not a ledger of this version; remove it when no job uses it", path.display())
            }
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LedgerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

/// A ledger in a file of its own. It stays when this is dropped: other jobs use it.
#[derive(Debug)]
pub struct LedgerFile {
    path: CString,
}

impl LedgerFile {
    /// The ledger of a user or group, made if there is none, with these limits from now on.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`]. Nothing half made is left behind.
    pub fn open(access: Access, limits: &[Limit]) -> Result<Self, LedgerError> {
        Self::open_in(&access.directory(), access, limits)
    }

    /// As [`LedgerFile::open`], in a directory of the caller's choice.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`].
    pub fn open_in(directory: &Path, access: Access, limits: &[Limit]) -> Result<Self, LedgerError> {
        let io = |path: &Path, error| LedgerError::Io(path.to_owned(), error);
        safe_directory(directory, access)?;
        let path = directory.join("ledger");
        if !path.exists() {
            make(directory, &path, access).map_err(|e| io(&path, e))?;
        }
        let found = std::fs::symlink_metadata(&path).map_err(|e| io(&path, e))?;
        if !found.is_file() || !access.is_safe(&found) {
            return Err(LedgerError::Unsafe(path));
        }
        let c_path =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| LedgerError::Foreign(path.clone()))?;
        let view = super::LedgerView::open(&path, Place::File)?;
        view.set_limits(limits);
        Ok(Self { path: c_path })
    }

    /// What is named in the environment of the job.
    pub fn path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(self.path.as_bytes()))
    }

    /// The same for [`super::Ledger::join_file`].
    pub fn path_c(&self) -> &CStr {
        &self.path
    }
}

/// Makes a directory for these users only, or checks that it is one.
fn safe_directory(directory: &Path, access: Access) -> Result<(), LedgerError> {
    let io = |error| LedgerError::Io(directory.to_owned(), error);
    match DirBuilder::new().mode(access.directory_mode()).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(error)),
        Ok(()) => {
            if let Access::Group(gid) = access {
                std::os::unix::fs::chown(directory, None, Some(gid)).map_err(io)?;
            }
            let mode = Permissions::from_mode(access.directory_mode());
            std::fs::set_permissions(directory, mode).map_err(io)?;
        }
        Err(_) => {}
    }
    let found = std::fs::symlink_metadata(directory).map_err(io)?;
    if !found.is_dir() || !access.is_safe(&found) {
        return Err(LedgerError::Unsafe(directory.to_owned()));
    }
    Ok(())
}

/// Makes a ledger under another name and gives it its own when it is complete, unless somebody was faster.
fn make(directory: &Path, path: &Path, access: Access) -> std::io::Result<()> {
    let draft = directory.join(format!("ledger-{}-{}", std::process::id(), sys::monotonic_ns()));
    let made = (|| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(access.file_mode())
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&draft)?;
        if let Access::Group(gid) = access {
            std::os::unix::fs::fchown(&file, None, Some(gid))?;
        }
        file.set_permissions(Permissions::from_mode(access.file_mode()))?;
        file.set_len(LEDGER_BYTES)?;
        fill(&file, Place::File)?;
        match std::fs::hard_link(&draft, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    })();
    let _ = std::fs::remove_file(&draft);
    made
}

/// Writes an empty ledger into zeros. Its pages are allocated: touching them later cannot fail.
pub(crate) fn fill(file: &File, place: Place) -> std::io::Result<()> {
    sys::allocate(file, place.offset(), LEDGER_BYTES)?;
    let address = sys::map_shared(file, place.offset(), LEDGER_BYTES as usize)?;
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let area = unsafe { address.cast::<LedgerArea>().as_ref() };
    area.header.version.store(LEDGER_VERSION, Relaxed);
    area.header.amount.store(Amount::Unlimited.to_word(), Relaxed);
    for cell in &area.gpus {
        cell.limit.store(u64::MAX, Relaxed);
    }
    // Release: who sees the magic sees the rest.
    area.header.magic.store(LEDGER_MAGIC, Release);
    // SAFETY: mapped above, and nothing refers to it any more.
    unsafe { sys::unmap(address, LEDGER_BYTES as usize) };
    Ok(())
}

/// Makes these the limits of a ledger, and all of them: what was set before and is not named is gone.
pub(super) fn set_limits(area: &LedgerArea, limits: &[Limit]) {
    let general = limits.iter().rev().find(|limit| limit.gpu.is_none());
    area.header.amount.store(general.map_or(Amount::Unlimited, |limit| limit.amount).to_word(), Release);
    let mut named = [0u64; GPUS];
    for limit in limits {
        let number = limit.gpu.and_then(|uuid| super::enter(area, &uuid, 0));
        if let Some(place) = number.and_then(|number| named.get_mut(number)) {
            *place = limit.amount.to_word();
        }
    }
    for (cell, amount) in area.gpus.iter().zip(named) {
        cell.amount.store(amount, Release);
        settle_limit(area, cell);
    }
}

/// Maps a ledger that is there.
pub(super) fn map(path: &Path, place: Place) -> Result<&'static LedgerArea, LedgerError> {
    let foreign = || LedgerError::Foreign(path.to_owned());
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| foreign())?;
    let area = join::open(&c_path, place).map_err(|error| match error {
        crate::JoinError::Open(errno) | crate::JoinError::Map(errno) => {
            LedgerError::Io(path.to_owned(), std::io::Error::from_raw_os_error(errno))
        }
        _ => foreign(),
    })?;
    // SAFETY: `open` checks that the file holds all of it, and the mapping is never removed; atomics only.
    area.map(|area| unsafe { area.as_ref() }).ok_or_else(foreign)
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;

    /// A ledger in a directory that goes with it.
    pub(in super::super) struct Scratch {
        file: LedgerFile,
        _directory: tempfile::TempDir,
    }

    impl std::ops::Deref for Scratch {
        type Target = LedgerFile;
        fn deref(&self) -> &LedgerFile {
            &self.file
        }
    }

    pub(in super::super) fn scratch(limits: &[Limit]) -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let file = LedgerFile::open_in(&directory.path().join("l"), Access::User(uid), limits).unwrap();
        Scratch { file, _directory: directory }
    }

    #[test]
    fn a_ledger_is_closed_to_others_and_one_that_is_open_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let at = directory.path().join("l");
        let file = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o666)).unwrap();
        let error = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap_err();
        assert!(matches!(error, LedgerError::Unsafe(_)), "{error}");
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(&at, Permissions::from_mode(0o777)).unwrap();
        let error = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap_err();
        assert!(matches!(error, LedgerError::Unsafe(_)), "{error}");
    }

    #[test]
    fn a_link_in_place_of_the_ledger_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let at = directory.path().join("l");
        let file = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::rename(file.path(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, file.path()).unwrap();
        let error = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap_err();
        assert!(matches!(error, LedgerError::Unsafe(_)), "{error}");
    }

    #[test]
    fn a_damaged_ledger_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let at = directory.path().join("l");
        let file = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap();
        for damage in [vec![0u8; LEDGER_BYTES as usize], vec![1; 100]] {
            std::fs::write(file.path(), &damage).unwrap();
            let error = LedgerFile::open_in(&at, Access::User(uid), &[]).unwrap_err();
            assert!(matches!(error, LedgerError::Foreign(_)), "{error}");
            assert_eq!(std::fs::read(file.path()).unwrap(), damage);
        }
    }
}
