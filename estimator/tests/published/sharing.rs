//! The evaluation of interference estimators: pairs of unseen families, what observed pairs teach, three jobs from pairs.

use std::collections::BTreeMap;
use std::fmt;

use radrm_base::Permille;
use radrm_estimator::evaluate::mean_absolute;
use radrm_estimator::interference::{
    Activity, Company, Constants, Learner, Predictor, Program, Resident, Spread, fit,
};

use super::published::{family_of_workload as family, rows, shuffled};

/// Two programs that shared a GPU, with the speed of each while both ran.
#[derive(Clone, Debug)]
pub struct Pair {
    pub names: [String; 2],
    pub jobs: [Activity; 2],
    pub speeds: [f64; 2],
}

impl Pair {
    fn family(&self, at: usize) -> &str {
        family(&self.names[at])
    }

    fn has(&self, family: &str) -> bool {
        (0..2).any(|at| self.family(at) == family)
    }

    fn residents(&self) -> [Resident; 2] {
        let program = |at: usize| Some(Program::named(&program_of(&self.names[at])));
        [0, 1].map(|at| Resident { program: program(at), activity: self.jobs[at] })
    }

    fn company(&self) -> Company {
        Company { jobs: self.residents().to_vec(), speeds: self.speeds.to_vec() }
    }
}

/// A workload's name as the daemon would write it: the batch size at the end.
fn program_of(workload: &str) -> String {
    let batch = |part: &str| part.strip_prefix("bs").and_then(|batch| batch.parse::<u32>().ok());
    let rest: Vec<&str> = workload.split('_').filter(|part| batch(part).is_none()).collect();
    let name = rest.join("_");
    workload.split('_').find_map(batch).map_or(name.clone(), |batch| format!("{name} batch {batch}"))
}

/// Pairs of training jobs on an A100 40 GB. The longer job of a pair runs on alone: only the time of both counts.
pub fn a100() -> Option<Vec<Pair>> {
    let mut activities: BTreeMap<String, Activity> = BTreeMap::new();
    // The number of epochs does not change what a program does.
    let program = |name: &str| {
        let epochs = |part: &str| part.strip_suffix('e').is_some_and(|number| number.parse::<u32>().is_ok());
        name.split('_').filter(|part| !epochs(part)).collect::<Vec<_>>().join("_")
    };
    for row in rows("workloads_a100/workloads.csv")?.iter() {
        let part = |column| Permille::from_fraction(row.number(column));
        let seen =
            Activity { smact: part("smact_mean"), smocc: part("smocc_mean"), drama: part("drama_mean") };
        activities.entry(program(row.text("workload"))).or_insert(seen);
    }
    // Profiled in another file of the same source.
    let llama = Activity { smact: Permille(296), smocc: Permille(167), drama: Permille(610) };
    let mut pairs = Vec::new();
    for row in rows("workloads_a100/pairs.csv")?.iter() {
        let names = [program(row.text("a")), program(row.text("b"))];
        let (alone, both) = (["solo_a_s", "solo_b_s"], ["pair_a_s", "pair_b_s"]);
        let shared = row.number(both[0]).min(row.number(both[1]));
        let speeds = [0, 1]
            .map(|at| ((row.number(alone[at]) - (row.number(both[at]) - shared)) / shared).clamp(0.0, 1.0));
        let jobs =
            [0, 1].map(|at| if names[at].starts_with("llama3") { llama } else { activities[&names[at]] });
        pairs.push(Pair { names, jobs, speeds });
    }
    Some(pairs)
}

/// Starting point of a fit that knows nothing of the data.
const NEUTRAL: Constants = Constants { latency: 0.5, compute: 1.0, memory: 1.0, capacity: 1.0, exponent: 6 };

/// Figures of the A100 pairs.
#[derive(Debug)]
pub struct Found {
    /// Mean absolute error of a speed, family held out.
    pub error: f64,
    /// The same for the mean speed as the prediction.
    pub naive: f64,
    /// Constants fitted to all pairs, and their error on the same.
    pub constants: (Constants, f64),
    /// Error with what the other programs' pairs taught, family held out.
    pub learned: f64,
    /// Regret against the best partner, in mean speed of both: by these predictions, and by the formula alone.
    pub regret: [f64; 2],
    /// The same for a partner by chance.
    pub random_regret: f64,
    /// Part of the speeds in their 95 % interval, spread from other families, and by the shipped spread.
    pub coverage: (f64, f64),
    /// Mean width of both intervals.
    pub width: (f64, f64),
    /// Error for a new program after so many of its pairs were observed.
    pub after: Vec<(usize, f64)>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Constants { latency, compute, memory, .. }, error) = self.constants;
        writeln!(f, "  error of a speed, family held out {:.4}, of the mean {:.4}", self.error, self.naive)?;
        writeln!(f, "  fitted to all: {latency:.3} {compute:.3} {memory:.3}, error there {error:.4}")?;
        writeln!(f, "  with effects of the other programs {:.4}", self.learned)?;
        let [regret, formula] = self.regret;
        writeln!(
            f,
            "  regret of the chosen partner {regret:.3}, by the formula alone {formula:.3}, by chance {:.3}",
            self.random_regret
        )?;
        let [covered, shipped] = [self.coverage.0, self.coverage.1].map(|part| part * 100.0);
        let (width, of_shipped) = self.width;
        writeln!(
            f,
            "  95 % intervals hold {covered:.1} %, width {width:.3}; shipped spread {shipped:.1} %, {of_shipped:.3}"
        )?;
        for (pairs, error) in &self.after {
            writeln!(f, "  new program after {pairs} pairs: error {error:.4}")?;
        }
        Ok(())
    }
}

fn families(pairs: &[Pair]) -> Vec<String> {
    let mut all: Vec<String> =
        pairs.iter().flat_map(|pair| [0, 1].map(|at| pair.family(at).to_owned())).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn fitted(pairs: &[&Pair], exponent: u8) -> Constants {
    let seen: Vec<Company> = pairs.iter().map(|pair| pair.company()).collect();
    fit(seen.iter(), &Constants { exponent, ..NEUTRAL })
}

/// Predicted and observed speeds of pairs.
fn predicted(predictor: &Predictor, pairs: &[&Pair]) -> Vec<(f64, f64)> {
    pairs
        .iter()
        .flat_map(|pair| {
            let speeds = predictor.speeds(&pair.residents());
            [0, 1].map(|at| (speeds[at].value, pair.speeds[at]))
        })
        .collect()
}

/// A pair, the family that was held out, and the speeds that were predicted.
pub type HeldOut<'a> = (&'a Pair, String, [f64; 2]);

/// Predictions for each family from the pairs that have none of its programs: `predictor` makes one of them.
pub fn held_out<'a>(pairs: &[&'a Pair], predictor: impl Fn(&[&'a Pair]) -> Predictor) -> Vec<HeldOut<'a>> {
    let owned: Vec<Pair> = pairs.iter().map(|pair| (*pair).clone()).collect();
    let mut all = Vec::new();
    for family in families(&owned) {
        let (test, train): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.has(&family));
        let predictor = predictor(&train);
        for pair in test {
            let speeds = predictor.speeds(&pair.residents());
            all.push((pair, family.clone(), [speeds[0].value, speeds[1].value]));
        }
    }
    all
}

fn formula(train: &[&Pair]) -> Predictor {
    Predictor::new(fitted(train, 6))
}

/// The formula, and what these pairs say of their programs.
pub fn learned(train: &[&Pair]) -> Predictor {
    learner(train).predictor().clone()
}

fn learner(train: &[&Pair]) -> Learner {
    let mut learner = Learner::new(fitted(train, 6));
    train.iter().for_each(|pair| learner.observe(&pair.residents(), &pair.speeds));
    learner.learn();
    learner
}

fn error_in(out: &[HeldOut<'_>]) -> f64 {
    mean_absolute(out.iter().flat_map(|(pair, _, speeds)| [0, 1].map(|at| (speeds[at], pair.speeds[at]))))
}

/// Constants, those that fit if none are given, with their error on the pairs that they were fitted to.
pub fn in_sample(pairs: &[Pair], constants: Option<Constants>) -> (Constants, f64) {
    let all: Vec<&Pair> = pairs.iter().collect();
    let constants = constants.unwrap_or_else(|| fitted(&all, 6));
    (constants, mean_absolute(predicted(&Predictor::new(constants), &all)))
}

/// Error with the family held out, for an exponent.
pub fn error_of(pairs: &[Pair], exponent: u8) -> f64 {
    let all: Vec<&Pair> = pairs.iter().collect();
    error_in(&held_out(&all, |train| Predictor::new(fitted(train, exponent))))
}

pub fn evaluate(pairs: &[Pair]) -> Found {
    let all: Vec<&Pair> = pairs.iter().collect();
    let (by_formula, by_effects) = (held_out(&all, formula), held_out(&all, learned));
    let errors = |of: &[(f64, f64)]| mean_absolute(of.iter().copied());
    let (mut naive, mut ours, mut inside, mut width) = (Vec::new(), Vec::new(), (0.0, 0.0), (0.0, 0.0));
    for family in families(pairs) {
        let (test, train): (Vec<&Pair>, Vec<&Pair>) = all.iter().partition(|pair| pair.has(&family));
        let mean = train.iter().flat_map(|pair| pair.speeds).sum::<f64>() / (2 * train.len()) as f64;
        // The spread comes from families that the fold's other fits did not see.
        let nested: Vec<(f64, f64)> = held_out(&train, formula)
            .iter()
            .flat_map(|(pair, _, speeds)| [0, 1].map(|at| (speeds[at], pair.speeds[at])))
            .collect();
        let spread = Spread::of(&nested, 0.95).expect("enough pairs");
        for (value, seen) in predicted(&formula(&train), &test) {
            let (own, shipped) = (spread.around(value), Spread::default().around(value));
            let holds = |speed: radrm_estimator::interference::Speed| {
                f64::from(u8::from(speed.low <= seen && seen <= speed.high))
            };
            inside = (inside.0 + holds(own), inside.1 + holds(shipped));
            width = (width.0 + own.high - own.low, width.1 + shipped.high - shipped.low);
            ours.push((value, seen));
            naive.push((mean, seen));
        }
    }
    let n = ours.len() as f64;
    let (chosen, random_regret) = regret(&by_effects);
    Found {
        error: errors(&ours),
        naive: errors(&naive),
        constants: in_sample(pairs, None),
        learned: error_in(&by_effects),
        regret: [chosen, regret(&by_formula).0],
        random_regret,
        coverage: (inside.0 / n, inside.1 / n),
        width: (width.0 / n, width.1 / n),
        after: [0, 1, 2, 4, 8].map(|count| (count, after(pairs, count))).to_vec(),
    }
}

/// For each program the partner that is predicted best, against the one that was best: mean speed of both.
fn regret(out: &[HeldOut<'_>]) -> (f64, f64) {
    let mut by_program: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (pair, family, speeds) in out {
        for at in 0..2 {
            if pair.family(at) == family {
                let seen = pair.speeds.iter().sum::<f64>() / 2.0;
                by_program.entry(&pair.names[at]).or_default().push((speeds.iter().sum::<f64>() / 2.0, seen));
            }
        }
    }
    by_program.retain(|_, partners| partners.len() > 2);
    let (mut chosen, mut chance) = (0.0, 0.0);
    for partners in by_program.values() {
        let best = partners.iter().map(|(_, seen)| *seen).fold(0.0, f64::max);
        let pick = partners.iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("partners");
        chosen += best - pick.1;
        chance += best - partners.iter().map(|(_, seen)| seen).sum::<f64>() / partners.len() as f64;
    }
    let n = by_program.len() as f64;
    (chosen / n, chance / n)
}

/// Error on a new program's other pairs after `count` of them were observed; its family was not seen before.
fn after(pairs: &[Pair], count: usize) -> f64 {
    let mut programs: Vec<&str> =
        pairs.iter().flat_map(|pair| [0, 1].map(|at| pair.names[at].as_str())).collect();
    programs.sort_unstable();
    programs.dedup();
    let mut both = Vec::new();
    for program in programs {
        let own: Vec<&Pair> =
            pairs.iter().filter(|pair| pair.names.iter().any(|name| name == program)).collect();
        if own.len() < 12 {
            continue;
        }
        let train: Vec<&Pair> = pairs.iter().filter(|pair| !pair.has(family(program))).collect();
        let known = learner(&train);
        for seed in 0..8 {
            let order = shuffled(own.len(), seed);
            let mut learner = known.clone();
            for at in &order[..count] {
                learner.observe(&own[*at].residents(), &own[*at].speeds);
            }
            learner.learn();
            // The same pairs are scored whatever was observed before.
            let rest: Vec<&Pair> = order[8..].iter().map(|at| own[*at]).collect();
            both.extend(predicted(learner.predictor(), &rest));
        }
    }
    mean_absolute(both)
}
