//! Folds by group, and the scores by which estimators are compared.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The fold of each row, 0 to `folds` - 1: all rows of a group are in one fold, and folds are filled evenly with the
/// largest groups first. The same rows give the same folds in any order of the groups.
#[must_use]
pub fn group_folds<G: Ord>(groups: &[G], folds: usize) -> Vec<usize> {
    let mut sizes: BTreeMap<&G, usize> = BTreeMap::new();
    for group in groups {
        *sizes.entry(group).or_default() += 1;
    }
    let mut order: Vec<(&G, usize)> = sizes.into_iter().collect();
    // The sort is stable: groups of one size stay in the order of their names.
    order.sort_by_key(|(_, size)| usize::MAX - size);
    let mut filled = vec![0usize; folds.max(1)];
    let mut fold_of: BTreeMap<&G, usize> = BTreeMap::new();
    for (group, size) in order {
        let least = (0..filled.len()).min_by_key(|fold| filled[*fold]).unwrap_or(0);
        filled[least] += size;
        fold_of.insert(group, least);
    }
    groups.iter().map(|group| fold_of[group]).collect()
}

/// One estimate beside what was measured, in any unit, both above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Measured figure.
    pub measured: f64,
    /// The estimate.
    pub estimate: f64,
    /// The upper bound.
    pub bound: f64,
}

/// Accuracy of estimates of needs, in the order in which they are published: too low is what hurts other jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Estimates compared.
    pub rows: usize,
    /// Part of the rows whose bound is below what was measured, 0 to 1.
    pub under: f64,
    /// Mean of bound / measured - 1.
    pub over: f64,
    /// Median of |estimate / measured - 1|.
    pub median: f64,
    /// Mean of |estimate / measured - 1| (MAPE).
    pub mape: f64,
}

impl Scores {
    /// Scores of some outcomes.
    #[must_use]
    pub fn of(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        let mut scores = Self::default();
        let mut errors = Vec::new();
        for Outcome { measured, estimate, bound } in outcomes {
            scores.under += f64::from(u8::from(bound < measured));
            scores.over += bound / measured - 1.0;
            errors.push((estimate / measured - 1.0).abs());
        }
        let rows = errors.len().max(1) as f64;
        scores.rows = errors.len();
        scores.under /= rows;
        scores.over /= rows;
        scores.mape = errors.iter().sum::<f64>() / rows;
        errors.sort_unstable_by(f64::total_cmp);
        scores.median = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
        scores
    }

    /// Part of the rows at or under their bound.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        1.0 - self.under
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, under, over, median, mape } = self;
        write!(
            f,
            "n {rows:6}  under {:5.2} %  over {:+6.1} %  median error {:5.1} %  MAPE {:5.1} %",
            under * 100.0,
            over * 100.0,
            median * 100.0,
            mape * 100.0
        )
    }
}

/// Mean of |a - b|; 0 without pairs.
#[must_use]
pub fn mean_absolute(pairs: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let (sum, count) = pairs.into_iter().fold((0.0, 0.0), |(sum, n), (a, b)| (sum + (a - b).abs(), n + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_never_split_and_folds_are_even() {
        let groups = ["a", "b", "a", "c", "d", "a", "b", "e"];
        let folds = group_folds(&groups, 3);
        for (i, left) in groups.iter().enumerate() {
            for (j, right) in groups.iter().enumerate() {
                assert!(left != right || folds[i] == folds[j]);
            }
        }
        let filled: Vec<usize> = (0..3).map(|fold| folds.iter().filter(|at| **at == fold).count()).collect();
        assert_eq!(filled.iter().sum::<usize>(), 8);
        assert!(filled.iter().all(|rows| (2..=3).contains(rows)), "{filled:?}");
    }

    #[test]
    fn scores_are_those_of_hand() {
        let of = |measured, estimate, bound| Outcome { measured, estimate, bound };
        let scores = Scores::of([of(100.0, 90.0, 110.0), of(100.0, 130.0, 140.0), of(200.0, 150.0, 180.0)]);
        assert_eq!(scores.rows, 3);
        assert!((scores.under - 1.0 / 3.0).abs() < 1e-12 && (scores.coverage() - 2.0 / 3.0).abs() < 1e-12);
        assert!((scores.over - (0.1 + 0.4 - 0.1) / 3.0).abs() < 1e-12);
        assert!((scores.median - 0.25).abs() < 1e-12);
        assert!((scores.mape - (0.1 + 0.3 + 0.25) / 3.0).abs() < 1e-12);
        assert_eq!(Scores::of([]).rows, 0);
    }
}
