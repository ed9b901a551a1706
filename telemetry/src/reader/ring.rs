//! Reading a slot's ring of events.

use super::segment::{Segment, SlotInfo};
use crate::event::Event;
use crate::layout::{RING_CELLS, SlotBase, SlotHead, slot_at};
use crate::ring::{CellSource, RingCursor, WORDS};
use std::mem::offset_of;

/// A place in the ring of one slot. Keep it, and poll from time to time.
#[derive(Clone, Debug)]
pub struct RingReader {
    slot: usize,
    generation: u32,
    cursor: RingCursor,
    damaged: u64,
}

impl RingReader {
    /// Starts at the oldest event of a slot.
    pub fn new(slot: &SlotInfo) -> Self {
        Self { slot: slot.slot, generation: slot.generation, cursor: RingCursor::default(), damaged: 0 }
    }

    /// Slot and generation that it reads.
    pub fn slot(&self) -> (usize, u32) {
        (self.slot, self.generation)
    }

    /// Events that happened and were not delivered: overwritten, dropped, or damaged.
    pub fn lost(&self) -> u64 {
        self.cursor.lost() + self.damaged
    }

    /// New events in the order in which they were begun. `last` says that the process is gone, so that
    /// nothing is waited for. A slot that has gone on to another process, or that cannot be read, has none.
    pub fn poll(&mut self, segment: &Segment, last: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let same = |segment: &Segment| {
            segment.slot(self.slot).is_some_and(|info| info.generation == self.generation)
        };
        if !same(segment) {
            return events;
        }
        let mut cursor = self.cursor;
        let mut damaged = 0;
        let mut source = FileCells { segment, at: slot_at(self.slot) };
        let polled = cursor.poll(&mut source, RING_CELLS as u64, last, |words| match Event::unpack(words) {
            Some(event) => events.push(event),
            None => damaged += 1,
        });
        // A slot that changed hands meanwhile has mixed two processes.
        if polled.is_none() || !same(segment) {
            return Vec::new();
        }
        self.cursor = cursor;
        self.damaged += damaged;
        events
    }
}

/// Cells read from the file, each with a call of its own: the system call orders them.
struct FileCells<'a> {
    segment: &'a Segment,
    at: u64,
}

impl FileCells<'_> {
    fn cell(cell: u64) -> u64 {
        offset_of!(SlotBase, ring) as u64 + cell * 64
    }
}

impl CellSource for FileCells<'_> {
    fn head(&mut self) -> Option<u64> {
        self.segment.word(self.at + offset_of!(SlotHead, ring_head) as u64)
    }

    fn seq(&mut self, cell: u64) -> Option<u64> {
        self.segment.word(self.at + Self::cell(cell))
    }

    fn words(&mut self, cell: u64) -> Option<[u64; WORDS]> {
        let words = self.segment.words(self.at + Self::cell(cell) + 8, 56).ok()?;
        Some(words.array(0))
    }

    fn barrier(&mut self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    }
}
