//! Runs that are left out of a site's line, and what the others count.
//!
//! A run may have ended early, shared its GPU, or been another program than the dry run. One such pair would move the line
//! of all programs. So a search starts from the middle of the pairs, and leaves out what is far from the line of the
//! others, by ratio and by spread. What is kept counts less the further it is off, as in a likelihood with long tails.

use super::DryRunFigure;
use super::posterior::Posterior;

/// The dry run and the peak of the real run.
pub(super) type Pair = (DryRunFigure, f64);

/// A real run that was left out, because its peak is far from what the others let expect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOut {
    /// Memory that its dry run held.
    pub held: f64,
    /// Memory that it took.
    pub peak: f64,
    /// Memory that the others let expect.
    pub expected: f64,
}

/// A peak is left out only if it is above this times the expected one, or below the expected one divided by this. No dry
/// run of a program that was measured is off by as much.
const RATIO: f64 = 2.0;
/// And only if it is off by more than this many spreads.
pub(super) const SPREADS: f64 = 5.0;
/// Beyond this many spreads the weight of a pair in the line falls.
const FULL_WEIGHT: f64 = 3.0;
/// Pairs from which on their own middle is where the search starts, and no longer the line that ships.
const MIN_MIDDLE: usize = 3;
/// A third of the pairs may be left out; the line that ships counts like so many pairs more.
const PRIOR_PAIRS: usize = 4;

/// The pairs that count, and those that are left out. If most are unlike each other, all of them count.
pub(super) fn screened(prior: &Posterior, pairs: &[Pair]) -> (Vec<Pair>, Vec<LeftOut>) {
    const ROUNDS: usize = 8;
    let start = match middle(prior, pairs) {
        Some(fixed) => prior.moved_to(fixed),
        None => *prior,
    };
    let mut kept: Vec<bool> = pairs.iter().map(|pair| expected_if_far(&start, pair).is_none()).collect();
    let mut left_out = Vec::new();
    for _ in 0..ROUNDS {
        let counted: Vec<Pair> = of(pairs, &kept).collect();
        let line = prior.after(&counted);
        let mut own = line.without_own(&counted, &[]).into_iter();
        left_out.clear();
        let mut next = Vec::with_capacity(pairs.len());
        for (pair, kept) in pairs.iter().zip(&kept) {
            let others = if *kept { own.next().map_or(line, |(others, _)| others) } else { line };
            let expected = expected_if_far(&others, pair);
            left_out.extend(expected.map(|expected| LeftOut { held: pair.0.held, peak: pair.1, expected }));
            next.push(expected.is_none());
        }
        if next == kept {
            break;
        }
        kept = next;
    }
    if 3 * left_out.len() > pairs.len() + PRIOR_PAIRS {
        return (pairs.to_vec(), Vec::new());
    }
    (of(pairs, &kept).collect(), left_out)
}

/// Weight of each pair in the line.
pub(super) fn weights(prior: &Posterior, pairs: &[Pair]) -> Vec<f64> {
    const ROUNDS: usize = 2;
    let mut weights = vec![1.0; pairs.len()];
    for _ in 0..ROUNDS {
        let scores = prior.after_weighted(pairs, &weights).without_own(pairs, &weights);
        let next = scores.iter().map(|(_, score)| (FULL_WEIGHT / score.abs().max(FULL_WEIGHT)).powi(4));
        weights = next.collect();
    }
    weights
}

fn of<'a>(pairs: &'a [Pair], kept: &'a [bool]) -> impl Iterator<Item = Pair> + 'a {
    pairs.iter().zip(kept).filter(|(_, kept)| **kept).map(|(pair, _)| *pair)
}

/// The expected peak, if the pair's is far from it.
fn expected_if_far(line: &Posterior, (run, peak): &Pair) -> Option<f64> {
    let expected = line.estimate(run);
    let is_far = !(expected / RATIO..=expected * RATIO).contains(peak)
        && (peak - expected).abs() > SPREADS * line.spread(run) * expected;
    is_far.then_some(expected)
}

/// The weighted median of what the peaks have beyond their dry runs.
fn middle(prior: &Posterior, pairs: &[Pair]) -> Option<f64> {
    if pairs.len() < MIN_MIDDLE {
        return None;
    }
    let beyond = |(run, peak): &Pair| (peak - prior.slope() * run.held, 1.0 / prior.deviation(run));
    let mut all: Vec<(f64, f64)> = pairs.iter().map(beyond).collect();
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = all.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let found = all.iter().find(|(_, weight)| {
        left -= weight;
        left <= 0.0
    });
    found.map(|(beyond, _)| *beyond)
}
