//! From a dry run's figure to the peak on a real GPU: a line whose coefficients a site, and then a program, teach.

use serde::{Deserialize, Serialize};

use crate::calibrate::score;

/// `peak = fixed + factor * dry`, with what is known of both coefficients as a normal distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What is not in the dry run (context, code, libraries), in the unit of the peak.
    pub fixed: f64,
    /// Peak per unit of the dry run's figure.
    pub factor: f64,
    /// Standard deviation of `fixed` from program to program.
    pub fixed_spread: f64,
    /// Standard deviation of `factor` from program to program.
    pub factor_spread: f64,
    /// Relative standard deviation of a peak from its own program's line.
    pub noise: f64,
}

impl Line {
    /// What programs with runs at three or more batch sizes teach of a site: medians of their lines, and spreads from
    /// the median deviation. Each has pairs of (dry, peak). `None` without such programs.
    #[must_use]
    pub fn learn(programs: &[Vec<(f64, f64)>]) -> Option<Self> {
        let mut lines = Vec::new();
        let mut noise = Vec::new();
        for pairs in programs.iter().filter(|pairs| pairs.len() > 2) {
            let Some((fixed, factor)) = relative_line(pairs) else { continue };
            lines.push((fixed, factor));
            noise.extend(pairs.iter().map(|(dry, peak)| (fixed + factor * dry) / peak - 1.0));
        }
        let (fixed, fixed_spread) = middle(lines.iter().map(|line| line.0))?;
        let (factor, factor_spread) = middle(lines.iter().map(|line| line.1))?;
        // Two coefficients were fitted to each program's few points.
        let (_, noise) = middle(noise.into_iter())?;
        let (fixed_spread, factor_spread) = (fixed_spread.max(1e-6), factor_spread.max(1e-6));
        Some(Self { fixed, factor, fixed_spread, factor_spread, noise: (1.5 * noise).max(0.01) })
    }

    /// The line of one program after its own runs, pairs of (dry, peak): the mean of Bayes' posterior.
    #[must_use]
    pub fn after(&self, runs: &[(f64, f64)]) -> (f64, f64) {
        self.prior().plus(runs, |_, peak| (self.noise * peak).powi(-2)).line()
    }

    fn prior(&self) -> Sums {
        let (w_fixed, w_factor) = (self.fixed_spread.powi(-2), self.factor_spread.powi(-2));
        let (a, b) = (w_fixed * self.fixed, w_factor * self.factor);
        Sums { aa: w_fixed, ab: 0.0, bb: w_factor, a, b }
    }

    /// The line of a site after its jobs, pairs of (dry, peak), with what is not known of it. What is not in the dry run is the
    /// same for all programs there: what a peak is off by is `noise` of the dry run's figure, and `amount`.
    #[must_use]
    pub(super) fn posterior(&self, jobs: &[(f64, f64)], amount: f64) -> Posterior {
        let prior = Posterior { line: *self, amount, sums: self.prior() };
        Posterior { sums: prior.sums.plus(jobs, |dry, _| prior.deviation(dry).powi(-2)), ..prior }
    }

    /// The estimate for a dry run's figure, after the program's own runs.
    #[must_use]
    pub fn estimate(&self, dry: f64, runs: &[(f64, f64)]) -> f64 {
        let (fixed, factor) = self.after(runs);
        self.at(dry, fixed, factor)
    }

    fn at(&self, dry: f64, fixed: f64, factor: f64) -> f64 {
        // A posterior may leave what is physical; the dry run's own figure is a floor then.
        (fixed + factor * dry).max(0.5 * dry).max(0.1 * self.fixed.abs())
    }
}

/// A line after jobs, as a distribution of both coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Posterior {
    line: Line,
    amount: f64,
    sums: Sums,
}

impl Posterior {
    /// The peak to expect for a dry run's figure.
    pub(super) fn estimate(&self, dry: f64) -> f64 {
        let (fixed, factor) = self.sums.line();
        self.line.at(dry, fixed, factor)
    }

    /// Standard deviation of a peak from its own program's line.
    fn deviation(&self, dry: f64) -> f64 {
        (self.line.noise * dry).hypot(self.amount)
    }

    /// Relative standard deviation of a peak from the estimate: that of its own program, and what the jobs leave unknown of
    /// the line.
    pub(super) fn spread(&self, dry: f64) -> f64 {
        let Sums { aa, ab, bb, .. } = self.sums;
        let of_line = (bb - 2.0 * ab * dry + aa * dry * dry) / self.sums.determinant();
        self.deviation(dry).hypot(of_line.max(0.0).sqrt()) / self.estimate(dry)
    }

    /// Of each of its jobs the line that the others teach, and `ln(peak / estimate)` by that in units of its spread.
    pub(super) fn without_own(&self, jobs: &[(f64, f64)]) -> Vec<(Self, f64)> {
        let of = |(dry, peak): &(f64, f64)| {
            let sums = self.sums.plus(&[(*dry, *peak)], |dry, _| -self.deviation(dry).powi(-2));
            let others = Self { sums, ..*self };
            (others, score(*peak, others.estimate(*dry)) / others.spread(*dry))
        };
        jobs.iter().map(of).collect()
    }
}

/// The line with the least squared relative errors.
fn relative_line(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let sums = Sums::default().plus(pairs, |_, peak| peak.powi(-2));
    // One figure at all batch sizes is no line.
    (sums.determinant() > 1e-9 * sums.aa * sums.bb).then(|| sums.line())
}

/// The normal equations of a weighted line: `aa * fixed + ab * factor = a` and `ab * fixed + bb * factor = b`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    aa: f64,
    ab: f64,
    bb: f64,
    a: f64,
    b: f64,
}

impl Sums {
    fn plus(mut self, pairs: &[(f64, f64)], weight: impl Fn(f64, f64) -> f64) -> Self {
        for (dry, peak) in pairs {
            let weight = weight(*dry, *peak);
            self.aa += weight;
            self.ab += weight * dry;
            self.bb += weight * dry * dry;
            self.a += weight * peak;
            self.b += weight * dry * peak;
        }
        self
    }

    fn determinant(&self) -> f64 {
        self.aa * self.bb - self.ab * self.ab
    }

    /// The fixed part and the factor.
    fn line(&self) -> (f64, f64) {
        let Self { aa, ab, bb, a, b } = self;
        let determinant = self.determinant();
        ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant)
    }
}

/// Median, and the standard deviation that the median deviation from it stands for.
fn middle(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let median = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let mut all: Vec<f64> = values.collect();
    let center = median(&mut all)?;
    let mut off: Vec<f64> = all.iter().map(|value| (value - center).abs()).collect();
    Some((center, 1.4826 * median(&mut off)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Line {
        let programs: Vec<Vec<(f64, f64)>> = (0..21)
            .map(|n| {
                let (fixed, factor) = (1900.0 + 10.0 * f64::from(n), 1.0 + 0.01 * f64::from(n));
                [1000.0, 2000.0, 4000.0].map(|dry| (dry, fixed + factor * dry)).to_vec()
            })
            .collect();
        Line::learn(&programs).unwrap()
    }

    #[test]
    fn a_site_teaches_its_line() {
        let line = site();
        assert!((line.fixed - 2000.0).abs() < 1.0 && (line.factor - 1.1).abs() < 1e-6, "{line:?}");
        assert!((50.0..100.0).contains(&line.fixed_spread) && (0.05..0.1).contains(&line.factor_spread));
        assert!((line.estimate(1000.0, &[]) - 3100.0).abs() < 1.0);
        assert_eq!(Line::learn(&[vec![(1.0, 2.0), (2.0, 3.0)]]), None);
    }

    #[test]
    fn scores_are_those_of_the_others_line_in_its_spread() {
        let line = site();
        let jobs = [(2000.0, 5000.0), (1000.0, 3500.0), (4000.0, 8000.0)];
        let scores = line.posterior(&jobs, 20.0).without_own(&jobs);
        for (at, job) in jobs.iter().enumerate() {
            let others: Vec<_> = jobs.iter().filter(|other| *other != job).copied().collect();
            let others = line.posterior(&others, 20.0);
            let expected = (job.1 / others.estimate(job.0)).ln() / others.spread(job.0);
            assert!((scores[at].1 - expected).abs() < 1e-9, "{at}: {scores:?} {expected}");
            assert!((scores[at].0.estimate(700.0) / others.estimate(700.0) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_spread_is_the_priors_at_first_and_the_noise_after_many_jobs() {
        let line = Line { fixed: 600.0, factor: 1.0, fixed_spread: 600.0, factor_spread: 0.03, noise: 0.05 };
        let at = |jobs: u32| {
            let jobs: Vec<_> =
                (0..jobs).map(|n| 1000.0 + 10.0 * f64::from(n)).map(|dry| (dry, dry + 900.0)).collect();
            line.posterior(&jobs, 20.0).spread(1000.0)
        };
        // 50 for the dry run's figure, 20 besides, 600 and 30 for the line.
        let prior =
            (50.0_f64.powi(2) + 20.0_f64.powi(2) + 600.0_f64.powi(2) + 30.0_f64.powi(2)).sqrt() / 1600.0;
        assert!((at(0) - prior).abs() < 1e-9, "{}", at(0));
        assert!(at(1) < 0.3 * at(0) && at(5) < at(1) && at(1000) < 0.051, "{} {} {}", at(1), at(5), at(1000));
    }

    #[test]
    fn own_runs_move_the_line_towards_them() {
        let line = site();
        let before = line.estimate(4000.0, &[]);
        let one = line.estimate(4000.0, &[(2000.0, 5000.0)]);
        let many = line.estimate(4000.0, &[(2000.0, 5000.0), (1000.0, 3500.0), (4000.0, 8000.0)]);
        assert!(one > before && many > one && many < 8200.0, "{before} {one} {many}");
    }
}
