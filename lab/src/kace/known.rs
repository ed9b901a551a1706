//! KACE's regression on workloads that it knows, by the number of pairs that it has learned from.

use std::collections::BTreeMap;

use radrm_base::random::Rng;

use super::Linear;
use super::pairs::{KacePair, Partners, picked};

/// Pairs that are learned from.
const SIZES: [usize; 5] = [15, 30, 60, 90, 120];
/// Choices of these, the same ones always.
const CHOICES: u64 = 40;

/// Accuracy after so many pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownWorkloads {
    /// Pairs that were learned from.
    pub learned: usize,
    /// The part of the best partner's summed throughput that the picked one gives, in the mean over workloads and choices.
    pub part: f64,
}

/// Picks partners among pairs that were not learned from, by the linear regression on others of the same workloads. Sizes that leave
/// no workload a choice are left out.
#[must_use]
pub fn known_workloads(pairs: &[KacePair]) -> Vec<KnownWorkloads> {
    let parts = |size: usize| {
        let found: Vec<f64> = (0..CHOICES).filter_map(|seed| part(pairs, size, seed)).collect();
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        (!found.is_empty()).then_some(KnownWorkloads { learned: size, part: mean })
    };
    SIZES.into_iter().filter(|size| *size < pairs.len()).filter_map(parts).collect()
}

fn part(pairs: &[KacePair], size: usize, seed: u64) -> Option<f64> {
    let mut order: Vec<&KacePair> = pairs.iter().collect();
    let mut rng = Rng::new(seed, size as u64);
    for at in (1..order.len()).rev() {
        order.swap(at, (rng.unit() * (at + 1) as f64) as usize);
    }
    let (train, test) = order.split_at(size);
    let rows: Vec<Vec<f64>> = train.iter().map(|pair| pair.features()).collect();
    let target: Vec<f64> = train.iter().map(|pair| pair.sum()).collect();
    let model = Linear::fit(&rows, &target)?;
    let mut partners: Partners<'_> = BTreeMap::new();
    for pair in test {
        let scored = (model.predict(&pair.features()), pair.sum());
        // A workload beside itself is one pair.
        let names = if pair.names[0] == pair.names[1] { &pair.names[..1] } else { &pair.names[..] };
        names.iter().for_each(|name| partners.entry(name.as_str()).or_default().push(scored));
    }
    partners.retain(|_, of| of.len() > 1);
    (!partners.is_empty()).then(|| picked(String::new(), None, &partners).part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pairs_of_known_workloads_pick_better_partners() {
        // Each workload has a throughput of its own that no single pair tells from its partner's.
        let rate = |of: usize| [1.0, 2.0, 4.0, 8.0, 3.0, 6.0, 5.0, 7.0][of];
        let metrics =
            |of: usize| (0..10).map(|at| ((of * 7 + at * 5) % 11) as f64 + rate(of) / 10.0).collect();
        let pair = |(a, b): (usize, usize)| KacePair {
            names: [format!("w{a}"), format!("w{b}")],
            metrics: [metrics(a), metrics(b)],
            together: [rate(a), rate(b)],
            alone: [10.0, 10.0],
        };
        let pairs: Vec<KacePair> = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).map(pair).collect();
        let found = known_workloads(&pairs);
        assert_eq!(found.iter().map(|of| of.learned).collect::<Vec<_>>(), [15, 30, 60]);
        assert!(found[1].part > found[0].part - 0.01 && found[1].part > 0.95, "{found:?}");
        assert_eq!(found, known_workloads(&pairs), "the same always");
        assert_eq!(known_workloads(&pairs[..10]), []);
    }
}
