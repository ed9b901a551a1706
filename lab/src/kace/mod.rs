//! KACE's predictor as a baseline: a linear regression from kernel metrics to the summed throughput of a pair.
//!
//! Features of a pair: absolute figures (threads, registers, shared memory, exclusive throughput, memory footprint) are
//! summed, percentages are averaged, all are z-scored (KACE, SoCC '24, doi 10.1145/3698038.3698555).

mod known;
mod network;
mod pairs;
mod partitions;
mod rules;

pub use known::{TrainedOn, by_training_size};
pub use network::Network;
pub use pairs::{Baseline, KacePair, baselines, read_pairs, speeds_by_forest};
pub use partitions::{PartitionScores, PartitionedSet, read_partitions};

use radrm_estimator::linalg;

/// Features of a pair from those of its two workloads; `absolute` says which of them are no percentages.
#[must_use]
pub fn pair_features(one: &[f64], other: &[f64], absolute: &[bool]) -> Vec<f64> {
    let both = one.iter().zip(other).zip(absolute);
    both.map(|((a, b), absolute)| if *absolute { a + b } else { (a + b) / 2.0 }).collect()
}

/// A linear regression on z-scored features.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    means: Vec<f64>,
    deviations: Vec<f64>,
    /// One for each feature, and the intercept.
    coefficients: Vec<f64>,
}

impl Linear {
    /// Least squares, with a ridge small enough not to matter unless features repeat each other. `None` without rows.
    #[must_use]
    pub fn fit(rows: &[Vec<f64>], target: &[f64]) -> Option<Self> {
        let features = rows.first()?.len();
        let n = rows.len() as f64;
        let mean = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / n;
        let means: Vec<f64> = (0..features).map(mean).collect();
        let deviation = |at: usize| {
            let square = rows.iter().map(|row| (row[at] - means[at]).powi(2)).sum::<f64>() / n;
            if square > 0.0 { square.sqrt() } else { 1.0 }
        };
        let deviations: Vec<f64> = (0..features).map(deviation).collect();
        let mut model = Self { means, deviations, coefficients: Vec::new() };
        let scored: Vec<Vec<f64>> = rows.iter().map(|row| model.scored(row)).collect();
        model.coefficients = linalg::ridge(&scored, target, 1e-6 * n)?;
        Some(model)
    }

    fn scored(&self, row: &[f64]) -> Vec<f64> {
        let scored = row.iter().zip(self.means.iter().zip(&self.deviations)).map(|(x, (m, d))| (x - m) / d);
        scored.chain([1.0]).collect()
    }

    /// The prediction for a row.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        self.scored(row).iter().zip(&self.coefficients).map(|(x, c)| x * c).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_figures_are_summed_and_percentages_averaged() {
        assert_eq!(pair_features(&[100.0, 40.0], &[300.0, 60.0], &[true, false]), [400.0, 50.0]);
    }

    #[test]
    fn a_plane_is_recovered_also_with_a_feature_that_repeats_another() {
        let rows: Vec<Vec<f64>> =
            (0..40).map(|n| vec![f64::from(n), f64::from(n * n % 17), f64::from(n), 7.0]).collect();
        let truth = |row: &[f64]| 3.0 * row[0] - 2.0 * row[1] + 5.0;
        let target: Vec<f64> = rows.iter().map(|row| truth(row)).collect();
        let model = Linear::fit(&rows, &target).unwrap();
        let fresh = [50.0, 3.0, 50.0, 7.0];
        assert!((model.predict(&fresh) - truth(&fresh)).abs() < 0.01);
        assert_eq!(Linear::fit(&[], &[]), None);
    }
}
