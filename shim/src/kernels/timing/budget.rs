//! Host time that timing has cost, and that it may cost.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::environ;

/// Share of the running time that timing may take, in millionths: 0.5 %.
const SHARE: u64 = 5_000;
/// Time that may be spent before any was earned: some dozen timings, ns.
const ADVANCE_NS: u64 = 100_000;
/// The same for the first launches of each stratum, without which nothing is known of a kernel, ns.
const ADVANCE_FIRST_NS: u64 = 20_000_000;
/// Cost of a timing that is assumed until one was measured, ns.
const COST_NS: u64 = 4_000;
/// One piece of work is charged with at most so many times what pieces have cost on average, and this much, ns: a
/// thread that loses its processor meanwhile would have lost it anyway. Where all pieces are slow the average rises.
const OUTLIER: u64 = 8;
const OUTLIER_NS: u64 = 20_000;
/// Launches between two timings while the kernel's duration is not known.
const UNKNOWN: u64 = 32;
/// Largest average number of launches between two timings.
const MAX_GAP: u64 = 1 << 16;

/// All zeros before [`Budget::begin`].
pub(crate) struct Budget {
    share: AtomicU64,
    since: AtomicU64,
    spent: AtomicU64,
    /// Pieces of work that were paid for.
    pieces: AtomicU64,
    timings: AtomicU64,
}

impl Budget {
    /// Nothing spent.
    pub(super) const fn new() -> Self {
        Self {
            share: AtomicU64::new(0),
            since: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            timings: AtomicU64::new(0),
        }
    }

    /// Reads the share that the launcher asks for, in per cent.
    pub(super) fn begin(&self, now: u64) {
        let mut room = [0u8; 32];
        let asked = environ::value(b"RADRM_KERNELS_BUDGET", &mut room);
        let share = asked.and_then(|text| millionths(text.to_bytes())).unwrap_or(SHARE);
        self.share.store(share, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// Returns true if another timing fits.
    pub(crate) fn allows(&self, now: u64, is_first: bool) -> bool {
        let passed = now.saturating_sub(self.since.load(Ordering::Relaxed));
        // 10^12 ns times 10^6 fits in 64 bits only as 128.
        let earned = (u128::from(passed) * u128::from(self.share.load(Ordering::Relaxed)) / 1_000_000) as u64;
        let advance = if is_first { ADVANCE_FIRST_NS } else { ADVANCE_NS };
        self.spent.load(Ordering::Relaxed) < earned.saturating_add(advance)
    }

    /// Notes what was spent on a piece of work; gives what is charged for it.
    pub(super) fn spent(&self, ns: u64) -> u64 {
        let pieces = self.pieces.fetch_add(1, Ordering::Relaxed);
        let mean = self.spent.load(Ordering::Relaxed).checked_div(pieces).unwrap_or(0);
        let charged = ns.min(mean.saturating_mul(OUTLIER).saturating_add(OUTLIER_NS));
        self.spent.fetch_add(charged, Ordering::Relaxed);
        charged
    }

    /// Notes that a timing was made.
    pub(super) fn timing(&self) {
        self.timings.fetch_add(1, Ordering::Relaxed);
    }

    /// Mean cost of a timing, ns.
    fn cost(&self) -> u64 {
        let timings = self.timings.load(Ordering::Relaxed);
        // Once a few were made, so that the first, which make events, do not decide.
        if timings < 16 { COST_NS } else { self.spent.load(Ordering::Relaxed) / timings }
    }

    /// Launches between two timings of a kernel on average, so that timing costs the host the budget's
    /// share of the time that the kernel takes on the GPU.
    pub(crate) fn gap(&self, mean_ns: Option<f64>) -> u64 {
        let share = self.share.load(Ordering::Relaxed).max(1) as f64 / 1e6;
        match mean_ns {
            Some(mean) if mean > 0.0 => ((self.cost() as f64 / (share * mean)) as u64).clamp(1, MAX_GAP),
            _ => UNKNOWN,
        }
    }
}

/// A number of per cent such as `0.5` in millionths, at most all.
fn millionths(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |b| *b == b'.');
    let (whole, part) = (parts.next()?, parts.next().unwrap_or(b""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits = whole.iter().copied().chain(part.iter().copied().chain(core::iter::repeat(b'0')).take(4));
    let all = digits.map(|b| b.is_ascii_digit().then(|| u64::from(b - b'0')));
    let value = all.into_iter().try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(digit?));
    part.iter().all(u8::is_ascii_digit).then_some(value?.min(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cents_are_read() {
        for (text, expected) in [
            ("0.5", Some(5_000)),
            ("1", Some(10_000)),
            ("100", Some(1_000_000)),
            ("250", Some(1_000_000)),
            (".25", Some(2_500)),
            ("2.", Some(20_000)),
            ("0.12345", Some(1_234)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1e3", None),
            ("0.5x", None),
            ("0.12345x", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(millionths(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn long_kernels_are_timed_more_often_than_short_ones() {
        let budget = Budget::new();
        budget.share.store(SHARE, Ordering::Relaxed);
        assert_eq!(budget.gap(Some(2_000.0)), COST_NS * 200 / 2_000);
        assert_eq!(budget.gap(Some(1e9)), 1);
        assert_eq!(budget.gap(Some(0.001)), MAX_GAP);
        assert_eq!(budget.gap(None), UNKNOWN);
    }

    #[test]
    fn a_lost_processor_is_not_charged_and_slow_calls_are() {
        let budget = Budget::new();
        for n in 0..10_000 {
            budget.spent(if n % 100 == 99 { 10_000_000 } else { 2_000 });
        }
        // Of ten milliseconds some 36 us.
        let mean = budget.spent.load(Ordering::Relaxed) / 10_000;
        assert!((2_000..2_800).contains(&mean), "{mean}");
        let budget = Budget::new();
        for _ in 0..1_000 {
            budget.spent(5_000_000);
        }
        let spent = budget.spent.load(Ordering::Relaxed);
        assert!(spent > 4_900_000 * 1_000, "{spent}");
    }

    #[test]
    fn what_is_spent_stays_within_what_was_earned() {
        let budget = Budget::new();
        budget.share.store(SHARE, Ordering::Relaxed);
        let (mut now, mut spent) = (0, 0);
        for _ in 0..1_000_000 {
            now += 4_000;
            if budget.allows(now, false) {
                spent += budget.spent(3_000);
            }
        }
        assert!(spent <= now / 200 + ADVANCE_NS + 3_000, "{spent} of {now}");
        assert!(spent >= now / 200, "{spent} of {now}");
    }
}
