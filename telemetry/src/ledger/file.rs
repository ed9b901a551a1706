//! Files with ledgers: making and mapping them.

use super::gpus::settle_limit;
use super::home::Home;
use super::layout::*;
use super::place::Place;
use super::{Amount, Limit};
use crate::layout::GPUS;
use crate::sync::Ordering::{Relaxed, Release};
use crate::sys;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Users whose jobs share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Jobs of one user.
    User(u32),
    /// Jobs of the members of a group.
    Group(u32),
}

/// Reason that a ledger cannot be used.
#[derive(Debug)]
pub enum LedgerError {
    /// The scope's directory is not there: the administrator has not made it.
    NotSetUp(PathBuf),
    /// The directory or the file can be changed by others than the administrator.
    Unsafe(PathBuf),
    /// The file is not a ledger, or one of another version.
    Foreign(PathBuf),
    /// There is no room for another user or GPU.
    Full(PathBuf),
    /// A system call failed.
    Io(PathBuf, std::io::Error),
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSetUp(path) => write!(f, "{} is not there", path.display()),
            Self::Unsafe(path) => {
                write!(f, "{} belongs to another user or is open to others", path.display())
            }
            Self::Foreign(path) => {
                write!(f, "{} is damaged or not a ledger of this version", path.display())
            }
            Self::Full(path) => write!(f, "{} has no room for another user or GPU", path.display()),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LedgerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

/// Makes a file under another name and gives it its own when it is complete, unless another process was faster.
pub(super) fn publish(
    directory: &Path,
    name: &str,
    fill: impl FnOnce(&File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let draft = directory.join(format!("draft-{}-{}", std::process::id(), sys::monotonic_ns()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(&draft)?;
    let made = fill(&file).and_then(|()| match std::fs::hard_link(&draft, directory.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = std::fs::remove_file(&draft);
    made
}

/// Returns true if a file begins as a ledger of this version does.
pub(super) fn has_magic(file: &File) -> bool {
    let mut words = [[0; 8]; 2];
    file.read_exact_at(words.as_flattened_mut(), 0).is_ok()
        && words.map(u64::from_ne_bytes) == [LEDGER_MAGIC, LEDGER_VERSION]
}

/// Writes an empty ledger into zeros. Its pages are allocated: touching them later cannot fail.
pub(crate) fn fill(file: &File, place: Place) -> std::io::Result<()> {
    fill_with(file, place, |_| ())
}

/// The same with what `set` writes into it before any process sees it. No mapping stays.
pub(crate) fn fill_with(file: &File, place: Place, set: impl FnOnce(&LedgerArea)) -> std::io::Result<()> {
    sys::allocate(file, place.offset(), LEDGER_BYTES)?;
    let address = sys::map_shared(file, place.offset(), LEDGER_BYTES as usize)?;
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let area = unsafe { address.cast::<LedgerArea>().as_ref() };
    area.header.version.store(LEDGER_VERSION, Relaxed);
    area.header.amount.store(Amount::Unlimited.to_word(), Relaxed);
    for cell in &area.gpus {
        cell.limit.store(u64::MAX, Relaxed);
    }
    set(area);
    // Release: a reader that sees the magic sees the rest.
    area.header.magic.store(LEDGER_MAGIC, Release);
    // SAFETY: mapped above, and nothing refers to it any more.
    unsafe { sys::unmap(address, LEDGER_BYTES as usize) };
    Ok(())
}

/// Makes these the limits of a ledger, and all of them: what was set before and is not named is gone.
pub(crate) fn set_limits(area: &LedgerArea, limits: &[Limit]) {
    let general = limits.iter().rev().find(|limit| limit.gpu.is_none());
    area.header.amount.store(general.map_or(Amount::Unlimited, |limit| limit.amount).to_word(), Release);
    let mut named = [0u64; GPUS];
    for limit in limits {
        let number = limit.gpu.and_then(|uuid| super::gpus::enter(area, &uuid, 0));
        if let Some(place) = number.and_then(|number| named.get_mut(number)) {
            *place = limit.amount.to_word();
        }
    }
    for (cell, amount) in area.gpus.iter().zip(named) {
        cell.amount.store(amount, Release);
        settle_limit(area, cell);
    }
}

/// Says what a context is taken to need: on one GPU, or where nothing else is known.
pub(crate) fn set_context(area: &LedgerArea, gpu: Option<&[u8; 16]>, bytes: u64) {
    let place = match gpu {
        Some(uuid) => {
            let cell = super::gpus::enter(area, uuid, 0).and_then(|at| area.gpus.get(at));
            cell.map(|cell| &cell.context)
        }
        None => Some(&area.header.context),
    };
    if let Some(place) = place {
        place.store(bytes.min(super::words::LARGEST), Relaxed);
    }
}

/// Maps a ledger that is there, guarded against its owner's shortening it. It is checked before it is mapped.
pub(super) fn map(path: &Path, place: Place) -> Result<(&'static LedgerArea, Home), LedgerError> {
    let foreign = || LedgerError::Foreign(path.to_owned());
    let io = |errno: rustix::io::Errno| LedgerError::Io(path.to_owned(), errno.into());
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| foreign())?;
    let file = File::from(sys::open_rw(&c_path).map_err(io)?);
    let bytes = rustix::fs::fstat(&file).map_err(io)?.st_size as u64;
    let mut words = [[0; 8]; 2];
    let is_read = file.read_exact_at(words.as_flattened_mut(), place.offset()).is_ok();
    if !is_read
        || bytes < place.offset() + LEDGER_BYTES
        || words.map(u64::from_ne_bytes) != [LEDGER_MAGIC, LEDGER_VERSION]
    {
        return Err(foreign());
    }
    let area = sys::map_shared(&file, place.offset(), LEDGER_BYTES as usize).map_err(io)?;
    radrm_guard::protect(area, LEDGER_BYTES as usize);
    let home = Home::new(&c_path, place).map_err(io)?;
    // SAFETY: as long as a ledger, and never removed; what is cut off reads as zeros; atomics only.
    Ok((unsafe { area.cast::<LedgerArea>().as_ref() }, home))
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use std::ffi::CStr;

    /// A ledger in a directory that goes with it.
    pub(in super::super) struct Scratch {
        path: CString,
        _directory: tempfile::TempDir,
    }

    impl Scratch {
        pub(in super::super) fn path(&self) -> &Path {
            Path::new(std::ffi::OsStr::from_bytes(self.path.as_bytes()))
        }

        pub(in super::super) fn path_c(&self) -> &CStr {
            &self.path
        }
    }

    pub(in super::super) fn scratch(limits: &[Limit]) -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        let fill = |file: &File| {
            file.set_len(LEDGER_BYTES)?;
            fill(file, Place::File)
        };
        publish(directory.path(), "ledger", fill).unwrap();
        let path = directory.path().join("ledger");
        super::super::LedgerView::open(&path, Place::File).unwrap().set_limits(limits);
        Scratch { path: CString::new(path.as_os_str().as_bytes()).unwrap(), _directory: directory }
    }
}
