//! Means over repetitions, with their uncertainty.

use radrm_base::student::P95;

/// A mean and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % interval; `None` with fewer than two values.
    pub half: Option<f64>,
    /// Number of values.
    pub count: usize,
}

impl Mean {
    /// Of some values; `None` without any.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = (count - 1) as f64;
        let half = (count > 1).then(|| P95.t(freedom) * (squares / freedom / count as f64).sqrt());
        Some(Self { mean, half, count })
    }

    /// Returns true if it is lower, and the intervals do not overlap. A single value has none.
    #[must_use]
    pub fn is_clearly_below(self, other: Self) -> bool {
        let half = |mean: Self| mean.half.unwrap_or(0.0);
        self.mean < other.mean && self.mean + half(self) < other.mean - half(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        let mean = Mean::of(&[9.0, 10.0, 11.0]).unwrap();
        assert!(
            (mean.mean - 10.0).abs() < 1e-12 && (mean.half.unwrap() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9
        );
        assert_eq!(Mean::of(&[7.0]), Some(Mean { mean: 7.0, half: None, count: 1 }));
        assert_eq!(Mean::of(&[]), None);
    }
}
