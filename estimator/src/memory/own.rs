//! Estimates from a program's own runs at other batch sizes.

use serde::{Deserialize, Serialize};

/// The highest peak of a program's complete runs at a batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Samples in a batch, on each GPU.
    pub batch: f64,
    /// Peak of memory.
    pub peak: f64,
}

/// Point near which the lines of a site's programs (peak by batch size) pass.
///
/// A process holds `idle` before its first layer. Parameters, gradients and optimizer states do not grow with the batch
/// either, but large layers have both many of them and large activations: they take about as much as `samples`
/// samples. So the lines of all programs pass near the point (-`samples`, `idle`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Memory of a process without a model, in the unit of the peaks.
    pub idle: f64,
    /// Memory that does not grow with the batch, in samples.
    pub samples: f64,
}

impl Anchor {
    /// Spread of the anchor from program to program, as a part of `idle`: chosen on TIMM families.
    const SPREAD: f64 = 0.8;
    /// Relative spread of peaks around the line of their program.
    const NOISE: f64 = 0.05;

    /// The anchor with which one run of each program predicts its others best (least mean |ln error|). `None` if no
    /// program has runs at two batch sizes.
    #[must_use]
    pub fn learn(programs: &[Vec<Point>]) -> Option<Self> {
        const PARTS: u32 = 20;
        const SAMPLES: [f64; 12] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0];
        let several = || programs.iter().filter(|points| points.len() > 1);
        let mut least: Vec<f64> = several().flatten().map(|point| point.peak).collect();
        least.sort_unstable_by(f64::total_cmp);
        // Almost all processes hold more than an idle one.
        let most = *least.get(least.len() / 20)?;
        let mut best: Option<(f64, Self)> = None;
        for part in 0..=PARTS {
            for samples in SAMPLES {
                let anchor = Self { idle: most * f64::from(part) / f64::from(PARTS), samples };
                let mut error = 0.0;
                for points in several() {
                    for one in points {
                        let others = points.iter().filter(|point| point.batch != one.batch);
                        error += others
                            .map(|other| (anchor.scaled(*one, other.batch) / other.peak).ln().abs())
                            .sum::<f64>();
                    }
                }
                if best.is_none_or(|(lowest, _)| error < lowest) {
                    best = Some((error, anchor));
                }
            }
        }
        best.map(|(_, anchor)| anchor)
    }

    fn scaled(&self, one: Point, batch: f64) -> f64 {
        let fixed = self.idle.min(one.peak);
        fixed + (one.peak - fixed) * (batch + self.samples) / (one.batch + self.samples).max(1e-9)
    }
}

/// The estimate at a batch size from runs at others, one point each; `None` without runs.
///
/// One run: the line through the anchor. Several: least squares of the relative errors, the anchor being one more,
/// less certain point; the slope is not negative, as more samples never need less.
#[must_use]
pub fn own(points: &[Point], batch: f64, anchor: &Anchor) -> Option<f64> {
    let least = points.iter().map(|point| point.peak).reduce(f64::min)?;
    if let [one] = points {
        return Some(anchor.scaled(*one, batch));
    }
    let (mut w, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut add = |batch: f64, peak: f64, weight: f64| {
        w += weight;
        x += weight * batch;
        y += weight * peak;
        xx += weight * batch * batch;
        xy += weight * batch * peak;
    };
    if anchor.idle > 0.0 {
        add(-anchor.samples, anchor.idle, (Anchor::SPREAD * anchor.idle).powi(-2));
    }
    for point in points {
        add(point.batch, point.peak, (Anchor::NOISE * point.peak).powi(-2));
    }
    let determinant = w * xx - x * x;
    let slope = if determinant > 1e-9 * w * xx { ((w * xy - x * y) / determinant).max(0.0) } else { 0.0 };
    let line = y / w + slope * (batch - x / w);
    Some(line.max(anchor.idle.min(least)))
}

/// Weight of the learned model against the program's own runs, in runs.
const TRUST: f64 = 0.3;

/// A learned model's estimate, corrected by what it missed at the program's own runs: `pairs` are (measured, estimate)
/// there, and their mean error counts as n / (n + 0.3).
#[must_use]
pub fn learned(estimate: f64, pairs: &[(f64, f64)]) -> f64 {
    let missed: f64 = pairs.iter().map(|(measured, estimate)| (measured / estimate).ln()).sum();
    estimate * (missed / (pairs.len() as f64 + TRUST)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANCHOR: Anchor = Anchor { idle: 1000.0, samples: 0.0 };

    fn points(of: &[(f64, f64)]) -> Vec<Point> {
        of.iter().map(|(batch, peak)| Point { batch: *batch, peak: *peak }).collect()
    }

    #[test]
    fn one_run_scales_what_exceeds_an_idle_process() {
        assert_eq!(own(&points(&[(8.0, 1800.0)]), 16.0, &ANCHOR), Some(2600.0));
        assert_eq!(own(&points(&[(8.0, 1800.0)]), 4.0, &ANCHOR), Some(1400.0));
        assert_eq!(own(&points(&[(8.0, 800.0)]), 64.0, &ANCHOR), Some(800.0), "less than an idle process");
        assert_eq!(own(&[], 8.0, &ANCHOR), None);
        let weights = Anchor { samples: 8.0, ..ANCHOR };
        assert_eq!(own(&points(&[(8.0, 1800.0)]), 24.0, &weights), Some(2600.0));
    }

    #[test]
    fn several_runs_give_a_line_that_does_not_fall() {
        let line = points(&[(8.0, 1800.0), (16.0, 2600.0), (32.0, 4200.0)]);
        assert!((own(&line, 64.0, &ANCHOR).unwrap() - 7400.0).abs() < 1e-6, "the anchor is on the line");
        let moved = own(&line, 64.0, &Anchor { idle: 3000.0, ..ANCHOR }).unwrap();
        assert!((moved / 7400.0 - 1.0).abs() < 0.03, "{moved}: the anchor is one point of four");
        let falling = own(&points(&[(8.0, 2000.0), (16.0, 1000.0)]), 64.0, &ANCHOR).unwrap();
        assert!((1000.0..=2000.0).contains(&falling), "{falling}");
        let steep = points(&[(8.0, 1000.0), (16.0, 2000.0)]);
        assert_eq!(
            own(&steep, 1.0, &Anchor { idle: 400.0, samples: 0.0 }),
            Some(400.0),
            "as an idle process"
        );
        let same = points(&[(8.0, 1000.0), (8.0, 1000.0)]);
        assert!(own(&same, 8.0, &Anchor { idle: 0.0, samples: 0.0 }).is_some_and(f64::is_finite));
    }

    #[test]
    fn a_site_teaches_its_anchor() {
        let programs: Vec<Vec<Point>> = (1..40)
            .map(|n| {
                let each = 20.0 * f64::from(n);
                [1.0, 8.0, 64.0].map(|batch| Point { batch, peak: 500.0 + each * (batch + 4.0) }).to_vec()
            })
            .collect();
        let anchor = Anchor::learn(&programs).unwrap();
        assert_eq!(anchor.samples, 4.0);
        assert!((anchor.idle / 500.0 - 1.0).abs() < 0.1, "{anchor:?}");
        assert_eq!(Anchor::learn(&[points(&[(8.0, 9.0)])]), None);
    }

    #[test]
    fn a_learned_model_follows_the_programs_own_runs() {
        assert_eq!(learned(100.0, &[]), 100.0);
        let often = learned(100.0, &[(200.0, 100.0); 30]);
        assert!((often / 200.0 - 1.0).abs() < 0.01, "{often}");
        assert!(learned(100.0, &[(200.0, 100.0)]) < often);
    }
}
