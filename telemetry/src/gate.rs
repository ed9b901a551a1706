//! Requests of one job and the launches of the jobs beside it that wait for them.
//!
//! Two words of a segment's header ([`GateWords`]). `ranges`, in the segment of the job that serves requests, lets a process of the
//! job wake the daemon when a range begins or ends. `until`, in the segments of the jobs beside it, is the time up to which
//! their launches wait. Only the daemon writes `until`, so how long a job waits for another one does not depend on what the
//! other job's programs write. The time is absolute and at most [`MAX_AHEAD_NS`] ahead: where the daemon dies, launches
//! wait no longer than that.
//!
//! ```text
//! request's process          radrmd                        processes of fillers
//! range begins, wakes ---->  reads the open ranges,
//!                            sets `until` = deadline --->  launches wait
//! range ends, wakes ------>  sets `until` = 0, wakes --->  launches go
//! ```

use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::fence;
use crate::sys;

/// A range that begins or ends wakes no thread, and costs one load.
pub const UNWATCHED: u64 = 0;
/// A daemon watches, and is awake.
pub const WATCHED: u64 = 1;
/// A daemon sleeps until a range begins or ends.
pub const ARMED: u64 = 2;

/// The farthest that a gate's time may lie ahead, ns: a time beyond is damage, and holds no launch.
pub const MAX_AHEAD_NS: u64 = 1_000_000_000;

/// For how long a launch at `now` waits for the gate, ns.
pub const fn left(gate: u64, now: u64) -> u64 {
    let left = gate.saturating_sub(now);
    if left > MAX_AHEAD_NS { 0 } else { left }
}

/// The words of a segment's header.
#[repr(C)]
#[derive(Debug)]
pub struct GateWords {
    /// `CLOCK_MONOTONIC` up to which launches under the budget wait, ns; 0 or a past time: they do not wait.
    pub until: AtomicU64,
    /// State of the daemon's watch on the job's ranges: [`UNWATCHED`], [`WATCHED`] or [`ARMED`]. It decides what a
    /// range does when it begins or ends.
    pub ranges: AtomicU64,
}

impl GateWords {
    /// A range began or ended: wakes the daemon if it sleeps for that.
    #[inline(always)]
    pub(crate) fn range_changed(&self) {
        if self.ranges.load(Relaxed) != UNWATCHED {
            self.wake_watcher();
        }
    }

    #[cold]
    fn wake_watcher(&self) {
        if take_watch(&self.ranges) {
            sys::wake(&self.ranges);
        }
    }
}

/// After a range was written: whether a daemon sleeps that is to be woken for it. Of several ranges one wakes it.
pub fn take_watch(ranges: &AtomicU64) -> bool {
    // The range is written before the word is taken: a daemon that arms the word after this sees the range.
    fence(SeqCst);
    ranges.compare_exchange(ARMED, WATCHED, AcqRel, Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_holds_until_its_time_and_never_longer_than_the_bound() {
        const NOW: u64 = 1 << 40;
        assert_eq!(left(0, NOW), 0);
        assert_eq!(left(NOW, NOW), 0);
        assert_eq!(left(NOW + 5, NOW), 5);
        assert_eq!(left(NOW + MAX_AHEAD_NS, NOW), MAX_AHEAD_NS);
        assert_eq!(left(NOW + MAX_AHEAD_NS + 1, NOW), 0);
        assert_eq!(left(u64::MAX, NOW), 0);
    }
}
