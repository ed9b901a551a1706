//! Single launches, for whoever wants to see them over time: of those that were timed some go to the segment.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cx::Cx;
use crate::telemetry::LaunchSample;

/// In this time, ns, ...
const SPAN_NS: u64 = 100_000_000;
/// ... so many launches are put down: 160 a second. Threads that look at the same moment may add one each.
const PER_SPAN: u64 = 16;

/// How many were put down lately. All zeros is none.
pub(super) struct Samples {
    /// Number of the span that the count is of.
    span: AtomicU64,
    count: AtomicU64,
}

impl Samples {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { span: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    /// Whether one more fits into the span of a moment.
    fn fits(&self, now: u64) -> bool {
        let span = now.checked_div(SPAN_NS).unwrap_or(0);
        if self.span.swap(span, Ordering::Relaxed) != span {
            self.count.store(0, Ordering::Relaxed);
        }
        let count = self.count.load(Ordering::Relaxed);
        if count >= PER_SPAN {
            return false;
        }
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// Puts a launch down that is over, unless there were many lately. `sample` gets the time at which it was seen.
    pub(super) fn put(&self, cx: &Cx<'_>, sample: impl FnOnce(u64) -> LaunchSample) {
        let now = cx.writer().now();
        if self.fits(now) {
            // A ring that is full forgets its oldest.
            cx.writer().launch_sample(&sample(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_160_a_second_are_put_down_and_not_all_at_its_beginning() {
        let samples = Samples::new();
        let put: Vec<u64> = (0..1_000_000).map(|n| n * 1_000).filter(|now| samples.fits(*now)).collect();
        assert_eq!(put.len(), 160);
        for tenth in 0..10 {
            let within = |now: &&u64| **now / SPAN_NS == tenth;
            assert_eq!(put.iter().filter(within).count(), 16);
        }
        // After a rest there is room, whatever the span's number.
        assert!(samples.fits(u64::MAX));
    }
}
