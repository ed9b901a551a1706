//! Other sites: KACE's pairs and triples, and Gavel's pairs, of which no activities are known.

use std::collections::BTreeMap;
use std::fmt;

use radrm_base::Permille;
use radrm_estimator::across::{self, Margins, Rate, Throughput};
use radrm_estimator::boost::{Ensemble, Settings};
use radrm_estimator::evaluate::mean_absolute;
use radrm_estimator::interference::{Activity, Constants, Effects, Program, Resident, compose, speeds};
use radrm_estimator::{Error, Table};
use radrm_lab::data::{self, Data};
use radrm_lab::kace::{Baseline, KacePair, Linear, baselines, speeds_by_forest};

use super::published::{rows, shuffled, text};

/// Errors on KACE's pairs (V100, MPS), family held out.
#[derive(Debug)]
pub struct Kace {
    /// Of the mean as prediction, of boosting on both programs' metrics, of a linear regression for each job, of a random
    /// forest on both programs' metrics.
    pub error: [(&'static str, f64); 4],
    /// KACE's own, of the summed throughput.
    pub summed: Vec<Baseline>,
    /// Triples from measured pairs: adding slowdowns, multiplying speeds.
    pub triples: (usize, f64, f64),
}

impl fmt::Display for Kace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, error) in self.error {
            writeln!(f, "  error of a speed, {name}: {error:.3}")?;
        }
        for Baseline { name, error, best, workloads, part } in &self.summed {
            // A rule states an order alone.
            let error = error.map_or_else(String::new, |error| format!("relative error {error:.2}, "));
            writeln!(
                f,
                "  KACE's {name} of the sum: {error}best partner for {best} of {workloads}, {part:.3} of its sum"
            )?;
        }
        let (triples, added, product) = self.triples;
        writeln!(
            f,
            "  {triples} triples from pairs: slowdowns added {added:.3}, speeds multiplied {product:.3}"
        )
    }
}

pub fn kace() -> Option<Result<Kace, Error>> {
    let text = text("kace/pairs_mps100_features_labels.csv")?;
    let Ok(Data::Pairs(pairs)) = data::read(&text) else { panic!("KACE's pairs") };
    let mut alone: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows("kace/system_metrics_exclusive.csv")?.iter() {
        alone.insert(row.text("Type").to_owned(), row.number("Exclusive100"));
    }
    Some(scored(&pairs, &alone))
}

fn scored(pairs: &[KacePair], alone: &BTreeMap<String, f64>) -> Result<Kace, Error> {
    let mut names: Vec<&str> = pairs.iter().flat_map(|pair| [0, 1].map(|at| pair.family(at))).collect();
    names.sort_unstable();
    names.dedup();
    // Metrics of both, and what the formula makes of the activities among them.
    let both = |pair: &KacePair, at: usize| {
        let activity = |metrics: &[f64]| Activity {
            smact: Permille::from_fraction(metrics[6] / 100.0),
            smocc: Permille(0),
            drama: Permille::from_fraction(metrics[2] / 100.0),
        };
        let jobs = [activity(&pair.metrics[at]), activity(&pair.metrics[1 - at])];
        [&pair.metrics[at][..], &pair.metrics[1 - at][..], &speeds(&jobs, &Constants::A100_40GB)[..]].concat()
    };
    let mut errors = [Vec::new(), Vec::new(), Vec::new()];
    for held in &names {
        let has = |pair: &&KacePair| pair.has(held);
        let (test, train): (Vec<&KacePair>, Vec<&KacePair>) = pairs.iter().partition(has);
        let mut table = Table::new((0..22).map(|at| at.to_string()));
        let (mut target, mut linear_rows) = (Vec::new(), Vec::new());
        for pair in &train {
            for at in 0..2 {
                table.push(&both(pair, at))?;
                linear_rows.push(both(pair, at));
                target.push(pair.speed(at));
            }
        }
        let settings = Settings { trees: 200, leaves: 8, min_rows: 5, ..Settings::default() };
        let trees = Ensemble::fit(&table, &target, &settings)?;
        let linear = Linear::fit(&linear_rows, &target).expect("rows");
        let mean = target.iter().sum::<f64>() / target.len() as f64;
        for pair in test {
            for at in 0..2 {
                let (row, seen) = (both(pair, at), pair.speed(at));
                errors[0].push((mean, seen));
                errors[1].push((trees.predict(&row).clamp(0.0, 1.0), seen));
                errors[2].push((linear.predict(&row).clamp(0.0, 1.0), seen));
            }
        }
    }
    let error = |at: usize| mean_absolute(errors[at].iter().copied());
    Ok(Kace {
        error: [
            ("mean", error(0)),
            ("boosting", error(1)),
            ("linear", error(2)),
            ("random forest", speeds_by_forest(pairs).expect("families")[0]),
        ],
        summed: baselines(pairs),
        triples: triples(pairs, alone),
    })
}

fn numbers(tuple: &str) -> Option<Vec<f64>> {
    tuple.trim_matches(['(', ')']).split(',').map(|part| part.trim().parse().ok()).collect()
}

/// Triples from the measured speeds of their pairs.
fn triples(pairs: &[KacePair], alone: &BTreeMap<String, f64>) -> (usize, f64, f64) {
    let mut speeds: BTreeMap<(String, String), f64> = BTreeMap::new();
    for pair in pairs {
        for at in 0..2 {
            speeds.insert((pair.names[at].clone(), pair.names[1 - at].clone()), pair.speed(at));
        }
    }
    let (mut added, mut product, mut count) = (Vec::new(), Vec::new(), 0);
    let Some(all) = rows("kace/triples_by_mps_partition.csv.gz") else { return (0, 0.0, 0.0) };
    for row in all.iter() {
        let names = ["workload1", "workload2", "workload3"].map(|column| row.text(column).to_owned());
        let Some(together) = numbers(row.text("(w1_100, w2_100, w3_100)")) else { continue };
        let known = |i: usize, j: usize| speeds.get(&(names[i].clone(), names[j].clone())).copied();
        let all =
            (0..3).all(|i| (0..3).all(|j| i == j || known(i, j).is_some()) && alone.contains_key(&names[i]));
        if !all {
            continue;
        }
        count += 1;
        let pair = |i: usize, j: usize| known(i, j).unwrap_or(1.0);
        // What they do to a GPU is not known: nothing is capped.
        let unknown = [Resident { program: None, activity: Activity::default() }; 3];
        let mut sums = Vec::new();
        compose(&unknown, 1.0, |i, j| [pair(i, j), pair(j, i)], &mut sums);
        for i in 0..3 {
            let seen = (together[i] / alone[&names[i]]).min(1.0);
            added.push((sums[i], seen));
            product.push(((0..3).filter(|j| *j != i).map(|j| pair(i, j)).product(), seen));
        }
    }
    (count, mean_absolute(added), mean_absolute(product))
}

/// A pair of Gavel's programs, with both speeds.
type GavelPair = ([String; 2], [f64; 2]);

/// Errors on Gavel's pairs of one GPU model, families held out in turn. Each row: of the mean as prediction, of what the
/// other families' pairs taught, and after 1 and after 5 pairs were observed.
#[derive(Debug)]
pub struct Gavel {
    /// 1 or 5 pairs of each of the family's programs were observed; all its other pairs are judged.
    pub family: [f64; 4],
    /// 1 or 5 pairs of one program were observed and none of its siblings'; those of its pairs are judged that no row observed.
    pub lone_program: [f64; 4],
}

pub fn gavel(gpu: &str) -> Option<Gavel> {
    let mut pairs: Vec<GavelPair> = Vec::new();
    for row in rows("gavel/gavel_pairs.csv")?.iter().filter(|row| row.text("gpu") == gpu) {
        let names = ["1", "2"]
            .map(|at| format!("{} batch {}", row.text(&format!("m{at}")), row.text(&format!("b{at}"))));
        let speeds = ["s1", "s2"].map(|column| row.number(column));
        if speeds.iter().all(|speed| *speed > 0.0) && names[0] <= names[1] {
            pairs.push((names, speeds.map(|speed| speed.min(1.0))));
        }
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs.dedup_by(|a, b| a.0 == b.0);
    let mut families: Vec<&str> =
        pairs.iter().flat_map(|pair| pair.0.iter().map(|name| network(name))).collect();
    families.sort_unstable();
    families.dedup();
    let (mut family, mut lone) = (<[Vec<(f64, f64)>; 4]>::default(), <[Vec<(f64, f64)>; 4]>::default());
    for held in families {
        let has = |pair: &&GavelPair| pair.0.iter().any(|name| network(name) == held);
        let (test, train): (Vec<&GavelPair>, Vec<&GavelPair>) = pairs.iter().partition(has);
        let mut programs: Vec<&str> =
            test.iter().flat_map(|pair| pair.0.iter().map(String::as_str)).collect();
        programs.retain(|name| network(name) == held);
        programs.sort_unstable();
        programs.dedup();
        let site = Site::of(&train);
        for seed in 0..4 {
            let order = |program: &str, seed: u64| {
                let of = |pair: &&&GavelPair| pair.0.iter().any(|name| name == program);
                let own: Vec<&GavelPair> = test.iter().filter(of).copied().collect();
                shuffled(own.len(), seed).into_iter().map(|at| own[at]).collect::<Vec<_>>()
            };
            // Each program of the family draws its own partners.
            let orders = programs.iter().zip(0..).map(|(program, at)| order(program, seed + 4 * at));
            let orders: Vec<Vec<&GavelPair>> = orders.collect();
            family[0].extend(test.iter().flat_map(|pair| pair.1.map(|seen| (site.mean, seen))));
            for (count, errors) in [0, 1, 5].into_iter().zip(&mut family[1..]) {
                let mut observed: Vec<&GavelPair> =
                    orders.iter().flat_map(|own| own.iter().take(count).copied()).collect();
                // Two programs of the family may have drawn the same pair.
                observed.sort_by(|a, b| a.0.cmp(&b.0));
                observed.dedup_by(|a, b| a.0 == b.0);
                let is_new = |pair: &&&GavelPair| !observed.iter().any(|seen| seen.0 == pair.0);
                let judged: Vec<&GavelPair> = test.iter().filter(is_new).copied().collect();
                errors.extend(site.after(&observed, &judged));
            }
            for program in &programs {
                let own = order(program, seed);
                lone[0].extend(own[5..].iter().flat_map(|pair| pair.1.map(|seen| (site.mean, seen))));
                for (count, errors) in [0, 1, 5].into_iter().zip(&mut lone[1..]) {
                    errors.extend(site.after(&own[..count], &own[5..]));
                }
            }
        }
    }
    Some(Gavel { family: family.map(mean_absolute), lone_program: lone.map(mean_absolute) })
}

/// A program of Gavel's at any batch size.
fn network(name: &str) -> &str {
    name.split(" batch").next().unwrap_or(name)
}

/// Knowledge about a site without activities: its mean speed, and effects of programs.
struct Site {
    mean: f64,
    known: Effects,
}

impl Site {
    fn of(train: &[&GavelPair]) -> Self {
        let mean = train.iter().flat_map(|pair| pair.1).sum::<f64>() / (2 * train.len()) as f64;
        let mut site = Self { mean, known: Effects::default() };
        site.known = site.with(train);
        site
    }

    fn with(&self, pairs: &[&GavelPair]) -> Effects {
        let mut effects = self.known.clone();
        for (names, speeds) in pairs.iter().copied() {
            let named = [0, 1].map(|at: usize| Program::named(&names[at]));
            for at in 0..2 {
                effects.observe(named[at], named[1 - at], speeds[at] - self.mean, 1.0);
            }
        }
        effects
    }

    /// Predicted and seen speeds of pairs after others were observed.
    fn after(&self, observed: &[&GavelPair], judged: &[&GavelPair]) -> Vec<(f64, f64)> {
        let mut effects = self.with(observed);
        effects.learn();
        let speeds = |(names, seen): &GavelPair| {
            let named = [0, 1].map(|at: usize| Program::named(&names[at]));
            [0, 1].map(|at: usize| {
                let effect = effects.of(named[at], named[1 - at]);
                ((self.mean + effect).clamp(0.02, 1.0), seen[at])
            })
        };
        judged.iter().flat_map(|pair| speeds(pair)).collect()
    }
}

/// Throughput on one GPU model from another one, families as Gavel names them.
#[allow(dead_code, reason = "a test reads some of it, the example the rest")]
pub struct Across {
    /// Mean relative error by the ratio of the bandwidths, and by the own ratio at the nearest other batch size.
    pub error: [f64; 2],
    /// Part of the rates in their 95 % intervals.
    pub coverage: [f64; 2],
    /// Number of rates.
    pub cases: [usize; 2],
}

/// Memory bandwidth, GB/s, by the data sheets.
const BANDWIDTH: [(&str, f64); 3] = [("k80", 240.0), ("p100", 732.0), ("v100", 900.0)];

pub fn across(from: &str, to: &str) -> Option<Across> {
    let mut rates: BTreeMap<(String, String), Vec<Throughput>> = BTreeMap::new();
    for row in rows("gavel/gavel_solo.csv")?.iter().filter(|row| row.number("workers") == 1.0) {
        let batch = Some(row.number("batch") as u32).filter(|batch| *batch > 0);
        let rate = row.number("steps_per_s");
        if rate > 0.0 {
            let of = (row.text("gpu").to_owned(), row.text("model").to_owned());
            rates.entry(of).or_default().push(Throughput { batch, rate });
        }
    }
    let of = |gpu: &str| BANDWIDTH.iter().find(|(name, _)| *name == gpu).map(|(_, bandwidth)| *bandwidth);
    let bandwidth = of(to)? / of(from)?;
    let mut found = [Vec::new(), Vec::new()];
    for ((gpu, model), here) in &rates {
        let Some(there) = rates.get(&(to.to_owned(), model.clone())).filter(|_| gpu == from) else {
            continue;
        };
        for run in there {
            let estimate = |there: &[Throughput]| {
                across::rate(run.batch, here, there, bandwidth, &Margins::default())
                    .map(|rate| (rate, run.rate))
            };
            found[0].extend(estimate(&[]));
            let others: Vec<Throughput> =
                there.iter().copied().filter(|other| other.batch != run.batch).collect();
            found[1].extend(estimate(&others).filter(|_| !others.is_empty()));
        }
    }
    let mean = |of: &[(Rate, f64)], pick: fn(&(Rate, f64)) -> f64| {
        of.iter().map(pick).sum::<f64>() / of.len() as f64
    };
    let error = |(rate, seen): &(Rate, f64)| (rate.value / seen - 1.0).abs();
    let holds = |(rate, seen): &(Rate, f64)| f64::from(u8::from(rate.low <= *seen && *seen <= rate.high));
    Some(Across {
        error: [0, 1].map(|at| mean(&found[at], error)),
        coverage: [0, 1].map(|at| mean(&found[at], holds)),
        cases: [0, 1].map(|at| found[at].len()),
    })
}
