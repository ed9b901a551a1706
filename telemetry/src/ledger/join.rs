//! Becoming a member of a ledger, and finding out whether a member is still there.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::*;
use super::{Ledger, words};
use crate::join::JoinError;
use crate::layout::{LEDGER_AT, SlotState};
use crate::process;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;
use std::ffi::CStr;
use std::ptr::NonNull;

/// Where a ledger lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a job's segment.
    Segment,
    /// In a file of its own.
    File,
}

impl Place {
    /// Offset in the file.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Segment => LEDGER_AT,
            Self::File => 0,
        }
    }
}

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
    open(path, place)?.map(enter).transpose()
}

/// Becomes a member of a ledger that is mapped for good.
pub(super) fn enter(area: NonNull<LedgerArea>) -> Result<Ledger, JoinError> {
    // SAFETY: mapped just now, with all its bytes in the file; atomics only.
    let shared = unsafe { area.as_ref() };
    let own = process::own().map_err(|e| JoinError::Identity(e.raw_os_error()))?;
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let namespace = sys::pid_namespace();
    end_earlier_self(shared, pid, own.start, namespace);
    let (member, generation) = claim(shared, pid, &own, namespace).ok_or(JoinError::Full)?;
    Ok(Ledger { area, member, generation })
}

/// Maps a ledger of this version for good; `None`: the segment's job has no quota.
pub(super) fn open(path: &CStr, place: Place) -> Result<Option<NonNull<LedgerArea>>, JoinError> {
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
        LEDGER_VERSION => Ok(Some(area)),
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

/// Finds a place: one never used, or one of a dead process.
fn claim(area: &LedgerArea, pid: u32, own: &process::Stat, namespace: u64) -> Option<(u16, u32)> {
    area.members.iter().enumerate().find_map(|(index, member)| {
        let seen = member.state.load(Acquire);
        let state = SlotState(seen);
        if state.state() != SlotState::FREE && dead(member, namespace).is_none() {
            return None;
        }
        // The generation of a word has 12 bits; 0 is that of words never used.
        let generation = (state.generation() + 1) & 0xfff;
        let generation = generation.max(1);
        let claiming = SlotState::new(SlotState::CLAIMING, generation, pid);
        member.state.compare_exchange(seen, claiming.0, AcqRel, Relaxed).ok()?;
        member.start.store(own.start, Relaxed);
        member.stack.store(own.stack, Relaxed);
        member.namespace.store(namespace, Relaxed);
        for word in area.rows().filter_map(|row| row.get(index)) {
            // The dead one's bytes go with its generation.
            words::begin(word, generation);
        }
        // Release, and before the first reservation: every sum contains the word.
        area.header.high.fetch_max(index as u64 + 1, AcqRel);
        member.state.store(SlotState::new(SlotState::LIVE, generation, pid).0, Release);
        Some((u16::try_from(index).ok()?, generation))
    })
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

/// The generation of a member that is dead; `None` for one that lives, as far as can be known, and for a
/// place that was never used. `namespace`: the caller's pid namespace.
pub(super) fn dead(member: &LedgerMember, namespace: u64) -> Option<u32> {
    let seen = member.state.load(Acquire);
    let state = SlotState(seen);
    let gone = match state.state() {
        SlotState::ENDED => true,
        // Its start time is not written yet.
        SlotState::CLAIMING => !sys::process_exists(state.pid()),
        SlotState::LIVE => {
            member.namespace.load(Relaxed) == namespace
                && !process::is_image_running(
                    state.pid(),
                    member.start.load(Relaxed),
                    member.stack.load(Relaxed),
                )
        }
        _ => false,
    };
    // The place may have been given to another one between the two reads.
    (gone && member.state.load(Acquire) == seen).then(|| state.generation())
}

/// The generation that a member is in.
pub(super) fn generation(member: &LedgerMember) -> u32 {
    SlotState(member.state.load(Acquire)).generation()
}
