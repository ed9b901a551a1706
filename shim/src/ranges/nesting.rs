//! Nesting of a thread: its open ranges.

use core::cell::Cell;

/// The nesting of a thread.
#[derive(Default)]
pub(crate) struct Nesting {
    /// Join generation that `depth` and `lost` belong to.
    pub(super) generation: Cell<u64>,
    /// Open ranges that the segment has.
    pub(super) depth: Cell<u32>,
    /// Open ranges inside them that it has no room for.
    pub(super) lost: Cell<u32>,
    /// Open ranges from before the process joined, or from before it was forked.
    pub(super) before: Cell<u32>,
}

impl Nesting {
    pub(super) fn open(&self) -> u32 {
        self.before.get().saturating_add(self.depth.get()).saturating_add(self.lost.get())
    }

    /// Brings the nesting to the process's generation.
    pub(super) fn settle(&self, generation: u64) {
        if self.generation.get() != generation {
            self.before.set(self.open());
            self.depth.set(0);
            self.lost.set(0);
            self.generation.set(generation);
        }
    }
}
