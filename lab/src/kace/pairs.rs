//! KACE's published pairs, and its predictors on programs whose family they did not see.
//!
//! Each predicts the summed throughput of a pair from its features and picks the partner with the largest: linear regression,
//! a random forest (columns of a split: the square root, as in the grid that its program searches) and a neural network.

use std::collections::BTreeMap;

use csv::StringRecord;
use radrm_estimator::evaluate::mean_absolute;

use super::rules::rules;
use super::{Linear, Network, pair_features};
use crate::forest::{Forest, Settings};

/// Metrics of a workload alone: by Nsight Compute, by nvidia-smi, and its throughput.
pub(super) const METRICS: [&str; 10] = [
    "_Threads",
    "_Compute (SM) Throughput",
    "_DRAM Throughput",
    "_Memory Throughput",
    "_Registers",
    "_Static Shared Memory",
    "sm%",
    "mem%",
    "memcap",
    "exclusive_throughput",
];

/// True for the metrics that are no percentages.
const ABSOLUTE: [bool; 10] = [true, false, false, false, true, true, false, false, true, true];

/// Two workloads that shared a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct KacePair {
    /// Names of the workloads.
    pub names: [String; 2],
    /// Metrics of each alone, in the order of the published columns.
    /// SM throughput is the second, DRAM throughput the third, the utilisation of the GPU the seventh.
    pub metrics: [Vec<f64>; 2],
    /// Throughput of each beside the other.
    pub together: [f64; 2],
    /// And alone.
    pub alone: [f64; 2],
}

impl KacePair {
    /// The model that one of them runs, whatever its batch size.
    #[must_use]
    pub fn family(&self, at: usize) -> &str {
        self.names[at].split("_batch").next().unwrap_or_default()
    }

    /// Returns true if one of them is of this family.
    #[must_use]
    pub fn has(&self, family: &str) -> bool {
        (0..2).any(|at| self.family(at) == family)
    }

    /// The speed of one of them against running alone. What is faster together is noise.
    #[must_use]
    pub fn speed(&self, at: usize) -> f64 {
        (self.together[at] / self.alone[at]).min(1.0)
    }

    pub(super) fn features(&self) -> Vec<f64> {
        pair_features(&self.metrics[0], &self.metrics[1], &ABSOLUTE)
    }

    pub(super) fn sum(&self) -> f64 {
        self.together.iter().sum()
    }

    /// The metrics of one of them, then those of the other.
    fn both(&self, at: usize) -> Vec<f64> {
        [&self.metrics[at][..], &self.metrics[1 - at]].concat()
    }
}

/// The pairs of rows with these columns; `None`: they have other columns. A row without a figure, or with a throughput of 0, is
/// left out.
#[must_use]
pub fn read_pairs<'a>(
    head: &StringRecord,
    rows: impl Iterator<Item = &'a StringRecord>,
) -> Option<Vec<KacePair>> {
    let at = |column: String| head.iter().position(|name| *name == column);
    let names = [at("workload1".into())?, at("workload2".into())?];
    let together = [at("w1throughput".into())?, at("w2throughput".into())?];
    let metrics = |which: usize| -> Option<Vec<usize>> {
        METRICS.iter().map(|metric| at(format!("w{which}{metric}"))).collect()
    };
    let metrics = [metrics(1)?, metrics(2)?];
    let pair = |row: &StringRecord| {
        let number = |at: usize| row.get(at)?.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let all = |of: &[usize]| of.iter().map(|at| number(*at)).collect::<Option<Vec<f64>>>();
        let metrics = [all(&metrics[0])?, all(&metrics[1])?];
        let alone = [0, 1].map(|at: usize| metrics[at][METRICS.len() - 1]);
        let together = [number(together[0])?, number(together[1])?];
        let names = [row.get(names[0])?.to_owned(), row.get(names[1])?.to_owned()];
        let positive = alone.iter().chain(&together).all(|rate| *rate > 0.0);
        positive.then_some(KacePair { names, metrics, together, alone })
    };
    Some(rows.filter_map(pair).collect())
}

/// The families of pairs, each once.
fn families(pairs: &[KacePair]) -> Vec<&str> {
    let mut all: Vec<&str> = pairs.iter().flat_map(|pair| [pair.family(0), pair.family(1)]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Calls `work` for each family with the pairs without it, which are learned from, and those with it.
fn held_out<'a>(pairs: &'a [KacePair], mut work: impl FnMut(&'a str, &[&'a KacePair], &[&'a KacePair])) {
    for family in families(pairs) {
        let (test, train): (Vec<&KacePair>, Vec<&KacePair>) = pairs.iter().partition(|pair| pair.has(family));
        work(family, &train, &test);
    }
}

/// Accuracy of one of KACE's predictors on families that it did not see, or of a rule that predicts nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Name of the predictor or rule.
    pub name: String,
    /// Mean error of the summed throughput, relative; `None` for rules.
    pub error: Option<f64>,
    /// Workloads whose best partner is picked.
    pub best: usize,
    /// Of so many.
    pub workloads: usize,
    /// The part of the best partner's summed throughput that the picked one gives, in the mean.
    pub part: f64,
}

/// Something that predicts from features.
type Predict = Box<dyn Fn(&[f64]) -> f64>;

/// One way to learn it.
type Fit = fn(&[Vec<f64>], &[f64]) -> Option<Predict>;

fn linear(rows: &[Vec<f64>], target: &[f64]) -> Option<Predict> {
    let model = Linear::fit(rows, target)?;
    Some(Box::new(move |row| model.predict(row)))
}

fn forest(rows: &[Vec<f64>], target: &[f64]) -> Option<Predict> {
    let columns = (rows.first()?.len() as f64).sqrt() as usize;
    let model = Forest::fit(rows, target, Settings { columns, ..Settings::default() })?;
    Some(Box::new(move |row| model.predict(row)))
}

fn network(rows: &[Vec<f64>], target: &[f64]) -> Option<Predict> {
    let model = Network::fit(rows, target)?;
    Some(Box::new(move |row| model.predict(row)))
}

/// Scores of each workload's partners, the highest being picked, and their summed throughputs.
pub(super) type Partners<'a> = BTreeMap<&'a str, Vec<(f64, f64)>>;

/// Predictors and rules; empty where the pairs are too few to hold a family out.
#[must_use]
pub fn baselines(pairs: &[KacePair]) -> Vec<Baseline> {
    let all: [(&'static str, Fit); 3] =
        [("linear regression", linear), ("random forest", forest), ("neural network", network)];
    let mut found: Vec<Baseline> =
        all.into_iter().filter_map(|(name, fit)| baseline(name, fit, pairs)).collect();
    if !found.is_empty() {
        found.extend(rules(pairs));
    }
    found
}

fn baseline(name: &'static str, fit: Fit, pairs: &[KacePair]) -> Option<Baseline> {
    let mut errors = Vec::new();
    let mut partners = Partners::new();
    let mut complete = true;
    held_out(pairs, |family, train, test| {
        let rows: Vec<Vec<f64>> = train.iter().map(|pair| pair.features()).collect();
        let target: Vec<f64> = train.iter().map(|pair| pair.sum()).collect();
        let Some(predict) = fit(&rows, &target) else {
            complete = false;
            return;
        };
        for pair in test {
            let (predicted, seen) = (predict(&pair.features()), pair.sum());
            errors.push((predicted / seen, 1.0));
            for at in (0..2).filter(|at| pair.family(*at) == family) {
                partners.entry(&pair.names[at]).or_default().push((predicted, seen));
            }
        }
    });
    (complete && !partners.is_empty())
        .then(|| picked(name.to_owned(), Some(mean_absolute(errors)), &partners))
}

/// Score of a choice of partners.
pub(super) fn picked(name: String, error: Option<f64>, partners: &Partners<'_>) -> Baseline {
    let (mut best, mut part) = (0, 0.0);
    for of in partners.values() {
        let most = of.iter().map(|(_, seen)| *seen).fold(0.0, f64::max);
        // Of equal ones the first, as KACE's program takes it.
        let picked = of.iter().copied().reduce(|first, next| if next.0 > first.0 { next } else { first });
        let picked = picked.map_or(0.0, |of| of.1);
        best += usize::from(picked >= most);
        part += picked / most;
    }
    let workloads = partners.len();
    Baseline { name, error, best, workloads, part: part / workloads as f64 }
}

/// Mean absolute error of the speed of each job, by a random forest on the metrics of both, for families that it did not see; and
/// of the mean speed as the prediction. `None` where the pairs are too few.
#[must_use]
pub fn speeds_by_forest(pairs: &[KacePair]) -> Option<[f64; 2]> {
    let (mut errors, mut naive) = (Vec::new(), Vec::new());
    held_out(pairs, |_, train, test| {
        let both = || train.iter().flat_map(|pair| [(pair, 0), (pair, 1)]);
        let rows: Vec<Vec<f64>> = both().map(|(pair, at)| pair.both(at)).collect();
        let target: Vec<f64> = both().map(|(pair, at)| pair.speed(at)).collect();
        let Some(model) = Forest::fit(&rows, &target, Settings::default()) else { return };
        let mean = target.iter().sum::<f64>() / target.len() as f64;
        for (pair, at) in test.iter().flat_map(|pair| [(pair, 0), (pair, 1)]) {
            errors.push((model.predict(&pair.both(at)), pair.speed(at)));
            naive.push((mean, pair.speed(at)));
        }
    });
    (!errors.is_empty()).then(|| [mean_absolute(errors), mean_absolute(naive)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let metrics = |which: usize| METRICS.map(|metric| format!("w{which}{metric}")).join(",");
        let head = format!("workload1,workload2,w1throughput,w2throughput,{},{}", metrics(1), metrics(2));
        let rows = (0..24).map(|n| {
            let (a, b) = (n % 4, n / 4 % 3);
            let figures = |of: i32| {
                (0..9)
                    .map(|at| (10 * of + at).to_string())
                    .chain([(20 + of).to_string()])
                    .collect::<Vec<_>>()
                    .join(",")
            };
            format!("f{a}_batch{n},f{b}_batch1,{},{},{},{}", 10 + a, 12 + b, figures(a), figures(b))
        });
        std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
    }

    fn read(text: &str) -> Option<Vec<KacePair>> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().unwrap().clone();
        let rows: Vec<StringRecord> = reader.records().map(Result::unwrap).collect();
        read_pairs(&head, rows.iter())
    }

    #[test]
    fn pairs_are_read_by_their_columns_and_rows_without_figures_left_out() {
        let pairs = read(&text()).unwrap();
        assert_eq!(pairs.len(), 24);
        let first = &pairs[1];
        assert_eq!((first.family(0), first.together, first.alone), ("f1", [11.0, 12.0], [21.0, 20.0]));
        assert!((first.speed(1) - 0.6).abs() < 1e-12);
        assert_eq!(read("program,batch,peak_mib\na,1,2\n"), None);
        let broken = text().replacen(",10,12,", ",none,12,", 1).replacen(",11,12,", ",0,12,", 1);
        assert_eq!(read(&broken).unwrap().len(), 22);
    }

    #[test]
    fn each_predictor_is_scored_on_families_that_it_did_not_see() {
        let pairs = read(&text()).unwrap();
        let found = baselines(&pairs);
        assert_eq!(found.len(), 8, "three predictors and five rules");
        for of in &found {
            assert!(
                of.error.is_none_or(f64::is_finite)
                    && (0.0..=1.0).contains(&of.part)
                    && of.best <= of.workloads,
                "{of:?}"
            );
        }
        assert!(found[0].error.unwrap() < 0.05, "the sums are linear: {found:?}");
        assert_eq!(baselines(&pairs[..1]), []);
    }
}
