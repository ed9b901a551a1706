//! A cell of a ring.

use crate::sync::AtomicU64;

/// Words of a record in a segment.
pub const WORDS: usize = 7;

/// One cell of a ring: a sequence word and the words of a record. In a segment a cell is a cache line.
#[repr(C)]
#[derive(Debug)]
pub struct Cell<const W: usize = WORDS> {
    /// Even: `2 * laps written`; odd: being written.
    pub seq: AtomicU64,
    /// The record.
    pub words: [AtomicU64; W],
}
