//! Making a scope: the administrator's side.
//!
//! The administrator of this computer's scopes is root; of an emulated machine's, the owner of its file.

use super::layout::*;
use crate::ledger::layout::LEDGER_BYTES;
use crate::ledger::{Access, Amount, LedgerError, LedgerView, Limit, Place, file};
use crate::sync::Ordering::{Relaxed, Release};
use crate::sys;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The administrator's file.
pub(super) const LIMITS: &str = "limits";

/// The directory of a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopeDirectory {
    path: PathBuf,
    access: Access,
}

/// Defect that a setup found in a user's ledger and repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// It was as it should be.
    Nothing,
    /// Its owner had changed its permissions.
    Mode,
    /// Its owner had made it longer.
    Size,
    /// It was shortened or written over, and is new.
    Contents,
}

impl ScopeDirectory {
    /// The scope in this directory.
    ///
    /// # Errors
    ///
    /// [`LedgerError::NotSetUp`] if there is none; [`LedgerError::Unsafe`] if anyone but `administrators` can
    /// change what is in the directory.
    pub fn open(path: &Path, access: Access, administrators: &[u32]) -> Result<Self, LedgerError> {
        let found = match std::fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Err(LedgerError::NotSetUp(path.to_owned())),
            Err(error) => return Err(LedgerError::Io(path.to_owned(), error)),
        };
        if !is_kept_by(&found, administrators) || !found.is_dir() {
            return Err(LedgerError::Unsafe(path.to_owned()));
        }
        let limits = path.join(LIMITS);
        match std::fs::symlink_metadata(&limits) {
            Ok(found) if found.is_file() && is_kept_by(&found, administrators) => {}
            Ok(_) => return Err(LedgerError::Unsafe(limits)),
            Err(_) => return Err(LedgerError::NotSetUp(path.to_owned())),
        }
        Ok(Self { path: path.to_owned(), access })
    }

    /// The same, made where it is not there yet. Its parent exists.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`].
    pub fn make(path: &Path, access: Access) -> Result<Self, LedgerError> {
        let io = |error| LedgerError::Io(path.to_owned(), error);
        match DirBuilder::new().mode(0o755).create(path) {
            // The umask may have taken something away.
            Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(io)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io(error)),
        }
        let own = rustix::process::geteuid().as_raw();
        match Self::open(path, access, &[0, own]) {
            Err(LedgerError::NotSetUp(_)) => {}
            other => return other,
        }
        let member_mode = if matches!(access, Access::User(_)) { 0o600 } else { 0o640 };
        file::publish(path, LIMITS, |file| {
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.set_len(SCOPE_BYTES)?;
            sys::allocate(file, 0, SCOPE_BYTES)?;
            with_area(file, |area| {
                area.version.store(SCOPE_VERSION, Relaxed);
                area.member_mode.store(member_mode, Relaxed);
                area.amount.store(Amount::Unlimited.to_word(), Relaxed);
                // Release: a reader that sees the magic sees the rest.
                area.magic.store(SCOPE_MAGIC, Release);
            })
        })
        .map_err(io)?;
        Self::open(path, access, &[0, own])
    }

    /// User or group that the scope belongs to.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger of a user, whose path jobs are given.
    pub fn member(&self, uid: u32) -> PathBuf {
        self.path.join(format!("member-{uid}"))
    }

    /// Gives a user a ledger here, or puts right what its owner has done to it. For the administrator.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`]; [`LedgerError::Full`] if there are [`MAX_USERS`] already.
    pub fn add(&self, uid: u32) -> Result<Repaired, LedgerError> {
        let name = format!("member-{uid}");
        let path = self.path.join(&name);
        let io = |error| LedgerError::Io(path.clone(), error);
        let (gid, mode) = match self.access {
            Access::User(_) => (None, 0o600),
            Access::Group(gid) => (Some(gid), 0o640),
        };
        let fill = |file: &File| {
            let found = file.metadata()?;
            if found.uid() != uid || gid.is_some_and(|gid| gid != found.gid()) {
                std::os::unix::fs::fchown(file, Some(uid), gid)?;
            }
            file.set_permissions(Permissions::from_mode(mode))?;
            file.set_len(LEDGER_BYTES)?;
            file::fill(file, Place::File)
        };
        // Two administrators at once would both take the roster's next place.
        let limits = self.lock().map_err(io)?;
        let mut repaired = Repaired::Nothing;
        match open_here(&path) {
            Ok(file) => repaired = repair(&file, &fill, mode).map_err(io)?,
            Err(error) if is_absent(&error) => file::publish(&self.path, &name, fill).map_err(io)?,
            Err(error) => return Err(io(error)),
        }
        let entered = with_area(&limits, |area| {
            let count = area.users().count();
            if area.users().any(|(_, known)| known == uid) {
                return true;
            }
            let Some(place) = area.roster.get(count) else { return false };
            place.store(uid.into(), Relaxed);
            // Release: a reader that sees the number sees the entry.
            area.users.store(count as u64 + 1, Release);
            true
        });
        match entered.map_err(io)? {
            true => Ok(repaired),
            false => Err(LedgerError::Full(self.path.clone())),
        }
    }

    /// Makes these the limits, and all of them. For the administrator. `by_hand`: they hold instead of those
    /// that jobs read from configuration files.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`].
    pub fn set_limits(&self, limits: &[Limit], by_hand: bool) -> Result<(), LedgerError> {
        let io = |error| LedgerError::Io(self.path.join(LIMITS), error);
        let file = self.lock().map_err(io)?;
        let done = with_area(&file, |area| {
            let mut amounts = [0; crate::layout::GPUS];
            for limit in limits {
                let Some(uuid) = limit.gpu else { continue };
                let Some(place) = enter(area, &uuid).and_then(|at| amounts.get_mut(at)) else { return false };
                *place = limit.amount.to_word();
            }
            let general = limits.iter().rev().find(|limit| limit.gpu.is_none());
            area.amount.store(general.map_or(Amount::Unlimited, |limit| limit.amount).to_word(), Release);
            for (cell, amount) in area.amounts.iter().zip(amounts) {
                cell.store(amount, Release);
            }
            area.by_hand.store(by_hand.into(), Release);
            true
        });
        match done.map_err(io)? {
            true => Ok(()),
            false => Err(LedgerError::Full(self.path.clone())),
        }
    }

    /// Sets the limits that a user requests below the administrator's: they apply to this user's processes
    /// alone.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`].
    pub fn set_own_limits(&self, uid: u32, limits: &[Limit], by_hand: bool) -> Result<(), LedgerError> {
        let view = LedgerView::open(&self.member(uid), Place::File)?;
        view.set_limits(limits);
        view.set_by_hand(by_hand);
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path.join(LIMITS))?;
        file.lock()?;
        Ok(file)
    }
}

/// Opens a user's file without following a link, waiting for a device or letting another file take its place.
fn open_here(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn repair(file: &File, fill: &impl Fn(&File) -> io::Result<()>, mode: u32) -> io::Result<Repaired> {
    let found = file.metadata()?;
    let is_whole = found.len() >= LEDGER_BYTES && file::has_magic(file);
    if !is_whole {
        // Zeros first: what its owner wrote into it is not taken over. Its processes have ended or are refused.
        file.set_len(0)?;
        fill(file)?;
        return Ok(Repaired::Contents);
    }
    let repaired = match () {
        () if found.len() > LEDGER_BYTES => Repaired::Size,
        () if found.mode() & 0o7777 != mode => Repaired::Mode,
        () => Repaired::Nothing,
    };
    if repaired != Repaired::Nothing {
        // No process maps what lies behind the end.
        file.set_len(LEDGER_BYTES)?;
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(repaired)
}

/// Works on the administrator's file, mapped for writing.
fn with_area<T>(file: &File, work: impl FnOnce(&ScopeArea) -> T) -> io::Result<T> {
    if file.metadata()?.len() < SCOPE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let address = sys::map_shared(file, 0, SCOPE_BYTES as usize)?;
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let result = work(unsafe { address.cast::<ScopeArea>().as_ref() });
    // SAFETY: mapped above, and nothing refers to it any more.
    unsafe { sys::unmap(address, SCOPE_BYTES as usize) };
    Ok(result)
}

/// The place of a GPU, entered where it was not known.
fn enter(area: &ScopeArea, uuid: &[u8; 16]) -> Option<usize> {
    let tag = crate::ledger::gpus::tag(uuid);
    let at =
        area.tags.iter().position(|known| matches!(known.load(Relaxed), 0) || known.load(Relaxed) == tag)?;
    let (words, _) = uuid.as_chunks::<8>();
    for (place, word) in area.uuids.get(at)?.iter().zip(words) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
    // Release: a reader that sees the tag sees the uuid.
    area.tags.get(at)?.store(tag, Release);
    Some(at)
}

/// Returns true if only `administrators` can change it.
fn is_kept_by(found: &Metadata, administrators: &[u32]) -> bool {
    administrators.contains(&found.uid()) && found.mode() & 0o022 == 0
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

impl Access {
    /// The name of a scope's directory.
    pub fn name(self) -> String {
        match self {
            Self::User(uid) => format!("user-{uid}"),
            Self::Group(gid) => format!("group-{gid}"),
        }
    }

    /// The scope that a directory of this name is for.
    pub fn from_name(name: &OsStr) -> Option<Self> {
        let (kind, id) = name.to_str()?.split_once('-')?;
        match kind {
            "user" => id.parse().ok().map(Self::User),
            "group" => id.parse().ok().map(Self::Group),
            _ => None,
        }
    }
}
