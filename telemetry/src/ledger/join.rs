//! Becoming a member of a ledger.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::home::{Home, byte_of};
use super::layout::*;
use super::living::Living;
use super::member::Ledger;
use super::place::Place;
use super::words;
use crate::join::JoinError;
use crate::layout::SlotState;
use crate::lock::{LifeLock, Taken};
use crate::process;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;
use std::ffi::CStr;
use std::ptr::NonNull;

impl Ledger {
    /// Joins the ledger of the job whose segment lies at `path`. `None`: the job has no quota.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. `errno` is left alone, and no file stays open.
    pub fn join_segment(path: &CStr) -> Result<Option<Self>, JoinError> {
        sys::keep_errno(|| join(path, Place::Segment))
    }

    /// Joins a ledger in a file of its own.
    #[cfg(all(test, not(loom)))]
    pub(super) fn join_file(path: &CStr) -> Result<Self, JoinError> {
        sys::keep_errno(|| join(path, Place::File)).and_then(|found| found.ok_or(JoinError::Foreign))
    }
}

fn join(path: &CStr, place: Place) -> Result<Option<Ledger>, JoinError> {
    open(path, place)?.map(|(area, home)| enter(area, home)).transpose()
}

/// Becomes a member of a ledger that is mapped for good.
pub(super) fn enter(area: NonNull<LedgerArea>, home: Home) -> Result<Ledger, JoinError> {
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let shared = unsafe { area.as_ref() };
    let own = process::own().map_err(|e| JoinError::Identity(e.raw_os_error()))?;
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let namespace = sys::pid_namespace();
    end_earlier_self(shared, pid, own.start, namespace);
    let claimant = Claimant { pid, own, namespace, lock: LifeLock::open(home.path()).ok() };
    let (member, generation) = claimant.claim(shared, home).ok_or(JoinError::Full)?;
    Ok(Ledger { area, home, member, generation })
}

/// Maps a ledger of this version for good; `None`: the segment's job has no quota.
pub(super) fn open(path: &CStr, place: Place) -> Result<Option<(NonNull<LedgerArea>, Home)>, JoinError> {
    let area = match map_written(path, place)? {
        Some(area) => area,
        None if place == Place::Segment => return Ok(None),
        None => return Err(JoinError::Foreign),
    };
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let header = unsafe { &area.as_ref().header };
    if header.magic.load(Acquire) != LEDGER_MAGIC {
        return Err(JoinError::Foreign);
    }
    match header.version.load(Relaxed) {
        LEDGER_VERSION => {
            let home = Home::new(path, place).map_err(|e| JoinError::Map(e.raw_os_error()))?;
            Ok(Some((area, home)))
        }
        version => Err(JoinError::Version(version)),
    }
}

/// Maps a ledger; `None` where nothing was ever written.
fn map_written(path: &CStr, place: Place) -> Result<Option<NonNull<LedgerArea>>, JoinError> {
    let file = sys::open_rw(path).map_err(|e| JoinError::Open(e.raw_os_error()))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| JoinError::Open(e.raw_os_error()))?;
    // A page beyond the end of the file would be deadly to touch.
    if (stat.st_size as u64) < place.offset() + LEDGER_BYTES {
        return Err(JoinError::Foreign);
    }
    // So would one that is not allocated, on a full file system. Reading the file allocates nothing.
    let mut magic = [0; 8];
    sys::read_at(&file, place.offset(), &mut magic).map_err(|e| JoinError::Open(e.raw_os_error()))?;
    if magic == [0; 8] {
        return Ok(None);
    }
    let area = sys::map_shared(&file, place.offset(), LEDGER_BYTES as usize)
        .map_err(|e| JoinError::Map(e.raw_os_error()))?;
    Ok(Some(area.cast()))
}

/// A process that is about to become a member.
struct Claimant {
    pid: u32,
    own: process::Stat,
    namespace: u64,
    /// `None` where it cannot be had: the process counts without one.
    lock: Option<LifeLock>,
}

impl Claimant {
    /// Finds a place: one never used, or one of a dead process. Its lock is taken first, so that no process of
    /// another pid namespace takes it for abandoned.
    fn claim(self, area: &LedgerArea, home: Home) -> Option<(u16, u32)> {
        let living = Living::of(home);
        let (index, generation, is_locked) =
            area.members.iter().enumerate().find_map(|(index, member)| {
                let seen = SlotState(member.state.load(Acquire));
                if seen.state() != SlotState::FREE && living.dead(index, member).is_none() {
                    return None;
                }
                let at = byte_of(home.place(), index);
                let taken = self.lock.as_ref().map_or(Taken::Impossible, |lock| lock.take(at));
                if taken == Taken::Occupied {
                    return None;
                }
                let is_locked = taken == Taken::Held;
                let generation = self.take(area, index, member, seen, is_locked);
                if is_locked && generation.is_none() {
                    self.lock.as_ref().inspect(|lock| lock.give_back(at));
                }
                Some((index, generation?, is_locked))
            })?;
        if let Some(lock) = self.lock.filter(|_| is_locked) {
            lock.keep();
        }
        Some((u16::try_from(index).ok()?, generation))
    }

    /// Takes a place that was seen in this state. `None`: another process was faster.
    fn take(
        &self,
        area: &LedgerArea,
        index: usize,
        member: &LedgerMember,
        seen: SlotState,
        is_locked: bool,
    ) -> Option<u32> {
        // The generation of a word has 12 bits; 0 is that of words never used.
        let generation = ((seen.generation() + 1) & 0xfff).max(1);
        let claiming = SlotState::new(SlotState::CLAIMING, generation, self.pid);
        member.state.compare_exchange(seen.0, claiming.0, AcqRel, Relaxed).ok()?;
        member.start.store(self.own.start, Relaxed);
        member.stack.store(self.own.stack, Relaxed);
        member.namespace.store(self.namespace, Relaxed);
        member.lock.store(is_locked.into(), Relaxed);
        for word in area.rows().filter_map(|row| row.get(index)) {
            // The dead one's bytes go with its generation.
            words::begin(word, generation);
        }
        // Release, and before the first reservation: every sum contains the word.
        area.header.high.fetch_max(index as u64 + 1, AcqRel);
        member.state.store(SlotState::new(SlotState::LIVE, generation, self.pid).0, Release);
        Some(generation)
    }
}

/// Ends memberships of the program that this process was before `execve`, or before it lost its state.
fn end_earlier_self(area: &LedgerArea, pid: u32, start: u64, namespace: u64) {
    for (index, member) in area.used_members() {
        let state = SlotState(member.state.load(Acquire));
        if state.state() == SlotState::LIVE
            && state.pid() == pid
            && member.start.load(Relaxed) == start
            && member.namespace.load(Relaxed) == namespace
        {
            for word in area.rows().filter_map(|row| row.get(index)) {
                words::clear(word, state.generation());
            }
            let ended = SlotState::new(SlotState::ENDED, state.generation(), pid);
            let _ = member.state.compare_exchange(state.0, ended.0, AcqRel, Relaxed);
        }
    }
}
