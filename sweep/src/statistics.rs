//! Means over repetitions, with their uncertainty.

/// A mean and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of its 95 % interval; `None` with fewer than two values.
    pub half: Option<f64>,
    /// How many values.
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
        let freedom = count - 1;
        let half =
            (freedom > 0).then(|| student_95(freedom) * (squares / freedom as f64 / count as f64).sqrt());
        Some(Self { mean, half, count })
    }
}

/// Student's t for 95 %, two-sided; between the rows by 1/freedom, in which it is almost a line.
fn student_95(freedom: usize) -> f64 {
    const SMALL: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    const ROWS: [(f64, f64); 6] =
        [(10.0, 2.228), (15.0, 2.131), (20.0, 2.086), (30.0, 2.042), (60.0, 2.000), (f64::INFINITY, 1.960)];
    if let Some(t) = freedom.checked_sub(1).and_then(|at| SMALL.get(at)) {
        return *t;
    }
    let freedom = freedom as f64;
    for pair in ROWS.windows(2) {
        let ((low, at_low), (high, at_high)) = (pair[0], pair[1]);
        if freedom <= high {
            let part = (1.0 / low - 1.0 / freedom) / (1.0 / low - 1.0 / high);
            return at_low + (at_high - at_low) * part;
        }
    }
    1.960
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // From tables of the distribution.
        for (freedom, t) in
            [(1, 12.706), (4, 2.776), (12, 2.179), (25, 2.060), (40, 2.021), (120, 1.980), (1 << 40, 1.960)]
        {
            assert!((student_95(freedom) - t).abs() < 0.003, "{freedom}: {}", student_95(freedom));
        }
        let mean = Mean::of(&[9.0, 10.0, 11.0]).unwrap();
        assert!(
            (mean.mean - 10.0).abs() < 1e-12 && (mean.half.unwrap() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9
        );
        assert_eq!(Mean::of(&[7.0]), Some(Mean { mean: 7.0, half: None, count: 1 }));
        assert_eq!(Mean::of(&[]), None);
    }
}
