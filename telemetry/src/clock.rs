//! The cheap clock: the time stamp counter, anchored on `CLOCK_MONOTONIC` at least once a millisecond.
//!
//! `clock_gettime` costs twice what reading the counter costs. Between anchors the time is
//! extrapolated; as an anchor holds for one millisecond only, an error of the measured rate of 100 parts
//! per million makes 100 ns. A counter that jumps (a moved virtual machine, a suspended one) is noticed
//! because it leaves the window.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::layout::ClockCell;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::fence;
use crate::sys;

/// Time for which an anchor holds, ns.
const WINDOW_NS: u64 = 1_000_000;
/// Shortest stretch that a rate is measured over: reading both clocks jitters by tens of ns.
const CALIBRATION_NS: u64 = 1_000_000;
/// Longest stretch: the fixed-point quotient must fit, and old drift should be forgotten.
const CALIBRATION_MAX_NS: u64 = 4_000_000_000;

impl ClockCell {
    /// Time in ns of `CLOCK_MONOTONIC` less `origin`.
    ///
    /// `steady` says whether the counter can be trusted at all. Times of two threads may differ by
    /// some hundred ns.
    #[inline]
    pub fn now(&self, origin: u64, steady: bool) -> u64 {
        let seq = self.seq.load(Acquire); // pairs with the Release in `anchor`
        let window = self.window.load(Relaxed);
        let tsc = self.tsc.load(Relaxed);
        let ns = self.ns.load(Relaxed);
        let mult = self.mult.load(Relaxed);
        fence(Acquire); // pairs with the Release fence in `anchor`
        let same = self.seq.load(Relaxed) == seq;
        let passed = sys::ticks().wrapping_sub(tsc);
        if same && seq & 1 == 0 && passed < window {
            return ns.wrapping_add(passed.wrapping_mul(mult) >> 32);
        }
        self.anchor(origin, steady)
    }

    /// Reads the system's clock and, if no other thread is doing so, sets a new anchor.
    #[cold]
    #[inline(never)]
    fn anchor(&self, origin: u64, steady: bool) -> u64 {
        let ns = sys::monotonic_ns().saturating_sub(origin);
        if !steady {
            return ns;
        }
        let tsc = sys::ticks();
        let seq = self.seq.load(Relaxed);
        if seq & 1 == 1 || self.seq.compare_exchange(seq, seq + 1, AcqRel, Relaxed).is_err() {
            return ns;
        }
        fence(Release); // readers that see any store below see the odd number above
        let base_ns = self.base_ns.load(Relaxed);
        let base_tsc = self.base_tsc.load(Relaxed);
        let stretch_ns = ns.wrapping_sub(base_ns);
        let stretch = tsc.wrapping_sub(base_tsc);
        if base_tsc == 0 || stretch_ns > CALIBRATION_MAX_NS || stretch > u64::MAX / 2 {
            // The last rate stays good for the next window.
            self.base_ns.store(ns, Relaxed);
            self.base_tsc.store(tsc, Relaxed);
        } else if stretch_ns >= CALIBRATION_NS && stretch > 0 {
            let mult = (stretch_ns << 32).checked_div(stretch).unwrap_or(0);
            self.mult.store(mult, Relaxed);
            self.window.store((WINDOW_NS << 32).checked_div(mult).unwrap_or(0), Relaxed);
        }
        self.tsc.store(tsc, Relaxed);
        self.ns.store(ns, Relaxed);
        self.seq.store(seq + 2, Release); // pairs with the Acquire in `now`
        ns
    }
}
