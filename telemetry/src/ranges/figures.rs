//! Figures of the ranges and marks of a name.

use super::names::raise;
use super::{NameId, Word};
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::fence;
use crate::writer::Writer;

/// Memory of one GPU in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) entry: u64,
    pub(super) exit: u64,
    /// Largest inside, as far as it is known.
    pub(super) peak: u64,
}

impl RangeNameCell {
    /// Counts a mark.
    pub(super) fn marked(&self, ns: u64) {
        self.marks.fetch_add(1, Relaxed);
        self.began(ns);
        raise(&self.end_ns, ns);
    }

    /// Counts a range.
    pub(super) fn ended(&self, start_ns: u64, end_ns: u64, has_peak: bool) {
        let took = end_ns.saturating_sub(start_ns);
        self.ranges.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(took, Relaxed);
        raise(&self.longest_ns, took);
        raise(&self.shortest_ns, u64::MAX - took);
        self.began(start_ns);
        raise(&self.end_ns, end_ns);
        if !has_peak {
            self.unmarked.fetch_add(1, Relaxed);
        }
    }

    fn began(&self, ns: u64) {
        raise(&self.first_ns, u64::MAX - ns);
        raise(&self.last_ns, ns);
    }
}

impl RangeGpuCell {
    fn ended(&self, memory: Memory) {
        let Memory { entry, exit, peak } = memory;
        let is_first = self.ranges.fetch_add(1, Relaxed) == 0;
        self.last_entry.store(entry, Relaxed);
        self.last_exit.store(exit, Relaxed);
        self.change.fetch_add(exit.wrapping_sub(entry), Relaxed);
        if !is_first && peak <= self.peak.load(Relaxed) {
            return;
        }
        let before = self.peak.fetch_max(peak, Relaxed);
        let seq = self.seq.load(Relaxed);
        // Another thread that is at it has a peak of its own, whose begin and end are kept then.
        if (before >= peak && !is_first)
            || seq & 1 == 1
            || self.seq.compare_exchange(seq, seq + 1, Acquire, Relaxed).is_err()
        {
            return;
        }
        fence(Release); // the reader that sees a store below sees the odd number
        // A larger peak may have come, with its begin and end, since this one was entered.
        if self.peak.load(Relaxed) == peak {
            self.entry_at_peak.store(entry, Relaxed);
            self.exit_at_peak.store(exit, Relaxed);
        }
        self.seq.store(seq + 2, Release);
    }
}

impl Writer {
    /// Adds the memory of a range to the figures of its name.
    pub(super) fn range_memory(&self, gpu: GpuIndex, name: NameId, memory: Memory) {
        if !self.has_part(Word::GpusReady, gpu.number(), RANGE_GPUS_AT, RANGE_GPU_BYTES) {
            return;
        }
        let at = u64::from(gpu.number()) * RANGE_GPU_BYTES + u64::from(name.number()) * 64;
        // SAFETY: allocated (just above), the number below RANGE_NAMES; atomics only.
        unsafe { self.at::<RangeGpuCell>(RANGE_GPUS_AT + at).as_ref() }.ended(memory);
    }
}
