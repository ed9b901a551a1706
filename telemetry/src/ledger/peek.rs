//! Reading a ledger from inside a watched program, without becoming a member: a program that only asks
//! how much memory there is takes no member's place.
//!
//! Runs inside the watched program, so nothing here may panic.

use super::home::Home;
use super::join;
use super::layout::*;
use super::living::Living;
use super::place::Place;
use super::row::LedgerRow;
use crate::join::JoinError;
use crate::layout::SlotState;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sys;
use std::ffi::CStr;
use std::ptr::NonNull;

/// A ledger to read. Plain data without a destructor, good in every thread and in forked children.
#[derive(Clone, Copy, Debug)]
pub struct LedgerPeek {
    area: NonNull<LedgerArea>,
    home: Home,
}

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for LedgerPeek {}
// SAFETY: as above.
unsafe impl Sync for LedgerPeek {}

/// A GPU's limit and how far it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The limit, bytes; `u64::MAX` where there is none.
    pub limit: u64,
    /// Bytes that living members have reserved together.
    pub used: u64,
}

impl LedgerPeek {
    /// The ledger of the job whose segment lies at `path`. `None`: the job has no quota.
    ///
    /// # Errors
    ///
    /// See [`JoinError`]. `errno` is left alone, and no file stays open.
    pub fn segment(path: &CStr) -> Result<Option<Self>, JoinError> {
        let found = sys::keep_errno(|| join::open(path, Place::Segment))?;
        Ok(found.map(|(area, home)| Self { area, home }))
    }

    /// A ledger in a file of its own.
    #[cfg(all(test, not(loom)))]
    fn file(path: &CStr) -> Result<Self, JoinError> {
        let found = join::open(path, Place::File)?;
        found.map(|(area, home)| Self { area, home }).ok_or(JoinError::Foreign)
    }

    fn area(&self) -> &LedgerArea {
        // SAFETY: mapped by `join::open` and never unmapped; atomics only.
        unsafe { self.area.as_ref() }
    }

    /// Limit and reserved bytes of a GPU. `total_bytes`: its memory, where no member has recorded it yet.
    ///
    /// Asks the system for every member that holds something, and gives back what dead ones held.
    pub fn gpu(&self, uuid: &[u8; 16], total_bytes: u64) -> Share {
        share(self.area(), self.home, uuid, total_bytes)
    }

    /// Returns true if a process of the caller's pid namespace is a living member.
    pub fn is_member(&self, pid: u32) -> bool {
        sys::keep_errno(|| {
            let living = Living::of(self.home);
            self.area().used_members().any(|(index, member)| {
                let state = SlotState(member.state.load(Acquire));
                state.pid() == pid
                    && state.state() == SlotState::LIVE
                    && living.is_here(member.namespace.load(Relaxed))
                    && living.dead(index, member).is_none()
            })
        })
    }
}

/// Limit of a ledger on a GPU, and the bytes that its living members have reserved.
pub(super) fn share(area: &LedgerArea, home: Home, uuid: &[u8; 16], total_bytes: u64) -> Share {
    let tag = super::gpus::tag(uuid);
    let known = area.gpus.iter().enumerate().find(|(_, cell)| cell.tag.load(Acquire) == tag);
    let Some((number, cell)) = known else {
        return Share { limit: area.general_amount().bytes(total_bytes), used: 0 };
    };
    let total = match cell.total_bytes.load(Relaxed) {
        0 => total_bytes,
        recorded => recorded,
    };
    if let Some(row) = LedgerRow::from_number(number) {
        sys::keep_errno(|| super::sweep::sweep(area, home, row, None));
    }
    let used = area.words(number).map_or(0, |words| words.sum());
    Share { limit: area.amount_of(cell).bytes(total), used }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::file::tests::scratch;
    use super::super::{Amount, Ledger, LedgerView, Limit};
    use super::*;

    const GPU: [u8; 16] = *b"a gpu of 16 byte";

    #[test]
    fn a_reader_sees_reservations_and_takes_no_place() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::Bytes(100) }]);
        let peek = LedgerPeek::file(file.path_c()).unwrap();
        assert_eq!(peek.gpu(&GPU, 1000), Share { limit: 100, used: 0 });
        assert!(!peek.is_member(std::process::id()));
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        ledger.reserve(ledger.gpu(&GPU, 1000).unwrap(), 30).unwrap();
        assert_eq!(peek.gpu(&GPU, 1000), Share { limit: 100, used: 30 });
        assert_eq!(peek.gpu(&[1; 16], 1000), Share { limit: 100, used: 0 }, "another GPU");
        assert!(peek.is_member(std::process::id()) && !peek.is_member(1));
        let view = LedgerView::open(file.path(), Place::File).unwrap();
        assert_eq!((view.members().len(), view.gpus().len()), (1, 1), "reading leaves nothing behind");
    }

    #[test]
    fn a_share_of_an_unseen_gpu_is_of_the_given_total() {
        let share = |gpu, share| Limit { gpu, amount: Amount::PerMyriad(share) };
        let file = scratch(&[share(None, 5_000), share(Some(GPU), 2_500)]);
        let peek = LedgerPeek::file(file.path_c()).unwrap();
        assert_eq!((peek.gpu(&[1; 16], 1000).limit, peek.gpu(&GPU, 1000).limit), (500, 250));
        // What a member has seen is what holds.
        Ledger::join_file(file.path_c()).unwrap().gpu(&GPU, 800).unwrap();
        assert_eq!(peek.gpu(&GPU, 1000).limit, 200);
    }

    #[test]
    fn a_pid_of_another_namespace_is_another_process() {
        let file = scratch(&[]);
        let _ledger = Ledger::join_file(file.path_c()).unwrap();
        let peek = LedgerPeek::file(file.path_c()).unwrap();
        assert!(peek.is_member(std::process::id()));
        for member in &peek.area().members {
            member.namespace.store(1, Relaxed);
        }
        assert!(!peek.is_member(std::process::id()));
    }

    #[test]
    fn a_member_that_has_ended_is_none_and_holds_nothing() {
        let file = scratch(&[]);
        let earlier = Ledger::join_file(file.path_c()).unwrap();
        earlier.reserve(earlier.gpu(&GPU, 1000).unwrap(), 30).unwrap();
        let peek = LedgerPeek::file(file.path_c()).unwrap();
        let members = peek.area().used_members().map(|(_, member)| member);
        for member in
            members.filter(|member| SlotState(member.state.load(Acquire)).state() == SlotState::LIVE)
        {
            // As if the pid had gone to another process.
            member.start.store(1, Relaxed);
        }
        assert!(!peek.is_member(std::process::id()));
        assert_eq!(peek.gpu(&GPU, 1000).used, 0);
    }
}
