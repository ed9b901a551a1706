//! Share of a device's time that the jobs beside one with a target get.
//!
//! A job with a target is latency-sensitive; the jobs beside it that have none are its *fillers*: they get what it
//! leaves. How much that is follows from what is observed, by additive increase and multiplicative decrease:
//!
//! ```text
//! pressure = observed latency / limit          (of a lowest speed: lowest / observed)
//! fill'    = fill * clamp(GUARD / pressure, 1/2, 9/10)   if pressure > 1
//!          = fill                                        if pressure > GUARD
//!          = fill + step                                 else
//! ```
//!
//! `fill` is the sum of the fillers' shares of the time in which they may launch. Between [`GUARD`] and 1 nothing changes,
//! and after a window beyond it nothing is given for [`SETTLE`] windows: the worst of the last windows is what is
//! brought below the limit, not the last one, and the law does not swing around it. A window that misses by a factor of
//! two or more halves it: from all of a device for one filler to a twentieth it takes five windows at most.
//!
//! Where the job's requests are seen to begin and end and take at most [`BETWEEN`] of the time, its fillers launch between
//! them ([`crate::hold`]). A request then meets only the launches that are in flight when it begins, and a filler's share
//! `s` is how many these may be: `s * in_flight`, at any time between requests. Less than one is none, so below that `s` is
//! a share of the time again. Requests that take more of the time leave too little between them: their fillers get slots.

use crate::job::JobId;
use crate::units::Permille;

/// The part of its limit up to which a job leaves its fillers more, thousandths.
pub const GUARD: u32 = 900;
/// The same for fillers that launch between requests: a few launches in flight keep the GPU busy there, so more of them
/// would bring little and cost the margin that noise needs.
pub const GUARD_BETWEEN: u32 = 800;
/// Initial share of all fillers together, thousandths of the time.
pub const START: Permille = Permille(200);
/// Windows in a row below the guard before fillers get more again after one beyond it.
pub const SETTLE: u8 = 8;
/// The part of the time with a request under way up to which fillers launch between requests.
pub const BETWEEN: Permille = Permille(500);

/// The fillers' part after a window, thousandths of the time, from the one before.
#[must_use]
pub fn next_fill(fill: Permille, pressure: u32, step: Permille, least: Permille, most: Permille) -> Permille {
    let next = match pressure {
        0..=GUARD => fill.0.saturating_add(step.0.max(1)),
        kept if kept <= 1000 => fill.0,
        missed => {
            let factor = (u64::from(GUARD) * 1000 / u64::from(missed)).clamp(500, 900);
            u32::try_from(u64::from(fill.0) * factor / 1000).unwrap_or(u32::MAX)
        }
    };
    Permille(next.clamp(least.0.min(most.0), most.0))
}

/// Launch share of a job's fillers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The sum of their shares, thousandths.
    pub part: Permille,
    /// They launch between the job's requests.
    pub between: bool,
    /// Windows below the guard that are still to come before they get more.
    settle: u8,
}

/// The bounds of [`Fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillBounds {
    /// Number of fillers.
    pub fillers: u32,
    /// Increase of their share after a window that leaves room.
    pub step: Permille,
    /// Lowest share of all fillers together.
    pub least: Permille,
}

impl Fill {
    /// Returns their share after a window, from their share in it; `before` is `None` after the first.
    #[must_use]
    pub fn next(
        before: Option<Self>,
        pressure: u32,
        under_way: Option<Permille>,
        bounds: FillBounds,
    ) -> Self {
        let before = before.unwrap_or(Self { part: START, between: false, settle: 0 });
        let most = Permille(bounds.fillers.saturating_mul(1000));
        let guard = if before.between { GUARD_BETWEEN } else { GUARD };
        let settle = if pressure > guard { SETTLE } else { before.settle.saturating_sub(1) };
        let mut part = next_fill(before.part, pressure, bounds.step, bounds.least, most);
        if settle > 0 {
            part = part.min(before.part.min(most));
        }
        let between = under_way.is_some_and(|part| part <= BETWEEN)
            && match (before.between, part < most) {
                (_, true) => true,
                // With no requests in the window, nothing was learned.
                (true, _) if pressure == 0 => true,
                // Without any hold a request gets its part of the GPU's time at least.
                (true, _) => pressure.saturating_mul(bounds.fillers.saturating_add(1)) > GUARD,
                (false, _) => pressure > GUARD,
            };
        if before.between && !between && part < most {
            // What was a number of launches is a share of the time from here on.
            part = part.min(START);
        }
        Self { part, between, settle }
    }

    /// The share of the time of one of `fillers`, and its launches in flight of at most `in_flight`.
    #[must_use]
    pub fn each(self, fillers: u32, in_flight: u16) -> (Permille, u16) {
        let share = Permille((self.part.0 / fillers.max(1)).min(1000));
        if !self.between {
            return (share, in_flight);
        }
        let launches = u32::from(in_flight) * share.0 / 1000;
        match u16::try_from(launches) {
            Ok(0) => (share, in_flight.min(1)),
            launches => (Permille::WHOLE, launches.unwrap_or(in_flight)),
        }
    }
}

/// The jobs' shares by max-min fairness: the fastest gets less while it is ahead of the slowest by more than the band,
/// all get more while they are close. `jobs`: speed against running alone, and share.
#[must_use]
pub fn max_min(
    jobs: &[(JobId, Permille, Permille)],
    step: Permille,
    least: Permille,
) -> Vec<(JobId, Permille)> {
    let Some(slowest) = jobs.iter().map(|job| job.1.0).min() else { return Vec::new() };
    let Some(fastest) = jobs.iter().max_by_key(|job| (job.1.0, job.2.0, job.0)) else { return Vec::new() };
    if fastest.1.0 > slowest.saturating_add(BAND) {
        // In proportion to how far ahead it is, by a tenth to a half.
        let factor = (u64::from(slowest) * 1000 / u64::from(fastest.1.0.max(1))).clamp(500, 900);
        let share = u32::try_from(u64::from(fastest.2.0) * factor / 1000).unwrap_or(fastest.2.0);
        return vec![(fastest.0, Permille(share.max(least.0).min(fastest.2.0)))];
    }
    jobs.iter().map(|(job, _, share)| (*job, share.plus(step).min(Permille::WHOLE))).collect()
}

/// Speeds that differ by less are equal, thousandths.
const BAND: u32 = 50;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: Permille = Permille(50);
    const MIN_SHARE: Permille = Permille(50);

    fn next(fill: Permille, pressure: u32, most: u32) -> Permille {
        next_fill(fill, pressure, STEP, MIN_SHARE, Permille(most))
    }

    #[test]
    fn fillers_give_way_within_five_windows() {
        let mut fill = Permille(1000);
        let windows = (1..).find(|_| {
            fill = next(fill, 2000, 1000);
            fill == MIN_SHARE
        });
        assert_eq!(windows, Some(5));
    }

    #[test]
    fn requests_are_waited_for_where_that_leaves_enough() {
        let bounds = FillBounds { fillers: 2, step: STEP, least: MIN_SHARE };
        let next = |part, between, pressure, under_way: Option<u32>| {
            let before = Fill { part: Permille(part), between, settle: 0 };
            Fill::next(Some(before), pressure, under_way.map(Permille), bounds)
        };
        assert!(!next(200, false, 700, None).between, "they are not seen");
        assert!(next(200, false, 700, Some(500)).between);
        assert!(!next(200, false, 700, Some(501)).between, "little is left between them");
        assert!(!next(2000, true, 300, Some(100)).between, "three at once keep it too");
        assert!(next(2000, true, 301, Some(100)).between);
        assert!(next(2000, true, 0, Some(0)).between, "there were none");
        assert!(!next(2000, false, 900, Some(100)).between);
        assert!(next(2000, false, 950, Some(100)).between);
        assert_eq!(next(1600, true, 700, Some(600)).part, START, "launches are not shares");
        let part = |part| Fill { part: Permille(part), between: true, settle: 0 }.each(2, 10);
        assert_eq!([2000, 1000, 250].map(part), [10, 5, 1].map(|most| (Permille(1000), most)));
        assert_eq!(part(150), (Permille(75), 1));
    }

    proptest! {
        #[test]
        fn a_miss_takes_and_ease_gives_within_the_bounds(
            fill in 50..4000u32, pressure in 0..10_000u32, most in 1000..4000u32,
        ) {
            let fill = Permille(fill.min(most));
            let after = next(fill, pressure, most);
            prop_assert!((MIN_SHARE.0..=most).contains(&after.0));
            match pressure {
                0..=GUARD => prop_assert!(after > fill || after.0 == most),
                kept if kept <= 1000 => prop_assert_eq!(after, fill),
                _ => prop_assert!(after < fill || after == MIN_SHARE),
            }
            prop_assert!(after.0 >= fill.0 / 2, "never more than half at once");
        }

        #[test]
        fn more_pressure_never_gives_more(fill in 50..2000u32, one in 0..5000u32, other in 0..5000u32) {
            let (low, high) = (one.min(other), one.max(other));
            prop_assert!(next(Permille(fill), high, 2000) <= next(Permille(fill), low, 2000));
        }

        /// A step takes `alone` of its limit alone and, as on a GPU whose time is sliced, the longer the more of it
        /// fillers have: `alone / (1 - fill / 2)`.
        #[test]
        fn it_settles_within_the_limit_and_near_the_most_that_keeps_it(alone in 300..850u32, start in 50..1000u32) {
            let latency = |fill: Permille| alone as f64 / (1.0 - fill.fraction() / 2.0);
            let mut fill = Permille(start);
            for _ in 0..60 {
                fill = next(fill, latency(fill).ceil() as u32, 1000);
            }
            let settled = fill;
            for _ in 0..20 {
                fill = next(fill, latency(fill).ceil() as u32, 1000);
                prop_assert!(latency(fill) <= 1000.0, "{} at {fill}", latency(fill));
            }
            // What keeps nine tenths of the limit, or all there is.
            let best = (2.0 * (1.0 - f64::from(alone) / f64::from(GUARD))).min(1.0);
            prop_assert!(settled.fraction() >= best - 0.001, "{settled} of {best}");
        }

        /// A request takes `alone` of its limit alone and `each` more for every launch that each filler may have in flight,
        /// and up to `noise` that follows from nothing. Windows are those of [`Fill`].
        #[test]
        fn between_requests_it_settles_within_the_limit_also_with_noise(
            alone in 200..700u32, each in 5..60u32, noise in prop::collection::vec(0..100u32, 200), fillers in 1..4u32,
        ) {
            let bounds = FillBounds { fillers, step: STEP, least: MIN_SHARE };
            let (mut fill, mut missed) = (None, 0);
            for (window, noise) in noise.into_iter().enumerate() {
                let launches = fill.map_or(10, |fill: Fill| match fill.each(fillers, 10) {
                    (share, _) if share < Permille::WHOLE => 0,
                    (_, in_flight) => u32::from(in_flight),
                });
                let pressure = alone + launches * fillers * each + noise;
                missed += usize::from(window >= 40 && pressure > 1000);
                fill = Some(Fill::next(fill, pressure, Some(Permille(300)), bounds));
            }
            prop_assert!(missed <= 16, "{missed} of 160");
        }

        #[test]
        fn after_a_window_near_the_limit_nothing_is_given_for_a_while(
            part in 100..900u32, near in GUARD + 1..3000, calm in 0..40usize,
        ) {
            let bounds = FillBounds { fillers: 1, step: STEP, least: MIN_SHARE };
            let before = Fill { part: Permille(part), between: false, settle: 0 };
            let after = Fill::next(Some(before), near, None, bounds);
            let mut fill = after;
            for _ in 0..calm {
                fill = Fill::next(Some(fill), 100, None, bounds);
            }
            prop_assert_eq!(fill.part > after.part, calm >= usize::from(SETTLE));
        }

        #[test]
        fn what_fillers_may_do_grows_with_their_part(one in 50..3000u32, other in 50..3000u32, fillers in 1..4u32) {
            let each = |part: u32| Fill { part: Permille(part), between: true, settle: 0 }.each(fillers, 10);
            prop_assert!(each(one.min(other)) <= each(one.max(other)));
            prop_assert!(each(one).1 >= 1 && each(one).0 > Permille(0));
        }

        #[test]
        fn max_min_brings_speeds_together(demands in prop::collection::vec(100..1000u32, 2..5)) {
            // A job's speed is its share of the time, as far as it has use for it.
            let mut shares: Vec<u32> = vec![1000; demands.len()];
            let speeds = |shares: &[u32]| -> Vec<u32> {
                let sum: u32 = shares.iter().sum::<u32>().max(1000);
                shares.iter().zip(&demands).map(|(share, demand)| (share * 1000 / sum * 1000 / demand).min(1000)).collect()
            };
            let least = |speeds: &[u32]| speeds.iter().copied().min().unwrap_or(0);
            let mut late = 0;
            for step in 0..400 {
                let now = speeds(&shares);
                // The one that was ahead is cut in some steps: a single one says little.
                late += if step < 200 { 0 } else { least(&now) };
                let jobs: Vec<_> = (0..shares.len())
                    .map(|at| (JobId(at as u64), Permille(now[at]), Permille(shares[at])))
                    .collect();
                for (job, share) in max_min(&jobs, Permille(10), MIN_SHARE) {
                    shares[job.0 as usize] = share.0;
                }
            }
            let (before, after) = (speeds(&vec![1000; demands.len()]), speeds(&shares));
            prop_assert!(late / 200 + 200 >= least(&before), "{before:?} {late}");
            prop_assert!(after.iter().max().unwrap() - least(&after) <= 250, "{after:?}");
        }
    }
}
