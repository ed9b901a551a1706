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

    /// The sum of means that are independent of each other; `None` without any.
    #[must_use]
    pub fn sum(all: &[Self]) -> Option<Self> {
        let first = *all.first()?;
        let add = |sum: Self, next: &Self| {
            let half = sum.half.zip(next.half).map(|(sum, next)| sum.hypot(next));
            Self { mean: sum.mean + next.mean, half, count: sum.count.min(next.count) }
        };
        Some(all[1..].iter().fold(first, add))
    }

    /// The same mean, with a second uncertainty that is independent of its own; with one that is not known it has none.
    #[must_use]
    pub fn widened(self, by: Option<f64>) -> Self {
        Self { half: self.half.zip(by).map(|(half, by)| half.hypot(by)), ..self }
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
        let single = Mean { mean: 7.0, half: None, count: 1 };
        assert_eq!(Mean::of(&[7.0]), Some(single));
        assert_eq!(Mean::of(&[]), None);
        let (a, b) =
            (Mean { mean: 1.0, half: Some(3.0), count: 2 }, Mean { mean: 2.0, half: Some(4.0), count: 3 });
        assert_eq!(Mean::sum(&[a, b]), Some(Mean { mean: 3.0, half: Some(5.0), count: 2 }));
        assert_eq!(Mean::sum(&[a, single]).unwrap().half, None);
        assert_eq!((a.widened(Some(4.0)).half, a.widened(None).half), (Some(5.0), None));
    }
}
