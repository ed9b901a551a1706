//! A ring of records: many producing threads, each of which may die at any instruction, one reader elsewhere.
//!
//! A producer draws a ticket; the ticket names cell and lap. It takes the cell by making its sequence odd,
//! writes the record, and makes the sequence even. No thread waits: a producer that finds its cell taken (by a
//! slower producer, or by one that died there) or already in a later lap drops its record and counts it.
//! So tickets drawn = records written + records dropped (+ records whose producer died), and the
//! reader knows exactly how many it did not get.
//!
//! Sequence of a cell: `2 * lap + 1` while ticket `lap * cells + i` is written, `2 * lap + 2` when it is.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::layout::Cell;

pub use crate::layout::WORDS;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence};

/// Producer's view of a ring.
#[derive(Clone, Copy)]
pub struct Ring<'a, const W: usize = WORDS> {
    head: &'a AtomicU64,
    dropped: &'a AtomicU64,
    cells: &'a [Cell<W>],
}

impl<'a, const W: usize> Ring<'a, W> {
    /// A ring over its words in memory.
    pub fn new(head: &'a AtomicU64, dropped: &'a AtomicU64, cells: &'a [Cell<W>]) -> Self {
        Self { head, dropped, cells }
    }

    /// Writes a record; false if it was dropped and counted.
    pub fn push(&self, words: [u64; W]) -> bool {
        let ticket = self.head.fetch_add(1, Relaxed);
        let cells = self.cells.len() as u64;
        let Some(at) = ticket.checked_rem(cells) else { return false };
        let Some(cell) = self.cells.get(at as usize) else { return false };
        let lap = ticket.checked_div(cells).unwrap_or(0);
        if write_cell(cell, lap, words) {
            return true;
        }
        self.dropped.fetch_add(1, Relaxed);
        false
    }
}

/// Writes a record into a cell as of `lap`; false if the cell is taken or further on.
pub fn write_cell<const W: usize>(cell: &Cell<W>, lap: u64, words: [u64; W]) -> bool {
    let odd = lap.wrapping_mul(2).wrapping_add(1);
    let seen = cell.seq.load(Relaxed);
    if seen & 1 == 1 || seen >= odd {
        return false;
    }
    // Acquire: pairs with the Release at the end of the writer before, so that its stores are not
    // ordered after ours.
    if cell.seq.compare_exchange(seen, odd, Acquire, Relaxed).is_err() {
        return false;
    }
    // Pairs with the reader's Acquire fence: a reader that sees one of the words sees the odd number too.
    fence(Release);
    for (place, word) in cell.words.iter().zip(words) {
        place.store(word, Relaxed);
    }
    // Pairs with the reader's Acquire load of the sequence.
    cell.seq.store(odd.wrapping_add(1), Release);
    true
}

/// Source of a reader's cells: memory, or a file that is read piece by piece.
pub trait CellSource<const W: usize = WORDS> {
    /// Tickets drawn so far.
    fn head(&mut self) -> Option<u64>;
    /// Sequence of a cell, at least as new as everything read before (Acquire).
    fn seq(&mut self, cell: u64) -> Option<u64>;
    /// Words of a cell, in any order.
    fn words(&mut self, cell: u64) -> Option<[u64; W]>;
    /// Everything read before is older than everything read after (Acquire fence).
    fn barrier(&mut self);
}

/// Outcome of fetching a ticket.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched<const W: usize = WORDS> {
    /// The record.
    Record([u64; W]),
    /// Not written yet: its producer is at work, dropped it, or died.
    Pending,
    /// Overwritten.
    Gone,
}

/// Reads the record of a ticket.
pub fn fetch<const W: usize>(source: &mut impl CellSource<W>, ticket: u64, cells: u64) -> Option<Fetched<W>> {
    let at = ticket.checked_rem(cells)?;
    let even = (ticket.checked_div(cells)?).wrapping_mul(2).wrapping_add(2);
    let before = source.seq(at)?;
    if before != even {
        return Some(if before > even { Fetched::Gone } else { Fetched::Pending });
    }
    let words = source.words(at)?;
    source.barrier();
    Some(if source.seq(at)? == even { Fetched::Record(words) } else { Fetched::Gone })
}

/// Reader's place in a ring.
///
/// After any number of polls `delivered + lost + pending = tickets drawn`, where at most one ticket is
/// pending: one that was found unfinished is given one more poll, then counted as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCursor {
    next: u64,
    waited: bool,
    lost: u64,
    delivered: u64,
}

impl RingCursor {
    /// Records that existed and were not delivered.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The ticket that is read next.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next
    }

    /// Records delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Delivers what is new. `last` says that no producer is left, so nothing is waited for.
    /// Returns `None` if the source failed or its head went backwards.
    pub fn poll<const W: usize>(
        &mut self,
        source: &mut impl CellSource<W>,
        cells: u64,
        last: bool,
        mut deliver: impl FnMut([u64; W]),
    ) -> Option<()> {
        let head = source.head()?;
        if head < self.next {
            return None;
        }
        // What has certainly been overwritten is skipped at once: a damaged head cannot keep us busy.
        let oldest = head.saturating_sub(cells);
        if oldest > self.next {
            self.lost = self.lost.saturating_add(oldest - self.next);
            self.next = oldest;
            self.waited = false;
        }
        while self.next < head {
            match fetch(source, self.next, cells)? {
                Fetched::Record(words) => {
                    self.delivered += 1;
                    deliver(words);
                }
                Fetched::Pending if !last && !self.waited => {
                    self.waited = true;
                    return Some(());
                }
                Fetched::Pending | Fetched::Gone => self.lost = self.lost.saturating_add(1),
            }
            self.next += 1;
            self.waited = false;
        }
        Some(())
    }
}
