//! Three and more jobs from pairs.

/// Speeds of jobs from the speeds that they have in pairs: slowdowns add, `1 / s_i = 1 + sum_j (1 / s_ij - 1)`.
/// `pair(i, j)` is the speed of job i beside job j alone, above 0.
#[must_use]
pub fn compose(jobs: usize, mut pair: impl FnMut(usize, usize) -> f64) -> Vec<f64> {
    let mut alone = |i: usize, j: usize| (1.0 / pair(i, j).max(1e-3) - 1.0).max(0.0);
    (0..jobs).map(|i| 1.0 / (1.0 + (0..jobs).filter(|j| *j != i).map(|j| alone(i, j)).sum::<f64>())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_add() {
        let speeds = compose(3, |i, j| if i == 0 && j == 1 { 0.5 } else { 0.8 });
        assert!(
            (speeds[0] - 1.0 / 2.25).abs() < 1e-12 && (speeds[1] - 1.0 / 1.5).abs() < 1e-12,
            "{speeds:?}"
        );
        assert_eq!(compose(1, |_, _| 0.1), [1.0]);
        assert_eq!(compose(2, |_, _| 1.3), [1.0, 1.0], "noise makes no job faster than alone");
    }
}
