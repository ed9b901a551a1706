//! Memory account of one process on one GPU.
//!
//! Exact under any number of threads: every figure is moved by one atomic read-modify-write, and the peak
//! is the maximum of the values that these returned. No figure can go below zero: a discharge takes from
//! its kind no more than is there, and the total is raised before and lowered after its kinds, so
//! that it always covers them.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::layout::{AccountCell, PeakCell};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::fence;
use radrm_base::Kind;

/// Rounds of writing the snapshot before leaving it to the next raise.
const SNAPSHOT_ROUNDS: u32 = 4;

impl AccountCell {
    /// Adds `bytes` to a kind; returns the device total if the kind is part of it.
    #[inline(always)]
    pub fn charge(&self, kind: Kind, bytes: u64, counted: bool, ns: u64) -> Option<u64> {
        let at = kind as usize;
        let (now, peak) = (self.now.get(at)?, self.peak.get(at)?);
        let total = kind.in_total().then(|| self.total_now.fetch_add(bytes, Relaxed).wrapping_add(bytes));
        // Release: a thread that takes these bytes away again (`discharge`) sees the total that covers them.
        let now = now.fetch_add(bytes, AcqRel).wrapping_add(bytes);
        if counted && let Some(counts) = self.counts.get(at) {
            counts.allocs.fetch_add(1, Relaxed);
        }
        if now > peak.load(Relaxed) {
            peak.fetch_max(now, Relaxed);
        }
        if let Some(total) = total
            && total > self.total_peak.load(Relaxed)
        {
            self.raise(total, ns);
        }
        total
    }

    /// Takes `bytes` from a kind, at most what is there; returns how many it took.
    #[inline(always)]
    pub fn discharge(&self, kind: Kind, bytes: u64, counted: bool) -> u64 {
        let at = kind as usize;
        let Some(of_kind) = self.now.get(at) else { return 0 };
        let mut now = of_kind.load(Relaxed);
        let taken = loop {
            let taken = now.min(bytes);
            // Acquire: pairs with the Release half in `charge`.
            match of_kind.compare_exchange_weak(now, now - taken, AcqRel, Relaxed) {
                Ok(_) => break taken,
                Err(seen) => now = seen,
            }
        };
        if counted && let Some(counts) = self.counts.get(at) {
            counts.frees.fetch_add(1, Relaxed);
        }
        if kind.in_total() {
            // Release: a range that ends and sees it sees the watermarks that the allocation has raised.
            self.total_now.fetch_sub(taken, Release);
        }
        taken
    }

    /// Raises the peak and writes down what it is made of.
    #[inline(never)]
    fn raise(&self, total: u64, ns: u64) {
        if self.total_peak.fetch_max(total, AcqRel) >= total {
            return;
        }
        let mut total = total;
        for _ in 0..SNAPSHOT_ROUNDS {
            if !self.snapshot(total, ns) {
                return; // another thread is writing; it checks the peak once more when it is done
            }
            // A read-modify-write, so that it comes before or after every raise: a raise before it is seen
            // here, and a raise after it sees the snapshot free.
            let peak = self.total_peak.fetch_max(total, AcqRel);
            if peak <= total {
                return;
            }
            total = peak;
        }
    }

    /// Writes the snapshot unless another thread is doing so.
    fn snapshot(&self, total: u64, ns: u64) -> bool {
        let PeakCell { seq, total: total_at, ns: ns_at, kinds, .. } = &self.at_peak;
        let before = seq.load(Relaxed);
        if before & 1 == 1 || seq.compare_exchange(before, before + 1, Acquire, Relaxed).is_err() {
            return false;
        }
        fence(Release); // the reader that sees a store below sees the odd number
        if total_at.load(Relaxed) <= total {
            total_at.store(total, Relaxed);
            ns_at.store(ns, Relaxed);
            for (place, now) in kinds.iter().zip(&self.now) {
                place.store(now.load(Acquire), Relaxed);
            }
        }
        // Release: pairs with the Acquire of the exchange above in the next thread, and with the reader.
        seq.store(before + 2, Release);
        true
    }
}
