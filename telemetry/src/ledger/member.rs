//! A process's membership in a ledger.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::home::Home;
use super::layout::{LedgerArea, LedgerGpu};
use super::row::{LedgerRow, Refused};
use super::words::{self, Words};
use super::{contended, gpus, sweep};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Relaxed};
use std::ptr::NonNull;

/// A process's membership.
///
/// Plain data without a destructor, used from any thread. It belongs to the process that joined; a forked
/// child joins anew.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    pub(super) area: NonNull<LedgerArea>,
    pub(super) home: Home,
    pub(super) member: u16,
    pub(super) generation: u32,
}

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    #[inline(always)]
    pub(super) fn area(&self) -> &LedgerArea {
        // SAFETY: mapped by `join` and never unmapped; atomics only.
        unsafe { self.area.as_ref() }
    }

    #[inline(always)]
    pub(super) fn cell(&self, row: LedgerRow) -> Option<&LedgerGpu> {
        self.area().gpus.get(usize::from(row.number()))
    }

    /// The words of a GPU and the member's own.
    #[inline(always)]
    pub(super) fn words(&self, row: LedgerRow) -> Option<(Words<'_>, &AtomicU64)> {
        let words = self.area().words(usize::from(row.number()))?;
        let own = words.words.get(usize::from(self.member))?;
        Some((words, own))
    }

    /// The row of a GPU, entered where it was not known. `None`: the ledger is full. Cold.
    pub fn gpu(&self, uuid: &[u8; 16], total_bytes: u64) -> Option<LedgerRow> {
        gpus::enter(self.area(), uuid, total_bytes).and_then(LedgerRow::from_number)
    }

    /// Reserves `bytes`, all or nothing.
    ///
    /// # Errors
    ///
    /// [`Refused`] if they do not fit under the limit that holds now.
    #[inline]
    pub fn reserve(&self, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
        let (Some(cell), Some((words, own))) = (self.cell(row), self.words(row)) else {
            return Err(Refused { limit: 0, used: 0 });
        };
        let limit = cell.limit.load(Relaxed);
        if limit == u64::MAX {
            words::add(own, bytes);
            return Ok(());
        }
        if words.reserve(own, bytes, limit).is_ok() {
            return Ok(());
        }
        contended::reserve(self, row, bytes)
    }

    /// Counts bytes that the process has got whatever the limit says.
    #[inline]
    pub fn add(&self, row: LedgerRow, bytes: u64) {
        if let Some((_, own)) = self.words(row) {
            words::add(own, bytes);
        }
    }

    /// Gives bytes back, at most what the process has reserved.
    #[inline]
    pub fn release(&self, row: LedgerRow, bytes: u64) {
        if let Some((_, own)) = self.words(row) {
            words::release(own, bytes);
        }
    }

    /// The limit on a GPU, bytes; `u64::MAX` where there is none.
    pub fn limit(&self, row: LedgerRow) -> u64 {
        self.cell(row).map_or(u64::MAX, |cell| cell.limit.load(Relaxed))
    }

    /// Bytes that all members have reserved together. Dead ones may be among them, see [`Ledger::sweep`].
    pub fn used(&self, row: LedgerRow) -> u64 {
        self.words(row).map_or(0, |(words, _)| words.sum())
    }

    /// Gives back what dead members had reserved of a GPU. Cold: asks the system for every member
    /// that holds something.
    pub fn sweep(&self, row: LedgerRow) {
        crate::sys::keep_errno(|| sweep::sweep(self.area(), self.home, row, Some(self.member)));
    }

    /// Counts a refused request.
    pub fn count_refusal(&self, row: LedgerRow) {
        if let Some(cell) = self.cell(row) {
            cell.refused.fetch_add(1, Relaxed);
        }
    }

    /// The process has made its first context on a GPU: it is charged what the driver needed before, until
    /// its present need was measured. Whatever the limit says: the driver has taken it.
    pub fn context_came(&self, row: LedgerRow) {
        let (area, number) = (self.area(), usize::from(row.number()));
        let (Some(cell), Some(said)) = (self.cell(row), area.overhead.get(number)) else { return };
        let empty = words::empty(self.generation);
        if let Some(said) = said.get(usize::from(self.member)) {
            // A measurement that came first is better.
            let estimate = empty | words::bytes_of(area.context_of(cell).min(words::LARGEST));
            let _ = said.compare_exchange(empty, estimate, AcqRel, Relaxed);
        }
        gpus::settle_overhead(area, number, usize::from(self.member), self.generation);
    }
}
