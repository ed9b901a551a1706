//! Selection of the batches that had their core to themselves.

use std::collections::BTreeMap;

use super::batch::{Batch, Pair};
use super::figures::{Key, Processes, Samples, median};

/// Up to so much more than the best of all yardsticks, the core is whole: clocks vary by a few per cent.
const WHOLE: f64 = 1.1;
/// From so much more on, it is shared: two busy threads of a core get 60 to 80 % each.
const SHARED: f64 = 1.2;
/// Batches that a process's figure takes.
const ENOUGH: usize = 3;

/// One call's figures.
#[derive(Default, Debug)]
pub(super) struct Figure {
    /// From batches on whole cores.
    pub whole: Samples,
    /// From batches on shared ones.
    pub shared: Samples,
}

/// Figures of all calls, and the share of the batches that had whole cores.
pub(super) fn by_core(batches: &BTreeMap<Key, Processes>) -> (BTreeMap<&Key, Figure>, f64) {
    let all = || batches.values().flatten().flat_map(|p| &p.2);
    let best = all().map(|b| b.before.min(b.after)).fold(f64::INFINITY, f64::min);
    let is_whole = |b: &&Batch| b.before.max(b.after) <= best * WHOLE;
    let is_shared = |b: &&Batch| b.before.min(b.after) >= best * SHARED;
    let mut figures: BTreeMap<&Key, Figure> = BTreeMap::new();
    for (key, processes) in batches {
        let figure = figures.entry(key).or_default();
        for (setup, round, batches) in processes {
            let put = |samples: &mut Samples, nanos: Vec<f64>| {
                if nanos.len() >= ENOUGH.min(batches.len()) {
                    samples.entry(*setup).or_default().insert(*round, median(&nanos));
                }
            };
            put(&mut figure.whole, batches.iter().filter(is_whole).map(|b| b.nanos).collect());
            put(&mut figure.shared, batches.iter().filter(is_shared).map(|b| b.nanos).collect());
        }
    }
    let whole = all().filter(is_whole).count() as f64 / all().count().max(1) as f64;
    (figures, whole)
}

/// Of one process, the pairs of which both batches had a whole core, or shared ones. `best`: the best yardstick.
pub(super) fn pairs_by_core(pairs: &[Pair], best: f64, shared: bool) -> Vec<Pair> {
    let fits = |pair: &&Pair| match shared {
        true => pair.yardsticks().into_iter().fold(f64::INFINITY, f64::min) >= best * SHARED,
        false => pair.yardsticks().into_iter().fold(0.0, f64::max) <= best * WHOLE,
    };
    let some: Vec<Pair> = pairs.iter().filter(fits).copied().collect();
    if some.len() >= ENOUGH.min(pairs.len()) { some } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Setup;

    #[test]
    fn batches_are_told_apart_by_their_yardsticks() {
        let key = Key { call: "launch".to_owned(), live: 1, threads: 1 };
        let batch = |before, nanos, after| Batch { before, nanos, after };
        let quiet = [batch(1.0, 6.0, 1.05), batch(1.0, 6.2, 1.0), batch(1.02, 6.1, 1.0)];
        let shared = [batch(1.3, 9.0, 1.4), batch(1.3, 9.5, 1.3), batch(1.5, 9.2, 1.3)];
        let between = [batch(1.0, 7.0, 1.4), batch(1.15, 8.0, 1.15)];
        let process = [&quiet[..], &shared, &between].concat();
        let few = vec![quiet[0], shared[0], shared[1], shared[2]];
        let batches =
            BTreeMap::from([(key.clone(), vec![(Setup::Radrm, 0, process), (Setup::Radrm, 1, few)])]);
        let (figures, share) = by_core(&batches);
        let figure = &figures[&key];
        assert_eq!(figure.whole[&Setup::Radrm], BTreeMap::from([(0, 6.1)]));
        assert_eq!(figure.shared[&Setup::Radrm], BTreeMap::from([(0, 9.2), (1, 9.2)]));
        assert!((share - 4.0 / 12.0).abs() < 1e-9);
    }
}
