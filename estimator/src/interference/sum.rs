//! Sum of the speeds of two jobs on one GPU, by a linear regression on what the jobs do alone.
//!
//! KACE (SoCC '24, doi 10.1145/3698038.3698555) predicts the summed throughput of a pair from kernel metrics, of which
//! percentages are averaged, and learns the regression from pairs that ran. Here throughput is relative to that alone, and the
//! metrics are SM and DRAM activity. A new site begins with least squares over 163 pairs on an A100 40 GB (error of the sum .083,
//! in sample; .207 for their mean).

use radrm_base::Activity;

use super::Company;
use crate::linalg;

/// Coefficients of the pairs' mean SM activity and mean DRAM activity, and the intercept.
const START: [f64; FEATURES] = [-1.037, -0.069, 2.160];
const FEATURES: usize = 3;

/// The start counts as much as this: a ridge around it, on all coefficients.
const RIDGE: f64 = 1.0;

/// The regression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairSum {
    coefficients: [f64; FEATURES],
}

impl Default for PairSum {
    fn default() -> Self {
        Self { coefficients: START }
    }
}

fn features(one: Activity, other: Activity) -> [f64; FEATURES] {
    let mean = |of: fn(Activity) -> f64| (of(one) + of(other)) / 2.0;
    [mean(|of| of.smact.fraction()), mean(|of| of.drama.fraction()), 1.0]
}

fn product(coefficients: &[f64; FEATURES], row: &[f64; FEATURES]) -> f64 {
    coefficients.iter().zip(row).map(|(coefficient, value)| coefficient * value).sum()
}

impl PairSum {
    /// Learns from companies of two; larger ones are left out, as KACE has none.
    pub(super) fn learned<'a>(observed: impl Iterator<Item = &'a Company>) -> Self {
        let (mut matrix, mut right) = ([0.0; FEATURES * FEATURES], [0.0; FEATURES]);
        for company in observed {
            let [one, other] = &company.jobs[..] else { continue };
            let row = features(one.activity, other.activity);
            let off = company.speeds.iter().sum::<f64>() - product(&START, &row);
            for i in 0..FEATURES {
                right[i] += row[i] * off;
                for j in 0..FEATURES {
                    matrix[i * FEATURES + j] += row[i] * row[j];
                }
            }
        }
        (0..FEATURES).for_each(|i| matrix[i * FEATURES + i] += RIDGE);
        let moved = linalg::solve(&matrix, &right).unwrap_or_default();
        let mut learned = Self::default();
        learned.coefficients.iter_mut().zip(moved).for_each(|(coefficient, by)| *coefficient += by);
        learned
    }

    /// The sum of both speeds, 0 to 2.
    #[must_use]
    pub fn of(&self, one: Activity, other: Activity) -> f64 {
        product(&self.coefficients, &features(one, other)).clamp(0.0, 2.0)
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::Permille;

    use super::super::Resident;
    use super::*;

    fn activity(smact: u32, drama: u32) -> Activity {
        Activity { smact: Permille(smact), smocc: Permille(0), drama: Permille(drama) }
    }

    fn company(smact: [u32; 2], speeds: &[f64]) -> Company {
        let jobs = smact.map(|smact| Resident { program: None, activity: activity(smact, smact / 2) });
        Company { jobs: jobs.to_vec(), speeds: speeds.to_vec() }
    }

    #[test]
    fn a_new_site_predicts_as_the_published_pairs_were() {
        let sum = PairSum::learned([].iter());
        assert_eq!(sum, PairSum::default());
        assert!(
            (sum.of(activity(400, 200), activity(200, 100)) - (2.160 - 0.3 * 1.037 - 0.15 * 0.069)).abs()
                < 1e-9
        );
        assert_eq!(sum.of(activity(0, 0), activity(0, 0)), 2.0);
        assert!((0.9..1.2).contains(&sum.of(activity(1000, 500), activity(1000, 500))));
    }

    #[test]
    fn observed_pairs_move_the_prediction_to_their_line() {
        // A site where pairs of the same activity get less done: 1.6 - smact.
        let seen: Vec<Company> = (0..60_u32)
            .map(|n| {
                let (a, b) = (100 + n * 7 % 600, 100 + n * 11 % 600);
                let sum = 1.6 - f64::from(a + b) / 2000.0;
                company([a, b], &[sum / 2.0, sum / 2.0])
            })
            .collect();
        let truth = 1.6 - 0.4;
        let error = |count: usize| {
            let sum = PairSum::learned(seen.iter().take(count));
            (sum.of(activity(300, 150), activity(500, 250)) - truth).abs()
        };
        assert!(error(1) < error(0) && error(8) < error(1), "{} {} {}", error(0), error(1), error(8));
        assert!(error(60) < 0.02, "{}", error(60));
        let triple = company([300, 300], &[0.1, 0.1, 0.1]);
        let three = Company { jobs: [&triple.jobs[..], &triple.jobs[..1]].concat(), ..triple };
        assert_eq!(PairSum::learned([three].iter()), PairSum::default(), "three jobs are no pair");
    }
}
