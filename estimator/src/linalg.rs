//! Small dense systems: a handful of unknowns.

/// Solves `matrix * x = right` for a symmetric positive definite matrix, row after row, by Cholesky's decomposition.
/// `None` if the matrix is not positive definite (to rounding), or the lengths disagree.
#[must_use]
pub fn solve(matrix: &[f64], right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    if matrix.len() != n * n {
        return None;
    }
    let mut lower = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| lower[row * n + k] * lower[column * n + k]).sum();
            let left = matrix[row * n + column] - known;
            lower[row * n + column] = if row == column {
                // Also refuses NaN.
                if left.is_nan() || left <= 1e-12 * matrix[row * n + row].abs() {
                    return None;
                }
                left.sqrt()
            } else {
                left / lower[column * n + column]
            };
        }
    }
    let mut x = right.to_vec();
    for row in 0..n {
        let known: f64 = (0..row).map(|k| lower[row * n + k] * x[k]).sum();
        x[row] = (x[row] - known) / lower[row * n + row];
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|k| lower[k * n + row] * x[k]).sum();
        x[row] = (x[row] - known) / lower[row * n + row];
    }
    Some(x)
}

/// Least squares with a ridge on all coefficients but the last: `rows` have a 1 as their last value for the intercept.
/// `None` if there is no row or the system cannot be solved.
#[must_use]
pub fn ridge(rows: &[Vec<f64>], target: &[f64], ridge: f64) -> Option<Vec<f64>> {
    let n = rows.first()?.len();
    let (mut matrix, mut right) = (vec![0.0; n * n], vec![0.0; n]);
    for (row, y) in rows.iter().zip(target) {
        for i in 0..n {
            right[i] += row[i] * y;
            for j in 0..n {
                matrix[i * n + j] += row[i] * row[j];
            }
        }
    }
    for i in 0..n.saturating_sub(1) {
        matrix[i * n + i] += ridge;
    }
    solve(&matrix, &right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_a_singular_one_refused() {
        let x = solve(&[4.0, 2.0, 2.0, 3.0], &[10.0, 8.0]).unwrap();
        assert!((x[0] - 1.75).abs() < 1e-12 && (x[1] - 1.5).abs() < 1e-12, "{x:?}");
        assert_eq!(solve(&[1.0, 1.0, 1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(solve(&[f64::NAN], &[1.0]), None);
        assert_eq!(solve(&[1.0, 0.0], &[1.0]), None);
    }

    #[test]
    fn least_squares_recovers_a_line() {
        let rows: Vec<Vec<f64>> = (0..5).map(|x| vec![f64::from(x), 1.0]).collect();
        let target: Vec<f64> = (0..5).map(|x| 3.0 * f64::from(x) - 2.0).collect();
        let line = ridge(&rows, &target, 0.0).unwrap();
        assert!((line[0] - 3.0).abs() < 1e-9 && (line[1] + 2.0).abs() < 1e-9, "{line:?}");
    }
}
