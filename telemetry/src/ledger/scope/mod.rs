//! Limits that users share: the scope of a user or of a group.
//!
//! A scope is a directory of the administrator in which no other user can make, rename or remove a file. It holds
//! `limits` ([`layout`]), which only the administrator writes, and for each user `member-UID`, a ledger that
//! only this user writes. A process adds to its own word in its user's ledger, then sums that ledger and what
//! other users' ledgers say ([`others`]).
//!
//! That no two requests are granted which do not fit together rests on the rule of [`words`]: add, full
//! barrier, read all. It makes no difference that other users' words are read by a system call. Adding is a
//! read-modify-write on a page of the page cache; the system call that follows it in program order copies from
//! the same page. Of two processes that add at the same time at least one therefore reads the other's sum, and
//! withdraws or is granted with it. A user that is new is entered into the roster before any process of that
//! user can add, and the roster is read after the own addition: a member that does not see the new user has added before
//! that user's first process did, and is seen by it.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

mod contended;
pub mod layout;
mod others;
mod report;
mod setup;

use super::home::Home;
use super::layout::*;
use super::member::Ledger;
use super::peek::{self, Share};
use super::place::Place;
use super::row::{LedgerRow, Refused};
use super::{gpus, join, words};
use crate::join::JoinError;
use crate::process;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sys;
use layout::*;
use others::{Other, Wanted, Which};
use std::ffi::CStr;
use std::ptr::NonNull;

pub use report::{ScopeMember, ScopeReport};
pub use setup::{Repaired, ScopeDirectory};

/// Longest path of a scope's directory.
const PATH_BYTES: usize = 1024;
/// Prefix of the user id in a ledger's name.
const MEMBER: &[u8] = b"member-";

/// A scope as a process sees it. Never unmapped; good in forked children too.
#[derive(Debug)]
struct Scope {
    limits: NonNull<ScopeArea>,
    /// User id of the user whose ledger is the own one.
    own: u32,
    /// The directory with a slash at its end, and its length.
    directory: [u8; PATH_BYTES],
    directory_bytes: usize,
    others: [Other; MAX_USERS],
}

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for Scope {}
// SAFETY: as above; the rest is atomic or never written again.
unsafe impl Sync for Scope {}

impl Scope {
    /// The scope that a member's ledger lies in, and that ledger.
    fn open(member: &CStr) -> Result<(&'static Self, NonNull<LedgerArea>, Home), JoinError> {
        let (area, home) = join::open(member, Place::File)?.ok_or(JoinError::Foreign)?;
        let stat = rustix::fs::stat(member).map_err(|e| JoinError::Open(e.raw_os_error()))?;
        let bytes = member.to_bytes();
        let own = owner(bytes).ok_or(JoinError::Foreign)?;
        let directory = bytes.iter().rposition(|byte| *byte == b'/').and_then(|at| bytes.get(..=at));
        let directory = directory.filter(|path| path.len() < PATH_BYTES).ok_or(JoinError::Foreign)?;
        let limits = open_limits(directory)?;
        // SAFETY: mapped just now, with all its bytes in the file; atomics only.
        let shared = unsafe { limits.as_ref() };
        let is_known = shared.users().any(|(_, uid)| uid == own) && belongs_to(&stat, own);
        // One that its owner has closed or opened to others would be another ledger to them.
        if !is_known || u64::from(stat.st_mode & 0o7777) != shared.member_mode.load(Relaxed) {
            return Err(JoinError::Foreign);
        }
        let mut probe = [0];
        let header = area.as_ptr() as u64;
        sys::read_mapped(&[(header, 8)], &mut probe).map_err(|e| JoinError::Map(e.raw_os_error()))?;
        let place = sys::map_private(size_of::<Self>()).map_err(|e| JoinError::Map(e.raw_os_error()))?;
        let scope = place.cast::<Self>();
        // SAFETY: fresh zeroed memory, page-aligned and large enough, that nothing else refers to; zeros are
        // valid for all fields but the pointer, which is written before a reference is made.
        let scope = unsafe {
            (&raw mut (*scope.as_ptr()).limits).write(limits);
            (&raw mut (*scope.as_ptr()).own).write(own);
            &mut *scope.as_ptr()
        };
        for (place, byte) in scope.directory.iter_mut().zip(directory) {
            *place = *byte;
        }
        scope.directory_bytes = directory.len();
        Ok((scope, area, home))
    }

    fn limits(&self) -> &ScopeArea {
        // SAFETY: mapped by `open` and never unmapped; atomics only.
        unsafe { self.limits.as_ref() }
    }

    /// The path of a user's ledger.
    fn member_path<'r>(&self, uid: u32, room: &'r mut [u8]) -> Option<&'r CStr> {
        let mut digits = [0; 10];
        let mut rest = uid;
        let mut used = 0;
        for place in digits.iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            used += 1;
            if rest == 0 {
                break;
            }
        }
        let directory = self.directory.iter().take(self.directory_bytes);
        let path = directory.chain(MEMBER).chain(digits.iter().skip(digits.len() - used)).chain(&[0]);
        let mut places = room.iter_mut();
        for byte in path {
            *places.next()? = *byte;
        }
        CStr::from_bytes_until_nul(room).ok()
    }
}

/// Returns the user id in a ledger's name, which only the administrator can give.
fn owner(member: &[u8]) -> Option<u32> {
    let name = member.rsplit(|byte| *byte == b'/').next()?;
    let digits = name.strip_prefix(MEMBER).filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0u32, |uid, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        uid.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Returns true if a ledger belongs to the user that it is named after. In a user namespace other than the first, users
/// have other ids, or none: there the name alone decides.
fn belongs_to(stat: &rustix::fs::Stat, uid: u32) -> bool {
    stat.st_uid == uid || !process::sees_all_users()
}

/// Maps the administrator's file.
fn open_limits(directory: &[u8]) -> Result<NonNull<ScopeArea>, JoinError> {
    let mut room = [0u8; PATH_BYTES + 8];
    for (place, byte) in room.iter_mut().zip(directory.iter().chain(setup::LIMITS.as_bytes())) {
        *place = *byte;
    }
    let path = CStr::from_bytes_until_nul(&room).map_err(|_| JoinError::Foreign)?;
    let open = |e: rustix::io::Errno| JoinError::Open(e.raw_os_error());
    let file = sys::open_ro_here(path).map_err(open)?;
    if (rustix::fs::fstat(&file).map_err(open)?.st_size as u64) < SCOPE_BYTES {
        return Err(JoinError::Foreign);
    }
    let area =
        sys::map_shared_ro(&file, SCOPE_BYTES as usize).map_err(|e| JoinError::Map(e.raw_os_error()))?;
    let area = area.cast::<ScopeArea>();
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let shared = unsafe { area.as_ref() };
    if shared.magic.load(Acquire) != SCOPE_MAGIC {
        return Err(JoinError::Foreign);
    }
    match shared.version.load(Relaxed) {
        SCOPE_VERSION => Ok(area),
        version => Err(JoinError::Version(version)),
    }
}

/// A process's membership in a scope. Plain data without a destructor, used from any thread; a forked child
/// joins anew.
#[derive(Clone, Copy, Debug)]
pub struct SharedLedger {
    own: Ledger,
    scope: &'static Scope,
}

impl SharedLedger {
    /// Joins the scope in whose directory this ledger of the user lies.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. `errno` is left alone, and no file stays open.
    pub fn join(member: &CStr) -> Result<Self, JoinError> {
        sys::keep_errno(|| {
            let (scope, area, home) = Scope::open(member)?;
            Ok(Self { own: join::enter(area, home)?, scope })
        })
    }

    /// The user's own ledger, for all that concerns no other user.
    #[inline]
    pub fn own(&self) -> &Ledger {
        &self.own
    }

    fn wanted(&self, row: LedgerRow) -> Option<(Wanted, u64)> {
        let cell = self.own.cell(row)?;
        let wanted = Wanted {
            tag: cell.tag.load(Acquire),
            row: Some(usize::from(row.number())),
            most: most(cell.total_bytes.load(Relaxed)),
        };
        Some((wanted, effective(self.own.area(), cell, self.scope)))
    }

    /// Reserves `bytes`, all or nothing.
    ///
    /// # Errors
    ///
    /// [`Refused`] if they do not fit under the limit that holds now.
    pub fn reserve(&self, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
        let Some((gpu, limit)) = self.wanted(row) else { return Err(Refused { limit: 0, used: 0 }) };
        if limit == u64::MAX {
            self.own.add(row, bytes);
            return Ok(());
        }
        if self.attempt(row, gpu, bytes, limit, Which::All) {
            return Ok(());
        }
        contended::reserve(self, row, bytes)
    }

    /// Adds and withdraws if the sum is over the limit.
    fn attempt(&self, row: LedgerRow, gpu: Wanted, bytes: u64, limit: u64, which: Which) -> bool {
        let Some((words, own)) = self.own.words(row) else { return false };
        let sum = || words.sum().saturating_add(self.scope.reserved(gpu, which));
        // A word of another generation was written over: what the process holds is not counted any more.
        self.is_intact(own) && words::reserve_with(own, bytes, limit, sum).is_ok()
    }

    fn is_intact(&self, own: &AtomicU64) -> bool {
        words::is_of(own.load(Relaxed), self.own.generation)
    }

    /// One further attempt of a request that did not fit at once: dead processes do not count.
    pub(super) fn retry(&self, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
        let Some((gpu, limit)) = self.wanted(row) else { return Err(Refused { limit: 0, used: 0 }) };
        let used = self.used(row);
        // Reading first keeps contenders from refusing each other.
        if used.saturating_add(bytes) <= limit && self.attempt(row, gpu, bytes, limit, Which::Living) {
            return Ok(());
        }
        Err(Refused { limit, used })
    }

    /// The limit on a GPU, bytes; `u64::MAX` where there is none.
    pub fn limit(&self, row: LedgerRow) -> u64 {
        self.wanted(row).map_or(u64::MAX, |(_, limit)| limit)
    }

    /// Bytes that all users have reserved together. Dead processes of the own user may be among them, see
    /// [`SharedLedger::sweep`].
    pub fn used(&self, row: LedgerRow) -> u64 {
        let others = self.wanted(row).map_or(0, |(gpu, _)| self.scope.reserved(gpu, Which::Living));
        self.own.used(row).saturating_add(others)
    }

    /// Gives back what dead processes of the own user had reserved of a GPU.
    pub fn sweep(&self, row: LedgerRow) {
        self.own.sweep(row);
    }

    /// Calls `visit` with process id and bytes of every process that has something of a GPU reserved.
    pub fn each_holder(&self, row: LedgerRow, mut visit: impl FnMut(u32, u64)) {
        self.own.each_holder(row, &mut visit);
        if let Some((gpu, _)) = self.wanted(row) {
            let _ = self.scope.each(gpu, Which::Living, visit);
        }
    }
}

/// A scope read without becoming a member.
#[derive(Clone, Copy, Debug)]
pub struct SharedPeek {
    area: NonNull<LedgerArea>,
    home: Home,
    scope: &'static Scope,
}

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for SharedPeek {}
// SAFETY: as above.
unsafe impl Sync for SharedPeek {}

impl SharedPeek {
    /// The scope in whose directory this ledger of the user lies.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. `errno` is left alone, and no file stays open.
    pub fn open(member: &CStr) -> Result<Self, JoinError> {
        let (scope, area, home) = sys::keep_errno(|| Scope::open(member))?;
        Ok(Self { area, home, scope })
    }

    /// Limit and reserved bytes of a GPU. `total_bytes`: its memory, where no process has reported it yet.
    pub fn gpu(&self, uuid: &[u8; 16], total_bytes: u64) -> Share {
        // SAFETY: mapped by `open` and never unmapped; atomics only.
        let area = unsafe { self.area.as_ref() };
        let own = peek::share(area, self.home, uuid, total_bytes);
        let gpu = Wanted { tag: gpus::tag(uuid), row: None, most: most(total_bytes) };
        let by_hand = area.header.by_hand.load(Relaxed) == 1;
        Share {
            limit: self.scope.limits().effective(gpu.tag, total_bytes, own.limit, by_hand),
            used: own.used.saturating_add(self.scope.reserved(gpu, Which::Living)),
        }
    }
}

/// The limit that holds for the processes that count in this ledger.
fn effective(area: &LedgerArea, cell: &LedgerGpu, scope: &Scope) -> u64 {
    let (tag, total) = (cell.tag.load(Acquire), cell.total_bytes.load(Relaxed));
    let by_hand = area.header.by_hand.load(Relaxed) == 1;
    scope.limits().effective(tag, total, cell.limit.load(Relaxed), by_hand)
}

/// The largest amount that one user can have reserved of a GPU of this size, bytes.
const fn most(total_bytes: u64) -> u64 {
    if total_bytes == 0 { words::LARGEST } else { total_bytes }
}

#[cfg(all(test, not(loom)))]
mod tests;
