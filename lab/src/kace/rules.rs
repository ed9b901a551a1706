//! Choice of a partner by one metric and without learning, with which KACE is compared.

use super::pairs::{Baseline, KacePair, METRICS, Partners, picked};

/// Rules that KACE's authors compare with: the partner with the least of this metric of `nvidia-smi`.
const PUBLISHED: [(&str, &str); 3] = [
    ("memory held (MEMCAP)", "memcap"),
    ("memory utilisation (MEM%)", "mem%"),
    ("GPU utilisation (SM%)", "sm%"),
];

/// The published rules, any partner, and of all rules by one metric the one that is best on these very pairs.
pub(super) fn rules(pairs: &[KacePair]) -> Vec<Baseline> {
    let at = |column: &str| METRICS.iter().position(|metric| *metric == column);
    let least = |(name, column): (&str, &str)| Some(by(pairs, format!("least {name}"), at(column)?, -1.0));
    let mut all: Vec<Baseline> = PUBLISHED.into_iter().filter_map(least).collect();
    all.extend(any(pairs));
    let every = (0..METRICS.len()).flat_map(|at| [("least", at, -1.0), ("most", at, 1.0)]);
    let every = every.map(|(word, at, sign)| {
        let metric = METRICS[at].trim_start_matches('_').replace('_', " ");
        by(pairs, format!("best rule: {word} {metric}"), at, sign)
    });
    all.extend(every.max_by(|a, b| a.part.total_cmp(&b.part)));
    all
}

/// The workloads of pairs with what each rule says of their partners.
fn partners<'a>(pairs: &'a [KacePair], score: impl Fn(&KacePair) -> f64) -> Partners<'a> {
    let mut partners = Partners::new();
    for pair in pairs {
        for at in 0..2 {
            partners.entry(&pair.names[at]).or_default().push((score(pair), pair.sum()));
        }
    }
    partners
}

/// The partner with the least or the most of a metric.
fn by(pairs: &[KacePair], name: String, at: usize, sign: f64) -> Baseline {
    picked(name, None, &partners(pairs, |pair| sign * (pair.metrics[0][at] + pair.metrics[1][at])))
}

/// Any partner, in the mean.
fn any(pairs: &[KacePair]) -> Option<Baseline> {
    let partners = partners(pairs, |_| 0.0);
    let (mut best, mut part) = (0.0, 0.0);
    for of in partners.values() {
        let most = of.iter().map(|(_, seen)| *seen).fold(0.0, f64::max);
        best += of.iter().filter(|(_, seen)| *seen >= most).count() as f64 / of.len() as f64;
        part += of.iter().map(|(_, seen)| seen / most).sum::<f64>() / of.len() as f64;
    }
    let workloads = partners.len();
    (workloads > 0).then(|| Baseline {
        name: "any partner (random)".to_owned(),
        error: None,
        best: best.round() as usize,
        workloads,
        part: part / workloads as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_picks_by_its_metric_and_the_best_rule_is_named() {
        // The sum rises with the second metric (SM throughput), and falls with the ninth (memory).
        let pair = |other: usize| {
            let metrics = |of: usize| {
                (0..METRICS.len())
                    .map(|at| if at == 1 || at == 8 { (of * (at + 1)) as f64 } else { 1.0 })
                    .collect()
            };
            KacePair {
                names: ["a".to_owned(), format!("b{other}")],
                metrics: [metrics(1), metrics(other)],
                together: [1.0, other as f64],
                alone: [10.0, 10.0],
            }
        };
        let pairs: Vec<KacePair> = (1..=3).map(pair).collect();
        let found = rules(&pairs);
        let of = |name: &str| found.iter().find(|rule| rule.name.contains(name)).unwrap();
        // a has b1 to b3 with sums of 2 to 4; each b has only a.
        assert!((of("MEMCAP").part - (2.0 / 4.0 + 3.0) / 4.0).abs() < 1e-12);
        assert_eq!((of("MEMCAP").best, of("MEMCAP").workloads, of("MEMCAP").error), (3, 4, None));
        assert!((of("random").part - (0.75 + 3.0) / 4.0).abs() < 1e-12);
        assert_eq!(of("best rule").part, 1.0);
        assert!(of("best rule").name.starts_with("best rule: most "), "{}", of("best rule").name);
    }
}
