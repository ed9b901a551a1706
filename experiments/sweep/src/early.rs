//! Early stopping: which runs of a sweep go on, by what their programs log while they run.
//!
//! Successive halving (ASHA: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020): at `min_steps`, and at each `reduction` times
//! as many, a run goes on only among the best 1 / `reduction` of the runs that have come so far. Median rule (Golovin et al., Google Vizier,
//! 2017): a run goes on while its best value is no worse than the median of the others' means until the same step. Programs are ended and not
//! suspended, so a run that was given up is not taken up again.
//!
//! All follows from the files of the runs: a sweep that was killed decides on as before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::metrics;

/// Other runs without which the median rule ends none.
const MIN_OTHERS: usize = 3;

/// Values that are kept of a run; later ones do not count.
const MAX_POINTS: usize = 100_000;

/// The rule of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Kind of the rule.
    pub kind: Kind,
    /// Name of the metric, as programs log it.
    pub metric: String,
    /// The highest value is best.
    pub is_highest_best: bool,
    /// Step before which no run is given up, at least 1.
    pub min_steps: u64,
}

/// Kind of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Successive halving.
    Halving {
        /// One run of so many goes on, 2 or more.
        reduction: u64,
    },
    /// Median rule.
    Median,
}

/// Values of a run: steps, and values of which the lowest is best.
#[derive(Debug, Default)]
struct Series {
    path: PathBuf,
    /// Bytes of the file that were read.
    read: u64,
    points: Vec<(u64, f64)>,
}

/// The rule with what is known of all runs.
#[derive(Debug)]
pub(crate) struct Judge {
    rule: Rule,
    runs: BTreeMap<String, Series>,
    /// Attempts that were asked to end, by their files.
    asked: BTreeSet<PathBuf>,
}

impl Judge {
    pub(crate) fn new(rule: Rule) -> Self {
        Self { rule, runs: BTreeMap::new(), asked: BTreeSet::new() }
    }

    /// Reads all that a run has logged since the last time.
    pub(crate) fn read_all(&mut self, key: &str, file: &Path) {
        while self.read(key, file) {}
    }

    /// Reads a part of what a run has logged since the last time; returns false if there is nothing. With the file of another
    /// attempt the run begins anew.
    pub(crate) fn read(&mut self, key: &str, file: &Path) -> bool {
        let run = self.runs.entry(key.to_owned()).or_default();
        if run.path != file {
            *run = Series { path: file.to_owned(), ..Series::default() };
        }
        let (values, read) = metrics::follow(file, &self.rule.metric, run.read);
        let has_more = std::mem::replace(&mut run.read, read) != read;
        for (step, value) in values {
            if run.points.len() >= MAX_POINTS {
                break;
            }
            // Values without a step are counted.
            let counted = run.points.len() as u64 + 1;
            let step = step.map_or(counted, |step| u64::try_from(step).unwrap_or(0));
            let value = if self.rule.is_highest_best { -value } else { value };
            // A value that is not finite is of a run that diverged, whatever its sign.
            run.points.push((step, if value.is_finite() { value } else { f64::INFINITY }));
        }
        has_more
    }

    /// Reason to give a run up; `None` if it goes on.
    pub(crate) fn verdict(&self, key: &str) -> Option<String> {
        let run = self.runs.get(key)?;
        match self.rule.kind {
            Kind::Halving { reduction } => self.halved(run, reduction),
            Kind::Median => self.behind_the_median(key, run),
        }
    }

    /// Returns true if an attempt was asked to end.
    pub(crate) fn is_asked(&self, file: &Path) -> bool {
        self.asked.contains(file)
    }

    /// An attempt was asked to end.
    pub(crate) fn ask(&mut self, file: PathBuf) {
        self.asked.insert(file);
    }

    fn halved(&self, run: &Series, reduction: u64) -> Option<String> {
        let last = run.last_step()?;
        let next = |rung: &u64| rung.checked_mul(reduction.max(2));
        let rungs = std::iter::successors(Some(self.rule.min_steps.max(1)), next);
        let rung = rungs.take_while(|rung| *rung <= last).last()?;
        let value = run.at(rung)?;
        let all: Vec<f64> = self.runs.values().filter_map(|run| run.at(rung)).collect();
        let better = all.iter().filter(|other| **other < value).count();
        let kept = (all.len() / usize::try_from(reduction.max(2)).unwrap_or(usize::MAX)).max(1);
        let best = if kept == 1 { "the best".to_owned() } else { format!("among the best {kept}") };
        (better >= kept).then(|| {
            format!(
                "its {} of {} at step {rung} is not {best} of {} runs",
                self.rule.metric,
                self.shown(value),
                all.len()
            )
        })
    }

    fn behind_the_median(&self, key: &str, run: &Series) -> Option<String> {
        let step = run.last_step().filter(|step| *step >= self.rule.min_steps)?;
        let best = run.points.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
        let others = self.runs.iter().filter(|(other, _)| *other != key);
        let mut means: Vec<f64> = others.filter_map(|(_, other)| other.mean_until(step)).collect();
        if means.len() < MIN_OTHERS {
            return None;
        }
        means.sort_unstable_by(f64::total_cmp);
        let median = (means[(means.len() - 1) / 2] + means[means.len() / 2]) / 2.0;
        (best > median).then(|| {
            let (best, median) = (self.shown(best), self.shown(median));
            format!(
                "its best {} of {best} until step {step} is behind the median of {} other runs, {median}",
                self.rule.metric,
                means.len()
            )
        })
    }

    /// A value as the program logged it.
    fn shown(&self, value: f64) -> f64 {
        if self.rule.is_highest_best { -value } else { value }
    }
}

impl Series {
    fn last_step(&self) -> Option<u64> {
        self.points.iter().map(|(step, _)| *step).max()
    }

    /// Value when it came to a step.
    fn at(&self, step: u64) -> Option<f64> {
        self.points.iter().find(|point| point.0 >= step).map(|point| point.1)
    }

    /// Mean until a step; `None` if the run has not come so far.
    fn mean_until(&self, step: u64) -> Option<f64> {
        self.last_step().filter(|last| *last >= step)?;
        let values = self.points.iter().filter(|point| point.0 <= step).map(|point| point.1);
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const STEPS: u64 = 81;

    fn rule(kind: Kind, is_highest_best: bool, min_steps: u64) -> Rule {
        Rule { kind, metric: "loss".into(), is_highest_best, min_steps }
    }

    /// Final losses and rates of 64 configurations, by a generator of its own.
    fn configurations(seed: u64) -> Vec<(f64, f64)> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        (0..64).map(|_| (0.1 + 1.9 * next(), 0.25 + 0.5 * next())).collect()
    }

    fn loss((last, rate): (f64, f64), step: u64) -> f64 {
        last + 3.0 * (step as f64 + 1.0).powf(-rate)
    }

    fn log(path: &Path, step: u64, value: f64) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{{\"name\": \"loss\", \"value\": {value}, \"step\": {step}}}").unwrap();
    }

    /// Runs all, one after the other; gives the steps that ran, and the best of the runs that were not given up. `killed`: a new
    /// judge takes over in the middle of each run.
    fn sweep(kind: Kind, seed: u64, killed: bool) -> (u64, usize) {
        let dir = tempfile::tempdir().unwrap();
        let all = configurations(seed);
        let of_run = |at: usize| dir.path().join(at.to_string());
        let mut judge = Judge::new(rule(kind, false, 1));
        let (mut steps, mut best) = (0, (f64::INFINITY, 0));
        for (at, configuration) in all.iter().enumerate() {
            let mut goes_on = true;
            for step in 1..=STEPS {
                log(&of_run(at), step, loss(*configuration, step));
                steps += 1;
                if killed && step == 9 {
                    judge = Judge::new(rule(kind, false, 1));
                    (0..=at).for_each(|at| _ = judge.read(&at.to_string(), &of_run(at)));
                }
                judge.read(&at.to_string(), &of_run(at));
                if judge.verdict(&at.to_string()).is_some() {
                    goes_on = false;
                    break;
                }
            }
            let last = loss(*configuration, STEPS);
            if goes_on && last < best.0 {
                best = (last, at);
            }
        }
        (steps, best.1)
    }

    fn truth(seed: u64) -> usize {
        let all = configurations(seed);
        let order = |a: &usize, b: &usize| loss(all[*a], STEPS).total_cmp(&loss(all[*b], STEPS));
        (0..all.len()).min_by(order).unwrap()
    }

    #[test]
    fn halving_finds_the_best_of_64_in_less_than_a_third_of_the_steps() {
        for seed in 1..=5 {
            for killed in [false, true] {
                let (steps, best) = sweep(Kind::Halving { reduction: 3 }, seed, killed);
                assert_eq!(best, truth(seed), "seed {seed}");
                assert!(steps * 10 <= 64 * STEPS * 3, "{steps} of {} steps, seed {seed}", 64 * STEPS);
            }
        }
    }

    #[test]
    fn the_median_rule_ends_runs_that_are_behind_and_keeps_the_best() {
        let (steps, best) = sweep(Kind::Median, 1, false);
        assert_eq!(best, truth(1));
        assert!(steps < 64 * STEPS, "{steps}");
    }

    #[test]
    fn a_file_of_several_parts_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        // More than is read at once, without a value of the metric.
        let other = format!("{{\"name\": \"{}\", \"value\": 1}}\n", "x".repeat(4000));
        std::fs::write(&path, other.repeat(5000)).unwrap();
        log(&path, 1, 0.5);
        let mut judge = Judge::new(rule(Kind::Median, false, 1));
        judge.read_all("a", &path);
        assert_eq!(judge.runs["a"].points, [(1, 0.5)]);
        assert!(!judge.read("a", &path), "there is nothing else");
    }

    #[test]
    fn the_highest_can_be_best_and_what_diverged_is_worst() {
        let dir = tempfile::tempdir().unwrap();
        let mut judge = Judge::new(rule(Kind::Halving { reduction: 4 }, true, 2));
        for (key, value) in [("a", "0.5"), ("b", "0.75"), ("c", "\"nan\""), ("d", "\"inf\"")] {
            let path = dir.path().join(key);
            let lines: String = (1..=2)
                .map(|step| format!("{{\"name\": \"loss\", \"value\": {value}, \"step\": {step}}}\n"))
                .collect();
            std::fs::write(&path, lines).unwrap();
            judge.read(key, &path);
        }
        assert_eq!(judge.verdict("b"), None);
        let why = judge.verdict("a").unwrap();
        assert_eq!(why, "its loss of 0.5 at step 2 is not the best of 4 runs");
        assert!(judge.verdict("c").is_some() && judge.verdict("d").is_some());
        // Another attempt begins anew.
        judge.read("c", &dir.path().join("c2"));
        assert_eq!(judge.verdict("c"), None);
    }
}
