//! KACE's published predictor on workloads that it knows, by the number of pairs that it learned from.

use std::collections::BTreeSet;

use radrm_estimator::evaluate::mean_absolute;

use super::Linear;
use super::pairs::{KacePair, Partners, picked};
use crate::numbers::Numbers;

/// Numbers of pairs that are learned from.
const SIZES: [usize; 7] = [20, 40, 60, 80, 100, 120, 140];
/// Draws of each number.
const DRAWS: u64 = 40;

/// Accuracy of the linear regression after so many pairs, in the mean over draws of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedOn {
    /// Pairs that were learned from.
    pub pairs: usize,
    /// Mean relative error of the summed throughput of other pairs.
    pub error: f64,
    /// Part of the workloads whose best partner is picked.
    pub best: f64,
    /// Part of the best partner's summed throughput that the picked one gives.
    pub part: f64,
}

/// Scores by number of pairs, as far as there are enough. Judged are pairs that were not learned from, of workloads that each
/// are in one that was; a workload has two such partners at least, as with one there is no choice.
#[must_use]
pub fn by_training_size(pairs: &[KacePair]) -> Vec<TrainedOn> {
    let of = |size: usize| -> Option<TrainedOn> {
        let scores: Vec<TrainedOn> = (0..DRAWS).filter_map(|draw| drawn(pairs, size, draw)).collect();
        let mean = |pick: fn(&TrainedOn) -> f64| scores.iter().map(pick).sum::<f64>() / scores.len() as f64;
        (!scores.is_empty()).then(|| TrainedOn {
            pairs: size,
            error: mean(|of| of.error),
            best: mean(|of| of.best),
            part: mean(|of| of.part),
        })
    };
    SIZES.into_iter().filter(|size| *size < pairs.len()).filter_map(of).collect()
}

fn drawn(pairs: &[KacePair], size: usize, draw: u64) -> Option<TrainedOn> {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    Numbers(draw).shuffle(&mut order);
    let (train, test) = order.split_at(size);
    let rows: Vec<Vec<f64>> = train.iter().map(|at| pairs[*at].features()).collect();
    let sums: Vec<f64> = train.iter().map(|at| pairs[*at].sum()).collect();
    let model = Linear::fit(&rows, &sums)?;
    let known: BTreeSet<&str> = train.iter().flat_map(|at| &pairs[*at].names).map(String::as_str).collect();
    let (mut errors, mut partners) = (Vec::new(), Partners::new());
    for pair in test.iter().map(|at| &pairs[*at]) {
        if pair.names.iter().any(|name| !known.contains(name.as_str())) {
            continue;
        }
        let (predicted, seen) = (model.predict(&pair.features()), pair.sum());
        errors.push((predicted / seen, 1.0));
        // A workload beside itself is one partner.
        let both = if pair.names[0] == pair.names[1] { 1 } else { 2 };
        for name in &pair.names[..both] {
            partners.entry(name).or_default().push((predicted, seen));
        }
    }
    partners.retain(|_, of| of.len() > 1);
    if partners.is_empty() {
        return None;
    }
    let found = picked(String::new(), Some(mean_absolute(errors)), &partners);
    let best = found.best as f64 / found.workloads as f64;
    Some(TrainedOn { pairs: size, error: found.error?, best, part: found.part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kace::pairs::METRICS;

    /// Twelve workloads, each with all. The sum is linear in the features, but for a part that follows from nothing.
    fn made(noise: f64) -> Vec<KacePair> {
        let mut numbers = Numbers(7);
        let metrics = |of: usize| -> Vec<f64> {
            (0..METRICS.len()).map(|at| ((of * 7 + at * 5) % 13) as f64 + 1.0).collect()
        };
        let mut pairs = Vec::new();
        for a in 0..12usize {
            for b in a..12 {
                let own = |of: usize| 10.0 + 3.0 * metrics(of)[0] + metrics(of)[8];
                let together = [own(a) + noise * numbers.next(), own(b)];
                let names = [a, b].map(|of| format!("w{of}_batch1"));
                pairs.push(KacePair { names, metrics: [metrics(a), metrics(b)], together, alone: [99.0; 2] });
            }
        }
        pairs
    }

    #[test]
    fn with_more_pairs_the_choice_comes_closer_to_the_best() {
        let found = by_training_size(&made(40.0));
        // 78 pairs: none is left for larger numbers.
        assert_eq!(found.iter().map(|of| of.pairs).collect::<Vec<_>>(), [20, 40, 60]);
        assert!(found[0].error > found[2].error, "{found:?}");
        assert!(found.iter().all(|of| of.best <= 1.0 && of.part <= 1.0), "{found:?}");
        let exact = by_training_size(&made(0.0));
        assert!(exact.iter().all(|of| of.error < 1e-3 && of.part > 0.999), "{exact:?}");
        assert_eq!(by_training_size(&made(0.0)[..20]), []);
    }
}
