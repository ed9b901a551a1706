//! From a dry run's figure to the peak on a real GPU: a line whose coefficients a site, and then a program, teach.

use serde::{Deserialize, Serialize};

/// `peak = fixed + factor * dry`, with what is known of both coefficients as a normal distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Memory that is not in the dry run (context, code, libraries), in the unit of the peak.
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
    /// Learns the line of a site from programs with runs at three or more batch sizes.
    /// It takes medians of their lines, and spreads from the median deviation. Each program has pairs of (dry, peak).
    /// Returns `None` without such programs.
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

    /// The estimate for a dry run's figure, after the program's own runs.
    #[must_use]
    pub fn estimate(&self, dry: f64, runs: &[(f64, f64)]) -> f64 {
        let (fixed, factor) = self.after(runs);
        self.at(dry, fixed, factor)
    }

    /// The peak on a line with these coefficients.
    pub(super) fn at(&self, dry: f64, fixed: f64, factor: f64) -> f64 {
        // A posterior may leave what is physical; the dry run's own figure is a floor then.
        (fixed + factor * dry).max(0.5 * dry).max(0.1 * self.fixed.abs())
    }
}

/// The line with the least squared relative errors.
fn relative_line(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let sums = Sums::default().plus(pairs, |_, peak| peak.powi(-2));
    // One figure at all batch sizes is not a line.
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
    fn own_runs_move_the_line_towards_them() {
        let line = site();
        let before = line.estimate(4000.0, &[]);
        let one = line.estimate(4000.0, &[(2000.0, 5000.0)]);
        let many = line.estimate(4000.0, &[(2000.0, 5000.0), (1000.0, 3500.0), (4000.0, 8000.0)]);
        assert!(one > before && many > one && many < 8200.0, "{before} {one} {many}");
    }
}
