//! One estimate and one bound from all sources.
//!
//! `ln(combined) = sum w_k ln(e_k)` over the sources k that have an estimate. The weights are those, in tenths, that give
//! the least mean bound at the stated level on other families: what is reserved is the bound, and one program that a
//! source misses by far weighs no more than the level lets it. Errors depend on how many runs a program has and on where
//! the batch size lies among theirs, so each such cell has weights and a conformal margin of its own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::own::Point;
use crate::Error;
use crate::calibrate::{MIN_SCORES, margin, rank};

/// Source of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The program's own runs at other batch sizes.
    Own,
    /// A dry run, through the site's line.
    Dry,
    /// A learned model, corrected by own runs.
    Learned,
}

/// All sources, in the order of their figures.
pub const SOURCES: [Source; 3] = [Source::Own, Source::Dry, Source::Learned];

/// An estimate of each source that has one, in the order of [`SOURCES`].
pub type Estimates = [Option<f64>; SOURCES.len()];

/// Position of a batch size among those that a program ran with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// Smaller than all.
    Below,
    /// Between two of them.
    Between,
    /// Larger than all, or there are none.
    Beyond,
}

/// Cases whose errors are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Batch sizes with a run; 3 stands for more as well.
    pub runs: u8,
    /// Position of the batch size among those.
    pub range: Range,
}

impl Cell {
    /// The cell of a batch size beside known ones.
    #[must_use]
    pub fn of(points: &[Point], batch: f64) -> Self {
        let smaller = points.iter().any(|point| point.batch < batch);
        let larger = points.iter().any(|point| point.batch > batch);
        let range = match (smaller, larger) {
            (true, true) => Range::Between,
            (false, true) => Range::Below,
            _ => Range::Beyond,
        };
        Self { runs: points.len().min(3) as u8, range }
    }
}

/// An estimate with its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combined {
    /// The figure to expect.
    pub value: f64,
    /// The upper bound.
    pub bound: f64,
    /// Weight of each source, which sum to 1.
    pub weights: [f64; SOURCES.len()],
}

/// A job that ended: what the sources said of it before, and what it needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its cell.
    pub cell: Cell,
    /// A number of its program.
    pub program: u32,
    /// The sources' estimates, which must not have seen the job's family.
    pub estimates: Estimates,
    /// Measured need.
    pub measured: f64,
}

/// The rule of one cell and one set of sources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellRule {
    cell: Cell,
    /// Weight of each source; those without one are not asked for.
    weights: [Option<f64>; SOURCES.len()],
    /// Logarithm of bound / estimate.
    margin: f64,
    /// Samples it was made from.
    samples: usize,
}

/// Weights and margins of all cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    version: u64,
    /// Source of the samples.
    origin: String,
    /// Coverage of a bound, 0 to 1.
    level: f64,
    cells: Vec<CellRule>,
}

/// Version of the rules that are written and read.
const VERSION: u64 = 1;

/// Data from which the margin of a cell is learned.
const PROGRAMS: &str = "programs with as many batch sizes each as these";

/// A bound is at least this times the peak of a smaller batch size, and at most this times that of a larger one.
const GUARD: f64 = 1.01;

impl Rule {
    /// Learns weights and margins from jobs of several families.
    ///
    /// # Errors
    /// No cell has enough samples to promise the level.
    pub fn learn(samples: &[Sample], level: f64, origin: &str) -> Result<Self, Error> {
        let mut kinds: Vec<Cell> = samples.iter().map(|sample| sample.cell).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut cells = Vec::new();
        for cell in kinds.iter().copied() {
            for set in 1u8..1 << SOURCES.len() {
                let asked: Vec<usize> = (0..SOURCES.len()).filter(|at| set >> at & 1 == 1).collect();
                cells.extend(learn_cell(samples, cell, &asked, level));
            }
        }
        if cells.is_empty() {
            let count = |cell: &Cell| {
                let of_cell = || samples.iter().filter(|sample| sample.cell == *cell);
                (of_cell().count(), of_cell().map(|sample| sample.program).collect::<BTreeSet<_>>().len())
            };
            let (count, found) = kinds.iter().map(count).max().unwrap_or((0, 0));
            let needed = enough_programs(count as f64 / found.max(1) as f64, level).max(found + 1);
            return Err(Error::TooFew { what: PROGRAMS, needed, found });
        }
        Ok(Self { version: VERSION, origin: origin.to_owned(), level, cells })
    }

    /// Combines estimates for a batch size, beside the peaks of the program's own runs. `None` if no source has an
    /// estimate, or the rule was not learned for such a case.
    #[must_use]
    pub fn combine(&self, points: &[Point], batch: f64, estimates: &Estimates) -> Option<Combined> {
        Some(guarded(points, batch, self.weighted(points, batch, estimates)?))
    }

    /// [`Rule::combine`] without the bounds that peaks at other batch sizes set.
    pub(super) fn weighted(&self, points: &[Point], batch: f64, estimates: &Estimates) -> Option<Combined> {
        let cell = Cell::of(points, batch);
        let known = |at: usize| estimates[at].filter(|value| value.is_finite() && *value > 0.0);
        // The rule that asks for most of what is known.
        let rule = self
            .cells
            .iter()
            .filter(|rule| rule.cell == cell)
            .filter(|rule| (0..SOURCES.len()).all(|at| rule.weights[at].is_none() || known(at).is_some()))
            .max_by_key(|rule| rule.weights.iter().flatten().count())?;
        let weights = rule.weights.map(|weight| weight.unwrap_or(0.0));
        let sum: f64 = (0..SOURCES.len()).filter_map(|at| Some(weights[at] * known(at)?.ln())).sum();
        let value = sum.exp();
        Some(Combined { value, bound: value * rule.margin.exp(), weights })
    }

    /// Cells that were not learned here are taken from another rule.
    pub(super) fn fill(&mut self, other: &Self) {
        let asks = |rule: &CellRule| (rule.cell, rule.weights.map(|weight| weight.is_some()));
        let lacking = other.cells.iter().filter(|rule| self.cells.iter().all(|own| asks(own) != asks(rule)));
        let lacking: Vec<CellRule> = lacking.cloned().collect();
        self.cells.extend(lacking);
    }

    /// Coverage of a bound, 0 to 1.
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// The rule as the text of a file.
    ///
    /// # Errors
    /// A value cannot be written: it cannot happen for a rule that was learned or read.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|error| Error::Json(error.to_string()))
    }

    /// Reads a rule, which may come from anywhere.
    ///
    /// # Errors
    /// Another version, or what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let rule: Self = serde_json::from_str(text).map_err(|error| Error::Json(error.to_string()))?;
        rule.check()?;
        Ok(rule)
    }

    /// Checks that a rule that was read makes sense.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.version != VERSION {
            return Err(Error::Version { found: self.version, known: VERSION });
        }
        if !(self.level > 0.0 && self.level < 1.0) {
            return Err(Error::Malformed("its level does not lie between 0 and 1".into()));
        }
        for (at, cell) in self.cells.iter().enumerate() {
            let weights = || cell.weights.iter().flatten();
            let sum: f64 = weights().sum();
            let sound = weights().all(|weight| (0.0..=1.0).contains(weight)) && (sum - 1.0).abs() < 1e-6;
            if !sound || !cell.margin.is_finite() || cell.cell.runs > 3 {
                return Err(Error::Malformed(format!(
                    "the weights or the margin of cell {at} make no sense"
                )));
            }
        }
        Ok(())
    }
}

/// Level of a margin from samples of so many programs. Samples of one program err alike: with them the next program is one
/// of n + 1.
fn level_of_samples(level: f64, programs: usize) -> f64 {
    level * (1.0 + 1.0 / programs as f64)
}

/// Fewest programs, each with so many samples, from which a margin of this level can be learned.
fn enough_programs(each: f64, level: f64) -> usize {
    const MAX: usize = 100_000;
    let suffice = |programs: &usize| {
        let samples = (each * *programs as f64) as usize;
        samples >= MIN_SCORES && rank(samples, level_of_samples(level, *programs)) <= samples
    };
    (1..MAX).find(suffice).unwrap_or(MAX)
}

fn learn_cell(samples: &[Sample], cell: Cell, asked: &[usize], level: f64) -> Option<CellRule> {
    let mut programs = BTreeSet::new();
    let errors: Vec<Vec<f64>> = samples
        .iter()
        .filter(|sample| sample.cell == cell)
        .filter_map(|sample| {
            let errors = asked.iter().map(|at| Some((sample.estimates[*at]? / sample.measured).ln()));
            let errors: Vec<f64> = errors.collect::<Option<_>>()?;
            programs.insert(sample.program);
            errors.iter().all(|error| error.is_finite()).then_some(errors)
        })
        .collect();
    if errors.len() < MIN_SCORES {
        return None;
    }
    let level = level_of_samples(level, programs.len());
    let mut best: Option<(f64, f64, Vec<f64>)> = None;
    for weights in shares(asked.len()) {
        let scores: Vec<f64> = errors
            .iter()
            .map(|errors| -errors.iter().zip(&weights).map(|(error, weight)| error * weight).sum::<f64>())
            .collect();
        let margin = margin(&scores, level)?;
        let cost = scores.iter().map(|score| (margin - score).exp()).sum::<f64>();
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, margin, weights));
        }
    }
    let (_, margin, weights) = best?;
    let mut all = [None; SOURCES.len()];
    for (at, weight) in asked.iter().zip(&weights) {
        all[*at] = Some(*weight);
    }
    Some(CellRule { cell, weights: all, margin, samples: errors.len() })
}

/// All weights in tenths that sum to 1.
fn shares(sources: usize) -> Vec<Vec<f64>> {
    const PARTS: u32 = 10;
    let mut all = vec![(Vec::new(), PARTS)];
    for _ in 1..sources {
        let next = |(weights, left): (Vec<f64>, u32)| {
            (0..=left).map(move |part| {
                let mut more = weights.clone();
                more.push(f64::from(part) / f64::from(PARTS));
                (more, left - part)
            })
        };
        all = all.into_iter().flat_map(next).collect();
    }
    let last = |(mut weights, left): (Vec<f64>, u32)| {
        weights.push(f64::from(left) / f64::from(PARTS));
        weights
    };
    all.into_iter().map(last).collect()
}

/// More samples never need less: bounds stay between those of known batch sizes.
pub(super) fn guarded(points: &[Point], batch: f64, combined: Combined) -> Combined {
    let below = points.iter().filter(|point| point.batch < batch).map(|point| point.peak).fold(0.0, f64::max);
    let above =
        points.iter().filter(|point| point.batch > batch).map(|point| point.peak).fold(f64::MAX, f64::min);
    // Of a program that contradicts itself the smaller size is believed: the bound is the safe side.
    let bound = combined.bound.min(GUARD * above).max(GUARD * below);
    let value = combined.value.min(above).max(below).min(bound);
    Combined { value, bound, ..combined }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: [Point; 2] = [Point { batch: 8.0, peak: 1000.0 }, Point { batch: 32.0, peak: 2000.0 }];

    /// Own runs err by 2 %, dry runs by 10 %, the learned model by 40 %, all independently.
    fn samples() -> Vec<Sample> {
        let mut state = 11u64;
        let mut error = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
        };
        let cell = Cell::of(&RUNS, 64.0);
        (0..500)
            .map(|program| {
                let mut of = |width: f64| Some(3500.0 * (width * error()).exp());
                Sample { cell, program, estimates: [of(0.02), of(0.1), of(0.4)], measured: 3500.0 }
            })
            .collect()
    }

    fn rule() -> Rule {
        Rule::learn(&samples(), 0.95, "a test").unwrap()
    }

    #[test]
    fn cells_follow_the_known_batch_sizes() {
        let range = |batch| Cell::of(&RUNS, batch).range;
        assert_eq!([4.0, 16.0, 64.0].map(range), [Range::Below, Range::Between, Range::Beyond]);
        assert_eq!(Cell::of(&[], 8.0), Cell { runs: 0, range: Range::Beyond });
        assert_eq!(Cell::of(&[RUNS[0]; 9], 8.0).runs, 3);
    }

    #[test]
    fn the_better_source_weighs_more_and_bounds_hold() {
        let rule = rule();
        let combined = rule.combine(&RUNS, 64.0, &[Some(3500.0), Some(3000.0), Some(9000.0)]).unwrap();
        let [own, dry, learned] = combined.weights;
        assert!(own >= 0.9 && dry >= learned, "{combined:?}");
        assert!((own + dry + learned - 1.0).abs() < 1e-9);
        let covered = samples().into_iter().filter(|sample| {
            rule.combine(&RUNS, 64.0, &sample.estimates).is_some_and(|found| found.bound >= sample.measured)
        });
        assert!((470..=485).contains(&covered.count()));
    }

    #[test]
    fn a_source_that_is_missing_is_done_without() {
        let rule = rule();
        let without = rule.combine(&RUNS, 64.0, &[None, Some(3000.0), None]).unwrap();
        assert!((without.value - 3000.0).abs() < 1e-6 && without.weights == [0.0, 1.0, 0.0]);
        let with = rule.combine(&RUNS, 64.0, &[Some(3500.0), Some(f64::NAN), None]).unwrap();
        assert!(with.bound / with.value < without.bound / without.value);
        assert_eq!(rule.combine(&RUNS, 64.0, &[None; 3]), None);
        assert_eq!(rule.combine(&RUNS[..1], 64.0, &[Some(1.0), None, None]), None, "not learned for it");
    }

    #[test]
    fn bounds_stay_between_the_peaks_of_other_sizes() {
        let combined = Combined { value: 500.0, bound: 600.0, weights: [1.0, 0.0, 0.0] };
        assert_eq!(guarded(&RUNS, 64.0, combined).bound, 2020.0);
        assert_eq!(guarded(&RUNS, 64.0, combined).value, 2000.0);
        let high = Combined { value: 5000.0, bound: 6000.0, ..combined };
        assert_eq!((guarded(&RUNS, 4.0, high).value, guarded(&RUNS, 4.0, high).bound), (1000.0, 1010.0));
        let between = guarded(&RUNS, 16.0, high);
        assert_eq!((between.value, between.bound), (2000.0, 2020.0));
    }

    #[test]
    fn a_rule_survives_its_file_and_a_broken_one_is_refused() {
        let rule = rule();
        let text = rule.to_json().unwrap();
        assert_eq!(Rule::parse(&text).unwrap(), rule);
        let refused = |from: &str, to: &str| {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            Rule::parse(&changed).unwrap_err().to_string()
        };
        assert!(refused("\"version\": 1", "\"version\": 9").contains("version 9"));
        assert!(refused("\"level\": 0.95", "\"level\": 95").contains("level"));
        assert!(refused("1.0,", "2.0,").contains("cell"));
        assert!(Rule::learn(&samples()[..9], 0.95, "").is_err());
    }
}
