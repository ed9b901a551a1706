//! Quotas: what the processes of a job, of a user or of a group may reserve of each GPU together.
//!
//! A ledger is one structure with two uses. That of a job lies in its segment; those of users and groups are
//! files of their own, one for each user in each scope ([`scope`]). A process is a member of several of them and
//! a request must fit into all. Reserving is two steps on the member's own word ([`words`]), no lock, no
//! daemon; only a request that does not fit at once takes the slow path, which clears the words of dead
//! members and lets one contender at a time try again ([`contended`]).
//!
//! Writer side ([`Ledger`], [`SharedLedger`]): runs inside the watched program, so nothing here may panic. The
//! launcher's and the administrator's side is [`LedgerView`], [`ScopeDirectory`] and [`ScopeReport`].

mod amount;
mod contended;
mod file;
mod holders;
mod home;
mod join;
pub mod layout;
mod living;
mod peek;
pub mod scope;
mod stated;
mod sum;
mod view;
pub mod words;

use crate::layout::GPUS;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::{AtomicU64, store_load_barrier};
use home::Home;
use layout::{LedgerArea, LedgerGpu};
use living::Living;
use std::ptr::NonNull;
use words::Words;

pub use amount::{Amount, Limit};
pub use file::{Access, LedgerError};
pub(crate) use file::{fill, fill_with, set_context, set_limits};
pub use join::Place;
pub use peek::{LedgerPeek, Share};
pub use scope::{Repaired, ScopeDirectory, ScopeReport, SharedLedger, SharedPeek};
pub use stated::{state, stated};
pub use view::{GpuUse, LedgerView, MemberUse};

/// A request that a limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The limit, bytes.
    pub limit: u64,
    /// Bytes that the members had reserved.
    pub used: u64,
}

/// A GPU's row in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRow(u8);

impl LedgerRow {
    /// Its number, below [`GPUS`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The row with this number, for callers that keep numbers in words of their own.
    pub const fn from_number(number: usize) -> Option<Self> {
        if number < GPUS { Some(Self(number as u8)) } else { None }
    }
}

/// A process's membership.
///
/// Plain data without a destructor, used from any thread. It belongs to the process that joined; a forked
/// child joins anew.
#[derive(Clone, Copy, Debug)]
pub struct Ledger {
    area: NonNull<LedgerArea>,
    home: Home,
    member: u16,
    generation: u32,
}

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    #[inline(always)]
    fn area(&self) -> &LedgerArea {
        // SAFETY: mapped by `join` and never unmapped; atomics only.
        unsafe { self.area.as_ref() }
    }

    #[inline(always)]
    fn cell(&self, row: LedgerRow) -> Option<&LedgerGpu> {
        self.area().gpus.get(usize::from(row.0))
    }

    /// The words of a GPU and the member's own.
    #[inline(always)]
    fn words(&self, row: LedgerRow) -> Option<(Words<'_>, &AtomicU64)> {
        let words = self.area().words(usize::from(row.0))?;
        let own = words.words.get(usize::from(self.member))?;
        Some((words, own))
    }

    /// The row of a GPU, entered where it was not known. `None`: the ledger is full. Cold.
    pub fn gpu(&self, uuid: &[u8; 16], total_bytes: u64) -> Option<LedgerRow> {
        enter(self.area(), uuid, total_bytes).and_then(LedgerRow::from_number)
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
        crate::sys::keep_errno(|| sweep(self.area(), self.home, row, Some(self.member)));
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
        let (area, number) = (self.area(), usize::from(row.0));
        let (Some(cell), Some(said)) = (self.cell(row), area.overhead.get(number)) else { return };
        let empty = words::empty(self.generation);
        if let Some(said) = said.get(usize::from(self.member)) {
            // A measurement that came first is better.
            let estimate = empty | words::bytes_of(area.context_of(cell).min(words::LARGEST));
            let _ = said.compare_exchange(empty, estimate, AcqRel, Relaxed);
        }
        settle_overhead(area, number, usize::from(self.member), self.generation);
    }
}

/// Charges a member what the driver itself was last said to take for it.
fn settle_overhead(area: &LedgerArea, row: usize, member: usize, generation: u32) {
    fn word(rows: &[layout::Row; GPUS], row: usize, member: usize) -> Option<&AtomicU64> {
        rows.get(row)?.get(member)
    }
    if let (Some(said), Some(charged), Some(reserved)) = (
        word(&area.overhead, row, member),
        word(&area.charged, row, member),
        word(&area.reserved, row, member),
    ) {
        words::settle(said, charged, reserved, generation);
    }
}

/// The number of a GPU's row, entered where it was not known.
fn enter(area: &LedgerArea, uuid: &[u8; 16], total_bytes: u64) -> Option<usize> {
    let tag = tag(uuid);
    let (words, _) = uuid.as_chunks::<8>();
    for (number, cell) in area.gpus.iter().enumerate() {
        let seen = match cell.tag.compare_exchange(0, tag, AcqRel, Acquire) {
            Ok(_) => tag,
            Err(seen) => seen,
        };
        if seen != tag {
            continue;
        }
        // The process that set the tag may have died before it wrote the rest: all write the same.
        for (place, word) in cell.uuid.iter().zip(words) {
            place.store(u64::from_ne_bytes(*word), Relaxed);
        }
        if total_bytes != 0 {
            cell.total_bytes.store(total_bytes, Relaxed);
        }
        settle_limit(area, cell);
        return Some(number);
    }
    None
}

/// By which a GPU's row is known.
fn tag(uuid: &[u8; 16]) -> u64 {
    crate::kernels::hash(uuid, &crate::KernelAttributes::default())
}

/// Works out a GPU's limit in bytes. Repeated until the amount that it comes from has not changed meanwhile.
fn settle_limit(area: &LedgerArea, cell: &LedgerGpu) {
    loop {
        let amount = area.amount_of(cell);
        let total = cell.total_bytes.load(Relaxed);
        cell.limit.store(amount.bytes(total), Relaxed);
        store_load_barrier();
        if area.amount_of(cell) == amount && cell.total_bytes.load(Relaxed) == total {
            return;
        }
    }
}

/// Clears the words of dead members of a GPU. `own`: a member that is known to live.
fn sweep(area: &LedgerArea, home: Home, row: LedgerRow, own: Option<u16>) {
    let number = usize::from(row.0);
    let Some(words) = area.reserved.get(number) else { return };
    let living = Living::of(home);
    for ((index, member), word) in area.used_members().zip(words) {
        if words::bytes_of(word.load(Acquire)) == 0 || own == u16::try_from(index).ok() {
            continue;
        }
        let Some(generation) = living.dead(index, member) else { continue };
        let of_gpu = [&area.reserved, &area.overhead, &area.charged].map(|rows| rows.get(number));
        for word in of_gpu.into_iter().flatten().filter_map(|row| row.get(index)) {
            words::clear(word, generation);
        }
    }
}
