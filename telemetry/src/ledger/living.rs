//! Liveness of a member of a ledger.
//!
//! In the caller's pid namespace, the member's pid, start time and stack decide. In another one the pid means nothing
//! here, nor does it where `/proc` shows another namespace's processes: there the member's lock decides
//! ([`crate::lock`]), and a member without a lock counts as living.
//!
//! Runs inside the watched program, so nothing here may panic.

use super::home::{Home, byte_of};
use super::layout::*;
use super::place::Place;
use super::words;
use crate::layout::SlotState;
use crate::pids::PidView;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sys;
use crate::{lock, process};
use rustix::fd::OwnedFd;
use std::cell::OnceCell;
use std::ffi::CStr;

/// Asks the system for the members of one ledger. What that takes is found out when it is first needed: the caller's
/// pid namespace, the ledger's file.
#[derive(Debug)]
pub(super) struct Living<'p> {
    path: &'p CStr,
    place: Place,
    pids: OnceCell<PidView>,
    file: OnceCell<Option<OwnedFd>>,
}

/// A member's record, copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub state: SlotState,
    pub start: u64,
    pub stack: u64,
    pub namespace: u64,
    pub is_locked: bool,
}

impl Record {
    /// Words of a [`LedgerMember`] in their order.
    pub const fn from_words(words: [u64; size_of::<LedgerMember>() / 8]) -> Self {
        let [state, start, stack, namespace, lock] = words;
        Self { state: SlotState(state), start, stack, namespace, is_locked: lock == 1 }
    }

    pub fn read(member: &LedgerMember) -> Self {
        let state = SlotState(member.state.load(Acquire));
        Self {
            state,
            start: member.start.load(Relaxed),
            stack: member.stack.load(Relaxed),
            namespace: member.namespace.load(Relaxed),
            is_locked: member.lock.load(Relaxed) == 1,
        }
    }
}

impl Living<'static> {
    /// For the ledger in this file.
    pub const fn of(home: Home) -> Self {
        Self::at(home.path(), home.place())
    }
}

impl<'p> Living<'p> {
    /// For the ledger at this path.
    pub const fn at(path: &'p CStr, place: Place) -> Self {
        Self { path, place, pids: OnceCell::new(), file: OnceCell::new() }
    }

    fn pids(&self) -> &PidView {
        self.pids.get_or_init(PidView::now)
    }

    /// Returns true if a member's pid namespace is the caller's.
    pub fn is_here(&self, namespace: u64) -> bool {
        self.pids().is_here(namespace)
    }

    /// Returns true if the lock of a place is held; `None` where that cannot be known.
    fn is_held(&self, index: usize) -> Option<bool> {
        let file = self.file.get_or_init(|| sys::open_ro_here(self.path).ok()).as_ref()?;
        lock::is_held(file, byte_of(self.place, index)).ok()
    }

    /// Returns true if a member that is there lives, as far as can be known. `by_pid`: liveness by its pid, queried in
    /// the caller's pid namespace only.
    pub fn lives(&self, index: usize, member: &Record, by_pid: impl FnOnce() -> bool) -> bool {
        if self.pids().sees(member.namespace) {
            return by_pid();
        }
        !member.is_locked || self.is_held(index) != Some(false)
    }

    /// The same of a process of a user, in this user's ledger.
    pub fn lives_as(&self, uid: u32, index: usize, member: &Record) -> bool {
        let by_pid = || process::lives_as(uid, member.state.pid(), member.start, member.stack);
        self.lives(index, member, by_pid)
    }

    /// The generation of a member that is dead; `None` for one that lives, as far as can be known, and for a place
    /// that was never used.
    pub fn dead(&self, index: usize, member: &LedgerMember) -> Option<u32> {
        let seen = Record::read(member);
        let state = seen.state;
        let gone = match state.state() {
            SlotState::ENDED => true,
            // The rest of its record is not written yet. A lock is taken before the place is.
            SlotState::CLAIMING => self.is_held(index) != Some(true) && !sys::process_exists(state.pid()),
            SlotState::LIVE => {
                !self.lives(index, &seen, || process::is_image_running(state.pid(), seen.start, seen.stack))
            }
            _ => false,
        };
        // The place may have been given to another one between the two reads.
        (gone && member.state.load(Acquire) == state.0).then(|| state.generation())
    }
}

/// The generation that a member is in.
pub(super) fn generation(member: &LedgerMember) -> u32 {
    SlotState(member.state.load(Acquire)).generation()
}

/// Returns true if a word is that of the present member of its place, and this member can hold something.
pub(super) fn is_its(word: u64, state: SlotState) -> bool {
    state.state() == SlotState::LIVE && words::is_of(word, state.generation())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::file::tests::scratch;
    use super::super::{Amount, Ledger, LedgerView, Limit};
    use super::*;
    use crate::lock::{LifeLock, Taken};

    const GPU: [u8; 16] = *b"a gpu of 16 byte";
    /// A pid namespace that this process is not in.
    const ELSEWHERE: u64 = 1;

    #[test]
    fn a_member_elsewhere_lives_as_long_as_its_lock_is_held() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::Bytes(100) }]);
        let view = LedgerView::open(file.path(), Place::File).unwrap();
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&GPU, 1000).unwrap();
        ledger.reserve(row, 80).unwrap();
        // As if it were one of a container whose pids mean other processes here, or none.
        let home = ledger.home;
        let member = &ledger.area().members[0];
        member.namespace.store(ELSEWHERE, Relaxed);
        member.start.store(1, Relaxed);
        assert!(ledger.is_locked());
        assert_eq!((view.members().len(), view.gpus()[0].used), (1, 80));
        // The next place's lock is free: nothing holds it.
        let other = &ledger.area().members[1];
        for (to, from) in [
            (&other.start, &member.start),
            (&other.namespace, &member.namespace),
            (&other.lock, &member.lock),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        ledger.area().reserved[0][1].store(words::empty(1) | 20, Relaxed);
        other.state.store(SlotState::new(SlotState::LIVE, 1, 2).0, Relaxed);
        ledger.area().header.high.store(2, Relaxed);
        assert_eq!(view.members().len(), 1);
        assert_eq!(view.gpus()[0].used, 80, "a killed container's share is back");
        let lock = LifeLock::open(home.path()).unwrap();
        assert_eq!(lock.take(byte_of(home.place(), 1)), Taken::Held);
        assert_eq!(view.members().len(), 2);
        // One that could take no lock counts: it may live.
        drop(lock);
        other.lock.store(0, Relaxed);
        assert_eq!(view.members().len(), 2);
    }

    #[test]
    fn a_place_that_a_process_elsewhere_is_claiming_is_not_taken_from_it() {
        let file = scratch(&[]);
        let first = Ledger::join_file(file.path_c()).unwrap();
        let member = &first.area().members[0];
        // No process has this pid here; the lock is this process's own.
        member.state.store(SlotState::new(SlotState::CLAIMING, 1, i32::MAX as u32).0, Relaxed);
        let living = Living::of(first.home);
        assert_eq!(living.dead(0, member), None);
        let second = Ledger::join_file(file.path_c()).unwrap();
        assert_eq!(second.member, 1);
        let third = &first.area().members[2];
        third.state.store(SlotState::new(SlotState::CLAIMING, 5, i32::MAX as u32).0, Relaxed);
        assert_eq!(living.dead(2, third), Some(5), "no process claims it any more");
    }
}
