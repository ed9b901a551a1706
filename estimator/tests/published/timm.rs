//! The evaluation of memory estimators on the TIMM rows: families held out, none to three own runs.

use std::collections::BTreeMap;

use radrm_estimator::boost::Settings;
use radrm_estimator::evaluate::{Outcome, Scores, group_folds};
use radrm_estimator::memory::{Anchor, Cell, Estimates, Line, Point, Rule, Sample, cases, learned, own};
use radrm_estimator::model::{Model, Recipe};
use radrm_estimator::{Error, Table};

use super::published::Timm;

/// A learned model's estimate of each (model, batch size), by a model that did not see its family.
pub type Unseen = BTreeMap<(String, u64), f64>;

/// Family and outcome of each case, by (set of sources, number of own runs).
pub type Outcomes = BTreeMap<(usize, usize), Vec<(String, Outcome)>>;

/// Estimators for a program of a family that none of them saw.
pub struct Site {
    pub anchor: Anchor,
    pub line: Line,
    pub model: Model,
}

const COLUMNS: [&str; 8] =
    ["line", "batch", "forward", "backward", "optimizer", "per_sample", "grows", "share"];

fn features(line: &Line, run: &Timm) -> [f64; 8] {
    let ln = |value: f64| value.max(1.0).ln();
    [
        line.estimate(run.total, &[]),
        run.batch,
        ln(run.forward),
        ln(run.backward - run.forward),
        ln(run.total - run.backward),
        ln(run.total / run.batch),
        (run.backward - run.forward) / run.total,
        (run.total - run.backward) / run.total,
    ]
}

fn line_of(programs: &[&Vec<Timm>]) -> Line {
    let pairs: Vec<Vec<(f64, f64)>> =
        programs.iter().map(|runs| runs.iter().map(|run| (run.total, run.peak)).collect()).collect();
    Line::learn(&pairs).expect("programs with three runs")
}

fn points(runs: &[&Timm]) -> Vec<Point> {
    runs.iter().map(|run| Point { batch: run.batch, peak: run.peak }).collect()
}

impl Site {
    /// Learns from programs, and returns the learned model's estimate of each of their rows without its family.
    pub fn learn(programs: &[&Vec<Timm>]) -> Result<(Self, Unseen), Error> {
        let line = line_of(programs);
        let mut table = Table::new(COLUMNS);
        let (mut measured, mut groups, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for run in programs.iter().copied().flatten() {
            table.push(&features(&line, run))?;
            measured.push(run.peak);
            groups.push(run.family.clone());
            keys.push((run.model.clone(), run.batch as u64));
        }
        let settings = Settings { trees: 300, rate: 0.05, leaves: 12, min_rows: 15, ..Settings::default() };
        let recipe = Recipe { physical: Some("line"), settings, ..Recipe::default() };
        let (model, estimates) = Model::train_with_estimates(&table, &measured, &groups, &recipe)?;
        let curves: Vec<Vec<Point>> =
            programs.iter().map(|runs| points(&runs.iter().collect::<Vec<_>>())).collect();
        let site = Self { anchor: Anchor::learn(&curves).expect("programs with two runs"), line, model };
        Ok((site, keys.into_iter().zip(estimates).collect()))
    }

    fn learned(&self, run: &Timm) -> f64 {
        self.model.estimate(&features(&self.line, run)).map_or(f64::NAN, |estimate| estimate.value)
    }

    /// Estimates of each source for a run after others of the same program.
    fn estimates(&self, run: &Timm, known: &[&Timm], learned_of: impl Fn(&Timm) -> f64) -> Estimates {
        let pairs: Vec<(f64, f64)> = known.iter().map(|past| (past.total, past.peak)).collect();
        let missed: Vec<(f64, f64)> = known.iter().map(|past| (past.peak, learned_of(past))).collect();
        [
            own(&points(known), run.batch, &self.anchor),
            Some(self.line.estimate(run.total, &pairs)),
            Some(learned(learned_of(run), &missed)),
        ]
    }
}

/// Samples of programs by estimators that did not see the family.
fn samples(site: &Site, unseen: &Unseen, programs: &[&Vec<Timm>]) -> Vec<Sample> {
    let mut all = Vec::new();
    for (runs, program) in programs.iter().zip(0..) {
        for number in 0..=3 {
            cases(runs, number, |run, known| {
                let learned_of = |run: &Timm| unseen[&(run.model.clone(), run.batch as u64)];
                let estimates = site.estimates(run, known, learned_of);
                all.push(Sample {
                    cell: Cell::of(&points(known), run.batch),
                    program,
                    estimates,
                    measured: run.peak,
                });
            });
        }
    }
    all
}

/// The rule of the whole data set, as it ships.
pub fn rule(programs: &[&Vec<Timm>], level: f64, origin: &str) -> Result<(Site, Rule), Error> {
    let (site, unseen) = Site::learn(programs)?;
    let rule = Rule::learn(&samples(&site, &unseen, programs), level, origin)?;
    Ok((site, rule))
}

/// Sets of sources that are compared, with their names.
pub const SETS: [(&str, [bool; 3]); 5] = [
    ("own", [true, false, false]),
    ("dry", [false, true, false]),
    ("own + dry", [true, true, false]),
    ("own + learned", [true, false, true]),
    ("all", [true, true, true]),
];

/// Outcomes by (set of sources, number of own runs), families held out in turn.
pub fn evaluate(programs: &[Vec<Timm>], folds: usize) -> Result<Outcomes, Error> {
    let families: Vec<&str> = programs.iter().map(|runs| runs[0].family.as_str()).collect();
    let fold_of = group_folds(&families, folds);
    let mut outcomes = Outcomes::new();
    for fold in 0..folds {
        let learn: Vec<&Vec<Timm>> =
            programs.iter().zip(&fold_of).filter(|(_, of)| **of != fold).map(|(runs, _)| runs).collect();
        let (site, rule) = rule(&learn, 0.95, "")?;
        for (runs, _) in programs.iter().zip(&fold_of).filter(|(_, of)| **of == fold) {
            for number in 0..=3 {
                cases(runs, number, |run, known| {
                    let estimates = site.estimates(run, known, |run| site.learned(run));
                    for (set, (_, asked)) in SETS.iter().enumerate() {
                        let mut given = estimates;
                        for (estimate, asked) in given.iter_mut().zip(asked) {
                            *estimate = estimate.filter(|_| *asked);
                        }
                        let Some(found) = rule.combine(&points(known), run.batch, &given) else { continue };
                        let outcome =
                            Outcome { measured: run.peak, estimate: found.value, bound: found.bound };
                        outcomes.entry((set, number)).or_default().push((run.family.clone(), outcome));
                    }
                });
            }
        }
    }
    Ok(outcomes)
}

/// Scores of each (set of sources, number of own runs).
pub fn scores(outcomes: &Outcomes) -> BTreeMap<(usize, usize), Scores> {
    outcomes.iter().map(|(key, of)| (*key, Scores::of(of.iter().map(|(_, outcome)| *outcome)))).collect()
}
