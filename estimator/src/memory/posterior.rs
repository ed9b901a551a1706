//! The line of a site's dry runs, as far as the runs there teach it.

use radrm_base::ProgramKind;

use super::{DryRunFigure, Line};
use crate::calibrate::tempered_score;

/// The fixed part, the factor, and what each kind of program adds to the factor.
const COEFFICIENTS: usize = 2 + ProgramKind::ALL.len();

/// A peak is off a site's line by what all programs of its kind are off, and by what is its own: the standard deviations of
/// both as parts of [`Line::noise`]. Their squares add up to 1, so a program of unknown kind is off by the noise as a whole.
const OF_KIND: f64 = 0.6;
const OWN: f64 = 0.8;

/// The least part of a dry run's figure that a peak is expected to be.
const MIN_PART: f64 = 0.9;

/// A line after runs, as a normal distribution of its coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Posterior {
    line: Line,
    amount: f64,
    mean: [f64; COEFFICIENTS],
    covariance: [[f64; COEFFICIENTS]; COEFFICIENTS],
}

impl Posterior {
    /// Before any run. What is not in the dry run is the same for all programs of a site: what a peak is off by is `noise` of the
    /// dry run's figure, and `amount`.
    pub(super) fn prior(line: &Line, amount: f64) -> Self {
        let mut mean = [0.0; COEFFICIENTS];
        (mean[0], mean[1]) = (line.fixed, line.factor);
        let mut spreads = [OF_KIND * line.noise; COEFFICIENTS];
        (spreads[0], spreads[1]) = (line.fixed_spread, line.factor_spread);
        let mut covariance = [[0.0; COEFFICIENTS]; COEFFICIENTS];
        for (at, spread) in spreads.into_iter().enumerate() {
            covariance[at][at] = spread * spread;
        }
        Self { line: *line, amount, mean, covariance }
    }

    /// After these runs, each with its peak.
    pub(super) fn after(self, runs: &[(DryRunFigure, f64)]) -> Self {
        self.after_weighted(runs, &[])
    }

    /// After these runs with a weight each; one without counts in full.
    pub(super) fn after_weighted(mut self, runs: &[(DryRunFigure, f64)], weights: &[f64]) -> Self {
        for (at, (run, peak)) in runs.iter().enumerate() {
            self.update(run, *peak, self.variance(run, weights.get(at)));
        }
        self
    }

    /// With this fixed part: where a search for the line begins.
    pub(super) fn moved_to(mut self, fixed: f64) -> Self {
        self.mean[0] = fixed;
        self
    }

    /// The peak to expect for a dry run.
    pub(super) fn estimate(&self, run: &DryRunFigure) -> f64 {
        let factor = self.mean[1] + run.kind.map_or(0.0, |kind| self.mean[2 + kind.index()]);
        // No measured line lies lower.
        self.line.at(run.held, self.mean[0], factor).max(MIN_PART * run.held)
    }

    /// Relative standard deviation of a peak from the estimate: that of its own program, and what the runs leave unknown of
    /// the line.
    pub(super) fn spread(&self, run: &DryRunFigure) -> f64 {
        let of_line = product(&Self::row(run), &self.towards(&Self::row(run)));
        self.deviation(run).hypot(of_line.max(0.0).sqrt()) / self.estimate(run)
    }

    /// Of each of its runs the line that the others teach, and the peak's score by that in units of its spread. The weights are
    /// those that the runs were taken in with.
    pub(super) fn without_own(&self, runs: &[(DryRunFigure, f64)], weights: &[f64]) -> Vec<(Self, f64)> {
        let of = |(at, (run, peak)): (usize, &(DryRunFigure, f64))| {
            let mut others = *self;
            others.update(run, *peak, -self.variance(run, weights.get(at)));
            (others, others.score(run, *peak))
        };
        runs.iter().enumerate().map(of).collect()
    }

    /// A peak's score in units of the spread.
    pub(super) fn score(&self, run: &DryRunFigure, peak: f64) -> f64 {
        tempered_score(peak, self.estimate(run)) / self.spread(run)
    }

    fn variance(&self, run: &DryRunFigure, weight: Option<&f64>) -> f64 {
        self.deviation(run).powi(2) / weight.copied().unwrap_or(1.0)
    }

    /// Peak per unit of a dry run's figure, of all kinds.
    pub(super) fn slope(&self) -> f64 {
        self.mean[1]
    }

    /// Standard deviation of a peak from the line of its kind.
    pub(super) fn deviation(&self, run: &DryRunFigure) -> f64 {
        let part = if run.kind.is_some() { OWN } else { 1.0 };
        (part * self.line.noise * run.held).hypot(self.amount)
    }

    /// Parts of a peak: one for each coefficient.
    fn row(run: &DryRunFigure) -> [f64; COEFFICIENTS] {
        let mut row = [0.0; COEFFICIENTS];
        (row[0], row[1]) = (1.0, run.held);
        if let Some(kind) = run.kind {
            row[2 + kind.index()] = run.held;
        }
        row
    }

    fn towards(&self, row: &[f64; COEFFICIENTS]) -> [f64; COEFFICIENTS] {
        self.covariance.each_ref().map(|of| product(of, row))
    }

    /// Takes a peak in by Bayes' rule; with its variance negated, takes it out again.
    fn update(&mut self, run: &DryRunFigure, peak: f64, variance: f64) {
        let row = Self::row(run);
        let towards = self.towards(&row);
        let scale = 1.0 / (product(&row, &towards) + variance);
        let off = peak - product(&row, &self.mean);
        for at in 0..COEFFICIENTS {
            self.mean[at] += scale * towards[at] * off;
            for other in 0..COEFFICIENTS {
                self.covariance[at][other] -= scale * towards[at] * towards[other];
            }
        }
    }
}

fn product(left: &[f64; COEFFICIENTS], right: &[f64; COEFFICIENTS]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line =
        Line { fixed: 600.0, factor: 1.0, fixed_spread: 600.0, factor_spread: 0.02, noise: 0.05 };

    fn of(kind: ProgramKind, held: f64) -> DryRunFigure {
        DryRunFigure { held, kind: Some(kind) }
    }

    fn after(runs: &[(DryRunFigure, f64)]) -> Posterior {
        Posterior::prior(&LINE, 20.0).after(runs)
    }

    #[test]
    fn scores_are_those_of_the_others_line_in_its_spread() {
        let runs = [
            (of(ProgramKind::Cudnn, 2000.0), 2900.0),
            (DryRunFigure::from(1000.0), 1700.0),
            (of(ProgramKind::Other, 4000.0), 5200.0),
            (of(ProgramKind::Cudnn, 8000.0), 8500.0),
        ];
        let scores = after(&runs).without_own(&runs, &[]);
        for (at, run) in runs.iter().enumerate() {
            let others: Vec<_> = runs.iter().filter(|other| *other != run).copied().collect();
            let others = after(&others);
            let expected = (run.1 / others.estimate(&run.0)).ln() / others.spread(&run.0);
            assert!((scores[at].1 - expected).abs() < 1e-9, "{at}: {scores:?} {expected}");
            let asked = of(ProgramKind::Other, 700.0);
            assert!((scores[at].0.estimate(&asked) / others.estimate(&asked) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_spread_is_the_priors_at_first_and_the_noise_after_many_runs() {
        for (kind, noise) in [(None, 50.0_f64), (Some(ProgramKind::Cudnn), 40.0)] {
            let run = |held| DryRunFigure { held, kind };
            let at = |runs: u32| {
                let held = (0..runs).map(|n| 1000.0 + 10.0 * f64::from(n));
                after(&held.map(|held| (run(held), held + 900.0)).collect::<Vec<_>>()).spread(&run(1000.0))
            };
            // 50 for the dry run's figure, 20 besides, 600 and 20 for the line: whatever the kind.
            let prior =
                [50.0, 20.0, 600.0, 20.0_f64].iter().fold(0.0, |sum: f64, of| sum.hypot(*of)) / 1600.0;
            assert!((at(0) - prior).abs() < 1e-9, "{kind:?}: {}", at(0));
            let last = noise.hypot(20.0) / 1900.0;
            assert!(at(1) < 0.3 * at(0) && at(5) < at(1), "{kind:?}: {} {}", at(1), at(5));
            assert!((last..1.03 * last).contains(&at(1000)), "{kind:?}: {} {last}", at(1000));
        }
    }

    #[test]
    fn what_a_kind_is_off_by_is_its_own() {
        let (cudnn, other) = (ProgramKind::Cudnn, ProgramKind::Other);
        let runs: Vec<(DryRunFigure, f64)> = (2..12)
            .map(|n| (n % 2 == 0, 1000.0 * f64::from(n)))
            .map(|(is_even, held)| match is_even {
                true => (of(cudnn, held), 600.0 + 0.97 * held),
                false => (of(other, held), 600.0 + 1.05 * held),
            })
            .collect();
        let line = after(&runs);
        let off = |run: DryRunFigure, peak: f64| line.estimate(&run) / peak - 1.0;
        for (kind, factor) in [(cudnn, 0.97), (other, 1.05)] {
            let peak = 600.0 + factor * 8500.0;
            assert!(off(of(kind, 8500.0), peak).abs() < 0.015, "{kind:?}: {line:?}");
            // A program whose kind is not known is between the kinds.
            assert!(off(DryRunFigure::from(8500.0), peak).abs() > 0.025, "{kind:?}: {line:?}");
        }
        assert!(line.spread(&DryRunFigure::from(8500.0)) > line.spread(&of(cudnn, 8500.0)));
    }

    #[test]
    fn runs_of_unknown_kind_are_on_one_line() {
        let runs = [(DryRunFigure::from(2000.0), 2900.0), (DryRunFigure::from(6000.0), 6800.0)];
        let line = after(&runs);
        for kind in ProgramKind::ALL {
            assert_eq!(line.estimate(&of(kind, 3000.0)), line.estimate(&DryRunFigure::from(3000.0)));
            let [known, unknown] =
                [of(kind, 3000.0), DryRunFigure::from(3000.0)].map(|run| line.spread(&run));
            assert!((known / unknown - 1.0).abs() < 1e-9, "{known} {unknown}");
        }
    }
}
