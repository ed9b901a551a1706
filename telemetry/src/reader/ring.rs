//! Reading a slot's rings: events, launches that were timed, ranges and marks.

use super::segment::{Segment, SlotInfo};
use crate::event::Event;
use crate::layout::{
    RANGE_CELLS, RANGE_RING_AT, RING_CELLS, SAMPLE_CELLS, SAMPLES_AT, SlotBase, SlotHead, slot_at,
};
use crate::ranges::{RangeRecord, Word};
use crate::ring::{CellSource, RingCursor, WORDS};
use crate::samples::LaunchSample;
use std::marker::PhantomData;
use std::mem::offset_of;

/// Record of a ring, and the place of that ring.
pub trait Record: Sized {
    /// Offset of the tickets in the slot.
    const HEAD_AT: u64;
    /// Offset of the first cell.
    const CELLS_AT: u64;
    /// Cells.
    const CELLS: u64;
    /// A record from its words; `None`: damaged.
    fn of(words: [u64; WORDS]) -> Option<Self>;
}

impl Record for Event {
    const HEAD_AT: u64 = offset_of!(SlotHead, ring_head) as u64;
    const CELLS_AT: u64 = offset_of!(SlotBase, ring) as u64;
    const CELLS: u64 = RING_CELLS as u64;

    fn of(words: [u64; WORDS]) -> Option<Self> {
        Event::unpack(words)
    }
}

impl Record for LaunchSample {
    const HEAD_AT: u64 = offset_of!(SlotHead, samples) as u64;
    const CELLS_AT: u64 = SAMPLES_AT;
    const CELLS: u64 = SAMPLE_CELLS as u64;

    fn of(words: [u64; WORDS]) -> Option<Self> {
        LaunchSample::unpack(words)
    }
}

impl Record for RangeRecord {
    const HEAD_AT: u64 = (offset_of!(SlotHead, ranges) + Word::RingHead as usize * 8) as u64;
    const CELLS_AT: u64 = RANGE_RING_AT;
    const CELLS: u64 = RANGE_CELLS as u64;

    fn of(words: [u64; WORDS]) -> Option<Self> {
        RangeRecord::unpack(words)
    }
}

/// Reads a slot's ranges and marks.
pub type RangeReader = RecordReader<RangeRecord>;

/// Reads a slot's events.
pub type RingReader = RecordReader<Event>;

/// Reads launches of a slot that were timed.
pub type SampleReader = RecordReader<LaunchSample>;

/// A place in the ring of one slot. Keep it, and poll from time to time.
#[derive(Clone, Debug)]
pub struct RecordReader<R> {
    slot: usize,
    generation: u32,
    cursor: RingCursor,
    damaged: u64,
    of: PhantomData<R>,
}

impl<R: Record> RecordReader<R> {
    /// Starts at the oldest record of a slot.
    pub fn new(slot: &SlotInfo) -> Self {
        Self {
            slot: slot.slot,
            generation: slot.generation,
            cursor: RingCursor::default(),
            damaged: 0,
            of: PhantomData,
        }
    }

    /// Slot and generation that it reads.
    pub fn slot(&self) -> (usize, u32) {
        (self.slot, self.generation)
    }

    /// Records that were made and were not delivered: overwritten, dropped, or damaged.
    pub fn lost(&self) -> u64 {
        self.cursor.lost() + self.damaged
    }

    /// New records in the order in which they were begun. `last` says that the process is gone, so that
    /// nothing is waited for. A slot that has gone on to another process, or that cannot be read, has none.
    pub fn poll(&mut self, segment: &Segment, last: bool) -> Vec<R> {
        let mut records = Vec::new();
        let at = slot_at(self.slot);
        // Mostly there is nothing new.
        if segment.word(at + R::HEAD_AT) == Some(self.cursor.next_ticket()) {
            return records;
        }
        let same = |segment: &Segment| {
            segment.slot(self.slot).is_some_and(|info| info.generation == self.generation)
        };
        if !same(segment) {
            return records;
        }
        let mut cursor = self.cursor;
        let mut damaged = 0;
        let mut source = FileCells { segment, head: at + R::HEAD_AT, cells: at + R::CELLS_AT };
        let polled = cursor.poll(&mut source, R::CELLS, last, |words| match R::of(words) {
            Some(record) => records.push(record),
            None => damaged += 1,
        });
        // A slot that changed hands meanwhile has mixed two processes.
        if polled.is_none() || !same(segment) {
            return Vec::new();
        }
        self.cursor = cursor;
        self.damaged += damaged;
        records
    }
}

/// Cells read from the file, each with a call of its own: the system call orders them.
struct FileCells<'a> {
    segment: &'a Segment,
    head: u64,
    cells: u64,
}

impl FileCells<'_> {
    fn cell(&self, cell: u64) -> u64 {
        self.cells + cell * 64
    }
}

impl CellSource for FileCells<'_> {
    fn head(&mut self) -> Option<u64> {
        self.segment.word(self.head)
    }

    fn seq(&mut self, cell: u64) -> Option<u64> {
        self.segment.word(self.cell(cell))
    }

    fn words(&mut self, cell: u64) -> Option<[u64; WORDS]> {
        let words = self.segment.words(self.cell(cell) + 8, 56).ok()?;
        Some(words.array(0))
    }

    fn barrier(&mut self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    }
}
