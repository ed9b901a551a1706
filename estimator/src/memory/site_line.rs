//! A line from a dry run's figure to the peak at a site that nothing was learned from, taught by the jobs that end there.
//!
//! Two things make such a bound wide for nothing: small jobs, of which a site's constant is most, and programs unlike the
//! others, whose factor differs. So a job's error counts in units of what the line lets expect for a job of its size:
//! the spread of factors from program to program, as measured where the line was learned. The quantile of these errors
//! is the larger of two, as for [`DryRuns`](super::DryRuns).

use super::Line;
use crate::calibrate::{Adaptive, margin, student};

/// The line, and the jobs of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteLine {
    /// Shipped line, with the spread from program to program as its noise.
    shipped: Line,
    /// Deviation that every peak may have, in the line's unit.
    amount: f64,
    level: f64,
    /// The dry run's figure and the peak, the oldest first.
    jobs: Vec<(f64, f64)>,
}

impl SiteLine {
    /// Jobs that are kept, the newest: each bound leaves each of them out in turn.
    const KEPT: usize = 100;

    /// At a new site, for bounds of this level. Every peak may be off by `amount`, in the line's unit.
    #[must_use]
    pub fn new(shipped: &Line, amount: f64, level: f64) -> Self {
        let noise = shipped.factor_spread.hypot(shipped.noise);
        Self { shipped: Line { noise, ..*shipped }, amount, level, jobs: Vec::new() }
    }

    /// A job has ended. Figures that are no amounts count nothing.
    pub fn observe(&mut self, dry: f64, peak: f64) {
        if [dry, peak].iter().all(|value| value.is_finite() && *value > 0.0) {
            self.jobs.push((dry, peak));
        }
        if self.jobs.len() > Self::KEPT {
            self.jobs.remove(0);
        }
    }

    /// Jobs that are kept.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.jobs.len()
    }

    /// The estimate for a dry run's figure and its bound.
    #[must_use]
    pub fn estimate(&self, dry: f64) -> (f64, f64) {
        let seen = self.jobs.len();
        let of_others = |at: usize| {
            let (dry, peak) = self.jobs[at];
            let others: Vec<_> = [&self.jobs[..at], &self.jobs[at + 1..]].concat();
            (peak - self.shipped.estimate(dry, &others)) / self.spread(dry)
        };
        let scores: Vec<f64> = (0..seen).map(of_others).collect();
        // The shipped spread counts like some jobs more.
        let freedom = Adaptive::PRIOR + seen as f64;
        let squares: f64 = scores.iter().map(|score| score * score).sum();
        let pooled = student(self.level, freedom) * ((Adaptive::PRIOR + squares) / freedom).sqrt();
        let level = self.level.min(seen as f64 / (seen + 1) as f64);
        let quantile = margin(&scores, level - 1e-9).map_or(pooled, |own| own.max(pooled));
        let estimate = self.shipped.estimate(dry, &self.jobs);
        (estimate, estimate + quantile * self.spread(dry))
    }

    /// Standard deviation of a peak from the line.
    fn spread(&self, dry: f64) -> f64 {
        (self.shipped.noise * dry).hypot(self.amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: Line =
        Line { fixed: 2000.0, factor: 1.1, fixed_spread: 300.0, factor_spread: 0.1, noise: 0.02 };

    #[test]
    fn a_site_with_another_constant_is_learned_and_small_jobs_get_small_bounds() {
        let mut site = SiteLine::new(&SHIPPED, 20.0, 0.95);
        let (first, bound) = site.estimate(1000.0);
        assert!((first - 3100.0).abs() < 1e-6 && (3250.0..3350.0).contains(&bound), "{first} {bound}");
        for at in 0..30 {
            let dry = [50.0, 100.0, 5000.0][at % 3] + at as f64;
            let wobble = 1.0 + 0.1 * (f64::from(at as u32 % 5) - 2.0) / 2.0;
            site.observe(dry, 600.0 + 1.1 * wobble * dry);
        }
        let (small, of_small) = site.estimate(50.0);
        assert!((640.0..670.0).contains(&small) && of_small < 800.0, "{small} {of_small}");
        let (large, of_large) = site.estimate(5000.0);
        assert!(
            (6000.0..6200.0).contains(&large) && (6600.0..7600.0).contains(&of_large),
            "{large} {of_large}"
        );
    }

    #[test]
    fn a_program_unlike_the_others_widens_the_bound_in_proportion() {
        let mut site = SiteLine::new(&SHIPPED, 20.0, 0.95);
        (0..12).for_each(|at| site.observe(1000.0 + f64::from(at), 1700.0 + f64::from(at)));
        let margin = |site: &SiteLine, dry: f64| site.estimate(dry).1 / site.estimate(dry).0;
        let before = margin(&site, 2000.0);
        site.observe(3000.0, 9000.0);
        assert!(margin(&site, 2000.0) > 1.3 * before);
        assert!(margin(&site, 20.0) < 2.0, "{}", margin(&site, 20.0));
        for wrong in [f64::NAN, 0.0, f64::INFINITY] {
            site.observe(wrong, 1.0);
            site.observe(1.0, wrong);
        }
        (0..500).for_each(|_| site.observe(1.0, 2.0));
        assert_eq!(site.seen(), SiteLine::KEPT);
    }
}
