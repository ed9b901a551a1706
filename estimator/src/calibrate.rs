//! Bounds that hold as often as they say: conformal calibration.
//!
//! A score is `log(measured / estimate)`: positive if the estimate was too low. A margin is a quantile of scores, and
//! the bound is `estimate * exp(margin)`. Scores must be of rows that the estimate was not fitted to: a part that was
//! set aside (split), or all rows by folds that keep groups whole (cross). Vovk, Gammerman, Shafer: Algorithmic
//! Learning in a Random World, 2005; adaptive levels: Gibbs and Candès, NeurIPS 2021.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evaluate::group_folds;

/// The score of an estimate beside what was measured.
#[must_use]
pub fn score(measured: f64, estimate: f64) -> f64 {
    (measured / estimate).ln()
}

/// Scores beyond this, up or down, grow with the ratio and no longer with its logarithm.
const LOGARITHMIC: f64 = 0.5;

/// [`score`] up to ±0.5, and linear in `measured / estimate` beyond. So an estimate near zero gives no exponential bound.
#[must_use]
pub fn tempered_score(measured: f64, estimate: f64) -> f64 {
    let score = score(measured, estimate);
    let edge = score.clamp(-LOGARITHMIC, LOGARITHMIC);
    if score == edge { score } else { edge + measured / (estimate * edge.exp()) - 1.0 }
}

/// The ratio `measured / estimate` of a [`tempered_score`].
#[must_use]
pub fn ratio(tempered: f64) -> f64 {
    let edge = tempered.clamp(-LOGARITHMIC, LOGARITHMIC);
    (edge.exp() * (1.0 + tempered - edge)).max(0.0)
}

/// Place of the margin for a level among so many scores, from 1; beyond them if they are too few to promise the level.
pub(crate) fn rank(scores: usize, level: f64) -> usize {
    ((scores + 1) as f64 * level).ceil() as usize
}

/// The margin for a level (0 to 1): the `ceil((n + 1) * level)`-th smallest of n scores, under which the next one lies
/// with that probability. `None` if there are too few scores to promise the level.
#[must_use]
pub fn margin(scores: &[f64], level: f64) -> Option<f64> {
    let rank = rank(scores.len(), level);
    if rank == 0 || rank > scores.len() {
        return None;
    }
    let mut sorted = scores.to_vec();
    Some(*sorted.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
}

/// The quantile of Student's t for a level, 0.5 to 0.995, with so many degrees of freedom, 5 and more. Within 3 % (the normal quantile
/// is Joiner and Rosenblatt's, J. Am. Stat. Assoc. 66, 1971; the rest the first term of Cornish and Fisher's expansion).
#[must_use]
pub fn student(level: f64, freedom: f64) -> f64 {
    let normal = (level.powf(0.135) - (1.0 - level).powf(0.135)) / 0.1975;
    normal + (normal.powi(3) + normal) / (4.0 * freedom)
}

/// Estimates of rows by models that have not seen their group: `fit` gets the rows to learn from and those to
/// estimate, and returns an estimate for each of the latter.
pub fn out_of_group<G: Ord, E>(
    groups: &[G],
    folds: usize,
    mut fit: impl FnMut(&[usize], &[usize]) -> Result<Vec<f64>, E>,
) -> Result<Vec<f64>, E> {
    let fold_of = group_folds(groups, folds);
    let mut estimates = vec![f64::NAN; groups.len()];
    for fold in 0..folds {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..groups.len()).partition(|row| fold_of[*row] == fold);
        if inside.is_empty() {
            continue;
        }
        for (row, estimate) in inside.iter().zip(fit(&outside, &inside)?) {
            estimates[*row] = estimate;
        }
    }
    Ok(estimates)
}

/// Fewest scores for a margin of its own; a cell with fewer has the margin of all.
pub const MIN_SCORES: usize = 60;

/// Margins by cell (Mondrian calibration), with that of all scores for cells that have few.
#[derive(Clone, Debug, PartialEq)]
pub struct Margins<K> {
    /// Of all scores.
    pub pooled: f64,
    /// Of the cells that have enough.
    pub cells: BTreeMap<K, f64>,
}

impl<K: Ord> Margins<K> {
    /// Margins for a level; `None` if all scores together are too few.
    #[must_use]
    pub fn of(scores: impl IntoIterator<Item = (K, f64)>, level: f64) -> Option<Self> {
        let mut by_cell: BTreeMap<K, Vec<f64>> = BTreeMap::new();
        for (cell, score) in scores {
            by_cell.entry(cell).or_default().push(score);
        }
        let all: Vec<f64> = by_cell.values().flatten().copied().collect();
        let pooled = margin(&all, level)?;
        let enough = by_cell.into_iter().filter(|(_, scores)| scores.len() >= MIN_SCORES);
        let cells = enough.filter_map(|(cell, scores)| Some((cell, margin(&scores, level)?))).collect();
        Some(Self { pooled, cells })
    }

    /// The margin of a cell.
    #[must_use]
    pub fn get(&self, cell: &K) -> f64 {
        self.cells.get(cell).copied().unwrap_or(self.pooled)
    }
}

/// Margins at a site whose jobs differ from those that a model was made from.
///
/// Shipped scores count like [`Adaptive::PRIOR`] local ones and fade as local ones come in. The level moves: each miss
/// raises it, each hit lowers it a little, so that in the long run the stated part is covered whatever the jobs are.
/// Until [`Adaptive::ENOUGH`] local scores are known the larger of shipped and local margin holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adaptive {
    /// Level that is promised, 0 to 1.
    level: f64,
    /// Level that is used: moved by hits and misses.
    used: f64,
    /// Quantiles of the shipped scores, evenly spaced.
    shipped: Vec<f64>,
    /// Local scores, the oldest first.
    local: Vec<f64>,
    /// Local scores so far, also those that were dropped.
    seen: usize,
}

impl Adaptive {
    /// Local scores after which the shipped margin is no longer a floor.
    pub const ENOUGH: usize = 10;
    /// Local scores that all shipped ones weigh as much as, before they fade.
    pub const PRIOR: f64 = 10.0;
    /// Local scores after which they weigh half of that.
    const HALVED: f64 = 2.0;
    /// Step by which a miss moves the level.
    const STEP: f64 = 0.02;
    /// Local scores that are kept.
    const KEPT: usize = 500;
    /// Quantiles that are kept of the shipped scores.
    const SHIPPED: usize = 100;

    /// At a new site: `scores` are those that ship with the model. `None` without any.
    #[must_use]
    pub fn new(scores: &[f64], level: f64) -> Option<Self> {
        let mut sorted = scores.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let shipped = (0..=Self::SHIPPED).map(|at| sorted[at * last / Self::SHIPPED]).collect();
        Some(Self { level, used: level, shipped, local: Vec::new(), seen: 0 })
    }

    /// The margin for the next job.
    #[must_use]
    pub fn margin(&self) -> f64 {
        let fade = Self::PRIOR / (1.0 + self.seen as f64 / Self::HALVED);
        let each = fade / self.shipped.len() as f64;
        let mut weighted: Vec<(f64, f64)> = self.shipped.iter().map(|score| (*score, each)).collect();
        let largest = self.largest_confirmed();
        weighted.extend(self.local.iter().map(|score| (score.min(largest), 1.0)));
        weighted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let total = fade + self.local.len() as f64;
        // Not (n + 1) as in `margin`: with few local scores that is above all of them, and the shipped ones are many. The
        // floor and the moving level take its place.
        let mut left = self.used * total;
        let highest = weighted.last().map_or(0.0, |(score, _)| *score);
        let blended = weighted
            .iter()
            .find(|(_, weight)| {
                left -= weight;
                left <= 0.0
            })
            .map_or(highest, |(score, _)| *score);
        if self.seen >= Self::ENOUGH {
            return blended;
        }
        blended.max(self.floor())
    }

    /// No single job decides a margin: the highest local score counts as at most twice the second highest, or twice the
    /// shipped margin where that is more.
    fn largest_confirmed(&self) -> f64 {
        let [_, second] = self.local.iter().fold([f64::NEG_INFINITY; 2], |[first, second], score| {
            [first.max(*score), second.max(first.min(*score))]
        });
        let of = second.max(self.floor());
        if of > 0.0 { 2.0 * of } else { f64::INFINITY }
    }

    /// The shipped margin.
    fn floor(&self) -> f64 {
        self.shipped[(self.level * Self::SHIPPED as f64).ceil() as usize]
    }

    /// A job has ended: `score` is that of its estimate.
    pub fn observe(&mut self, score: f64) {
        let missed = score > self.margin();
        let step = if missed { self.level } else { self.level - 1.0 };
        self.used = (self.used + Self::STEP * step).clamp(0.5, 1.0);
        self.seen += 1;
        self.local.push(score);
        if self.local.len() > Self::KEPT {
            self.local.remove(0);
        }
    }

    /// Local jobs seen so far.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(next: &mut impl FnMut() -> f64) -> f64 {
        (0..12).map(|_| next()).sum::<f64>() - 6.0
    }

    fn numbers(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn quantiles_of_student_are_those_of_tables() {
        for (level, freedom, expected) in [
            (0.95, 10.0, 1.812),
            (0.95, 27.0, 1.703),
            (0.9, 10.0, 1.372),
            (0.99, 20.0, 2.528),
            (0.5, 9.0, 0.0),
        ] {
            let found = student(level, freedom);
            assert!((found - expected).abs() <= 0.03 * expected + 1e-9, "{level} {freedom}: {found}");
        }
    }

    #[test]
    fn a_margin_is_the_conformal_rank_or_nothing() {
        let scores: Vec<f64> = (1..=19).map(f64::from).collect();
        assert_eq!(margin(&scores, 0.95), Some(19.0));
        assert_eq!(margin(&scores[..18], 0.95), None, "18 scores cannot promise 95 %");
        assert_eq!(margin(&scores, 0.5), Some(10.0));
        assert_eq!(margin(&[], 0.5), None);
    }

    #[test]
    fn margins_cover_what_comes_next() {
        let mut next = numbers(3);
        let mut covered = 0;
        for _ in 0..2000 {
            let scores: Vec<f64> = (0..40).map(|_| normal(&mut next)).collect();
            covered += u32::from(normal(&mut next) <= margin(&scores, 0.9).unwrap());
        }
        assert!((1760..1850).contains(&covered), "{covered} of 2000 at 90 %");
    }

    #[test]
    fn rows_are_estimated_without_their_group() {
        let groups = ["a", "b", "a", "c", "b"];
        let estimates = out_of_group(&groups, 3, |learn, estimate| {
            for row in estimate {
                assert!(learn.iter().all(|other| groups[*other] != groups[*row]));
            }
            Ok::<_, ()>(estimate.iter().map(|row| *row as f64).collect())
        });
        assert_eq!(estimates, Ok(vec![0.0, 1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn a_tempered_score_is_a_logarithm_near_one_and_linear_beyond() {
        for (peak, expected) in [(110.0, 1.1_f64.ln()), (70.0, 0.7_f64.ln()), (100.0, 0.0)] {
            assert!((tempered_score(peak, 100.0) - expected).abs() < 1e-12);
        }
        // Twice the ratio is twice the way, and not ln 2 more.
        let of = |peak: f64| tempered_score(peak, 1.0);
        assert!(((of(4000.0) - of(2000.0)) / (of(2000.0) - of(1000.0)) - 2.0).abs() < 1e-9);
        assert!(of(1e-300) > -1.6);
        for peak in [0.2, 0.6, 0.61, 1.0, 1.6, 1.7, 40.0] {
            assert!((ratio(of(peak)) / peak - 1.0).abs() < 1e-9, "{peak}");
        }
    }

    #[test]
    fn one_job_unlike_all_others_stretches_a_margin_twofold_at_most() {
        let shipped: Vec<f64> = (0..1000).map(|n| f64::from(n) / 950.0).collect();
        for jobs in [0, 1, 5, 12, 40] {
            let mut site = Adaptive::new(&shipped, 0.95).unwrap();
            (0..jobs).for_each(|_| site.observe(0.3));
            site.observe(80.0);
            assert!(site.margin() <= 2.01, "{jobs} jobs: {}", site.margin());
            site.observe(70.0);
            assert!(jobs > 12 || site.margin() > 60.0, "two of them are a finding: {}", site.margin());
        }
    }

    #[test]
    fn small_cells_have_the_margin_of_all() {
        let scores = (0..200).map(|n| (n < 150, f64::from(n)));
        let margins = Margins::of(scores, 0.9).unwrap();
        assert_eq!(margins.get(&true), 135.0);
        assert_eq!(margins.get(&false), margins.pooled);
    }

    #[test]
    fn a_new_site_keeps_the_shipped_margin_for_ten_jobs() {
        let mut next = numbers(5);
        let shipped: Vec<f64> = (0..1000).map(|_| normal(&mut next)).collect();
        let mut site = Adaptive::new(&shipped, 0.95).unwrap();
        let floor = site.shipped[95];
        assert_eq!(site.margin(), floor, "with nothing known here it is the shipped one");
        for _ in 0..Adaptive::ENOUGH {
            assert!(site.margin() >= floor);
            site.observe(-3.0);
        }
        for _ in 0..40 {
            site.observe(-3.0);
        }
        assert!(site.margin() < floor, "jobs that need less bring the margin down");
    }

    #[test]
    fn a_shifted_site_is_covered_after_a_while() {
        let mut next = numbers(7);
        let shipped: Vec<f64> = (0..1000).map(|_| 0.1 * normal(&mut next)).collect();
        let mut site = Adaptive::new(&shipped, 0.95).unwrap();
        let mut missed = 0;
        for job in 0..1000 {
            // All is larger here than at the site where the model was made.
            let score = 0.5 + 0.2 * normal(&mut next);
            missed += u32::from(job >= 20 && score > site.margin());
            site.observe(score);
        }
        assert!((25..80).contains(&missed), "{missed} of 980 at 95 %");
    }
}
