//! Test of two groups of figures for a difference beyond noise.

use radrm_base::student::P99;

/// Verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// There is none.
    Same,
    /// It is more than noise; half the width of its 99 % interval.
    Real(f64),
    /// It may be noise; likewise.
    Noise(f64),
    /// One figure on each side.
    Unknown,
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Variance of a sample (with n - 1).
fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len().max(2) - 1) as f64
}

/// Welch's t-test at 99 %: with some thirty figures a 95 % test would see a change in every second
/// comparison of runs that are alike. A side with one figure is taken to vary as the other does.
pub(super) fn verdict(old: &[f64], new: &[f64]) -> Verdict {
    let change = mean(new) - mean(old);
    let (a, b) = (old.len() as f64, new.len() as f64);
    let (va, vb, freedom) = match (old.len(), new.len()) {
        (0, _) | (_, 0) => return Verdict::Unknown,
        (1, 1) if change == 0.0 => return Verdict::Same,
        (1, 1) => return Verdict::Unknown,
        (1, n) => (variance(new), variance(new), n as f64 - 1.0),
        (n, 1) => (variance(old), variance(old), n as f64 - 1.0),
        _ => {
            let (va, vb) = (variance(old), variance(new));
            let (x, y) = (va / a, vb / b);
            // Welch and Satterthwaite.
            let freedom = (x + y).powi(2) / (x * x / (a - 1.0) + y * y / (b - 1.0));
            (va, vb, if freedom.is_finite() { freedom } else { a + b - 2.0 })
        }
    };
    let half = P99.t(freedom) * (va / a + vb / b).sqrt();
    if change == 0.0 && half == 0.0 {
        Verdict::Same
    } else if change.abs() > half {
        Verdict::Real(half)
    } else {
        Verdict::Noise(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_each_tells_no_noise() {
        assert_eq!(verdict(&[5.0], &[5.0]), Verdict::Same);
        assert_eq!(verdict(&[5.0], &[6.0]), Verdict::Unknown);
        assert_eq!(verdict(&[], &[6.0]), Verdict::Unknown);
    }

    #[test]
    fn figures_that_never_vary_differ_when_they_differ() {
        assert_eq!(verdict(&[5.0; 3], &[5.0; 4]), Verdict::Same);
        assert_eq!(verdict(&[5.0; 3], &[5.5; 3]), Verdict::Real(0.0));
        assert_eq!(verdict(&[5.0; 3], &[5.5]), Verdict::Real(0.0));
    }

    #[test]
    fn what_varies_needs_a_change_beyond_its_spread() {
        let old = [10.0, 10.4, 9.7, 10.1, 9.9];
        assert!(matches!(verdict(&old, &[10.2, 9.9, 10.3, 10.0, 10.1]), Verdict::Noise(_)));
        assert!(matches!(verdict(&old, &[12.2, 11.9, 12.3, 12.0, 12.1]), Verdict::Real(_)));
        // A single run outside of what the others are spread over, and one inside.
        assert!(matches!(verdict(&old, &[13.0]), Verdict::Real(_)));
        assert!(matches!(verdict(&old, &[10.6]), Verdict::Noise(_)));
    }

    /// Runs that are alike are called different in about one of a hundred comparisons.
    #[test]
    fn runs_that_are_alike_are_rarely_called_different() {
        let mut state = 7u64;
        let mut number = || {
            // Sum of twelve uniform numbers: about normal.
            (0..12)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 11) as f64 / (1u64 << 53) as f64
                })
                .sum::<f64>()
        };
        let mut wrong = 0;
        for _ in 0..10_000 {
            let old: Vec<f64> = (0..4).map(|_| number()).collect();
            let new: Vec<f64> = (0..4).map(|_| number()).collect();
            wrong += u32::from(matches!(verdict(&old, &new), Verdict::Real(_)));
        }
        assert!((20..180).contains(&wrong), "{wrong} of 10,000");
    }
}
