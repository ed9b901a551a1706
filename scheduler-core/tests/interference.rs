//! The model of interference against measured pairs that it was not fitted to.
//!
//! The pairs lie beside the project, not in it; without them nothing is checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use radrm_scheduler_core::interference::speeds;
use radrm_scheduler_core::replay::{Profiles, Program};
use radrm_scheduler_core::{Activity, Constants, Permille};

/// A pair that ran together, with the rate of each while both ran.
struct Pair {
    names: [String; 2],
    jobs: [Activity; 2],
    rates: [f64; 2],
}

fn data(name: &str) -> Option<String> {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/workloads_a100").join(name);
    std::fs::read_to_string(path).ok()
}

fn pairs() -> Option<Vec<Pair>> {
    let profiles = Profiles::read(&data("workloads.csv")?).unwrap();
    let text = data("pairs.csv")?;
    let mut lines = text.lines();
    let head: BTreeMap<&str, usize> =
        lines.next()?.split(',').enumerate().map(|(at, name)| (name, at)).collect();
    let activity = |name: &str| -> Activity {
        if name.starts_with("llama3") {
            // Profiled in another file of the same source.
            return Activity { smact: Permille(296), smocc: Permille(167), drama: Permille(610) };
        }
        // Variants with other numbers of epochs have the row of the same model, data and batch.
        let parts: Vec<&str> = name.split('_').collect();
        let batch = parts[2].trim_start_matches("bs").parse().unwrap();
        let program = Program { model: parts[0], dataset: parts[1], batch, epochs: 20, gpus: 1, ran: None };
        profiles.get(name).or_else(|| profiles.find(&program)).unwrap()
    };
    let pair = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let name = |column| fields[head[column]].to_owned();
        let number = |column| fields[head[column]].parse::<f64>().unwrap();
        let (a, b) = (name("a"), name("b"));
        let (pair_a, pair_b) = (number("pair_a_s"), number("pair_b_s"));
        // Only while both run do they share; the longer one then goes on alone.
        let both = pair_a.min(pair_b);
        let rate = |solo: f64, pair: f64| ((solo - (pair - both)) / both).min(1.0);
        Pair {
            jobs: [activity(&a), activity(&b)],
            rates: [rate(number("solo_a_s"), pair_a), rate(number("solo_b_s"), pair_b)],
            names: [a, b],
        }
    };
    Some(lines.map(pair).collect())
}

fn errors<'a>(pairs: impl Iterator<Item = &'a Pair>, constants: &Constants) -> Vec<f64> {
    pairs
        .flat_map(|pair| {
            let predicted = speeds(&pair.jobs, constants);
            [predicted[0] - pair.rates[0], predicted[1] - pair.rates[1]]
        })
        .collect()
}

fn mean_abs(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

/// Sum of soft-L1 losses, which one odd pair cannot rule.
fn loss(pairs: &[&Pair], constants: &Constants) -> f64 {
    let soft = |error: &f64| ((error / 0.05).powi(2) + 1.0).sqrt() - 1.0;
    errors(pairs.iter().copied(), constants).iter().map(soft).sum()
}

/// Coordinate search with shrinking steps: three constants need no more.
fn fit(pairs: &[&Pair]) -> Constants {
    let mut best = Constants { latency: 0.3, compute: 0.3, memory: 0.3, capacity: 1.0 };
    let mut least = loss(pairs, &best);
    let mut step = 0.2;
    while step > 0.004 {
        let mut moved = false;
        for which in 0..3 {
            for by in [-step, step] {
                let mut next = best;
                let value = match which {
                    0 => &mut next.latency,
                    1 => &mut next.compute,
                    _ => &mut next.memory,
                };
                *value = (*value + by).max(0.0);
                let now = loss(pairs, &next);
                if now < least {
                    (best, least, moved) = (next, now, true);
                }
            }
        }
        if !moved {
            step /= 2.0;
        }
    }
    best
}

/// Error of constants fitted without the pairs that are then predicted, and of the mean as prediction.
fn left_out(pairs: &[Pair], fold_of: impl Fn(usize, &Pair) -> Vec<usize>, folds: usize) -> (f64, f64) {
    let (mut ours, mut naive) = (Vec::new(), Vec::new());
    for fold in 0..folds {
        let inside = |at: &usize| fold_of(*at, &pairs[*at]).contains(&fold);
        let train: Vec<&Pair> = (0..pairs.len()).filter(|at| !inside(at)).map(|at| &pairs[at]).collect();
        let test: Vec<&Pair> = (0..pairs.len()).filter(inside).map(|at| &pairs[at]).collect();
        if test.is_empty() {
            continue;
        }
        let rates: Vec<f64> = train.iter().flat_map(|pair| pair.rates).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        ours.extend(errors(test.iter().copied(), &fit(&train)));
        naive.extend(test.iter().flat_map(|pair| pair.rates).map(|rate| rate - mean));
    }
    (mean_abs(&ours), mean_abs(&naive))
}

#[test]
fn the_shipped_constants_are_those_that_fit() {
    let Some(pairs) = pairs() else { return };
    assert_eq!(pairs.len(), 163);
    let all: Vec<&Pair> = pairs.iter().collect();
    let best = fit(&all);
    println!("fitted: {best:?}, mean error {:.4}", mean_abs(&errors(pairs.iter(), &best)));
    let shipped = mean_abs(&errors(pairs.iter(), &Constants::MPS));
    println!("shipped: mean error {shipped:.4}");
    assert!(loss(&all, &Constants::MPS) < loss(&all, &best) * 1.02, "{best:?}");
    assert!(shipped < 0.05);
}

#[test]
fn pairs_that_were_left_out_are_predicted() {
    let Some(pairs) = pairs() else { return };
    let (ours, naive) = left_out(&pairs, |at, _| vec![at * 7 % 5], 5);
    println!("pairs left out: mean error {ours:.4}, of the mean {naive:.4}");
    assert!(ours < 0.055 && ours < naive * 0.5, "{ours} {naive}");
}

#[test]
fn programs_that_were_left_out_are_predicted() {
    let Some(pairs) = pairs() else { return };
    let families = ["efficientnet", "mobilenet", "resnet18", "resnet34", "resnet50", "vgg16", "llama3"];
    let of = |pair: &Pair| -> Vec<usize> {
        (0..families.len())
            .filter(|at| pair.names.iter().any(|name| name.starts_with(families[*at])))
            .collect()
    };
    let (ours, naive) = left_out(&pairs, |_, pair| of(pair), families.len());
    println!("families left out: mean error {ours:.4}, of the mean {naive:.4}");
    assert!(ours < 0.065 && ours < naive * 0.6, "{ours} {naive}");
}
