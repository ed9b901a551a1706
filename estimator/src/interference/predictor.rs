//! Speeds with intervals, from the formula and what was observed.

use radrm_base::Activity;
use serde::{Deserialize, Serialize};

use super::formula::{Company, Constants, fit, speeds};
use super::{Effects, compose};
use crate::calibrate::margin;

/// A job that holds part of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resident<'a> {
    /// Names its program: equal programs share what was learned.
    pub program: &'a str,
    /// What it does to a GPU alone.
    pub activity: Activity,
}

/// A predicted speed with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// The speed to expect, 0 to 1.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Width of intervals: `factor * (0.05 + 0.3 (1 - s))` on each side of a speed s. Repeated measurements of one pair
/// differ by about 0.04, and slow pairs vary more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    factor: f64,
}

impl Default for Spread {
    /// 95 % of the speeds of A100 pairs whose family was held out, see `docs/estimators.md`.
    fn default() -> Self {
        Self { factor: 1.68 }
    }
}

impl Spread {
    fn scale(speed: f64) -> f64 {
        0.05 + 0.3 * (1.0 - speed)
    }

    /// The spread for a level (0 to 1) from pairs of (predicted, observed) that no prediction was fitted to; `None` if
    /// they are too few to promise it.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)], level: f64) -> Option<Self> {
        let scores: Vec<f64> = pairs
            .iter()
            .map(|(predicted, observed)| (predicted - observed).abs() / Self::scale(*predicted))
            .collect();
        Some(Self { factor: margin(&scores, level)? })
    }

    /// The interval around a speed.
    #[must_use]
    pub fn around(&self, speed: f64) -> Speed {
        let half = self.factor * Self::scale(speed);
        Speed { value: speed, low: (speed - half).max(0.0), high: (speed + half).min(1.0) }
    }
}

/// Predictions for one GPU model and one way of sharing it, which observations make better.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictor {
    constants: Constants,
    effects: Effects,
    spread: Spread,
    observed: Vec<Company>,
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new(Constants::A100_40GB)
    }
}

/// Slowest speed that is predicted.
const LOWEST: f64 = 0.02;

/// Observations that constants are refitted to: the newest ones.
const KEPT: usize = 2000;

impl Predictor {
    /// One that has only the formula.
    #[must_use]
    pub fn new(constants: Constants) -> Self {
        Self { constants, effects: Effects::default(), spread: Spread::default(), observed: Vec::new() }
    }

    /// The constants in use.
    #[must_use]
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Speeds of all jobs on one GPU, in the order given.
    #[must_use]
    pub fn speeds(&self, jobs: &[Resident<'_>]) -> Vec<Speed> {
        let mut all = self.expected(jobs);
        for (i, speed) in all.iter_mut().enumerate() {
            // Several neighbours' effects are differences of slowdowns in pairs, which add.
            let others = (0..jobs.len()).filter(|j| *j != i);
            let effect: f64 = others.map(|j| self.effects.of(jobs[i].program, jobs[j].program)).sum();
            *speed = (*speed + effect).clamp(LOWEST, 1.0);
        }
        all.into_iter().map(|speed| self.spread.around(speed)).collect()
    }

    /// What the formula says: of a pair directly, of more jobs by adding the slowdowns of their pairs.
    fn expected(&self, jobs: &[Resident<'_>]) -> Vec<f64> {
        let pair = |i: usize, j: usize| speeds(&[jobs[i].activity, jobs[j].activity], &self.constants)[0];
        match jobs {
            [] => Vec::new(),
            [_] => vec![1.0],
            [_, _] => vec![pair(0, 1), pair(1, 0)],
            more => compose(more.len(), pair),
        }
    }

    /// Jobs were seen to share a GPU with these speeds. Predictions change when [`Predictor::learn`] is called.
    pub fn observe(&mut self, jobs: &[Resident<'_>], speeds: &[f64]) {
        if jobs.len() < 2 || jobs.len() != speeds.len() || speeds.iter().any(|speed| !speed.is_finite()) {
            return;
        }
        let weight = 1.0 / (jobs.len() - 1) as f64;
        for (i, predicted) in self.expected(jobs).into_iter().enumerate() {
            for j in (0..jobs.len()).filter(|j| *j != i) {
                let residual = speeds[i].clamp(0.0, 1.0) - predicted;
                self.effects.observe(jobs[i].program, jobs[j].program, residual * weight, weight);
            }
        }
        self.observed.push(Company {
            jobs: jobs.iter().map(|job| job.activity).collect(),
            speeds: speeds.iter().map(|speed| speed.clamp(0.0, 1.0)).collect(),
        });
        if self.observed.len() > KEPT {
            self.observed.remove(0);
        }
    }

    /// Takes what was observed into the predictions.
    pub fn learn(&mut self) {
        self.effects.learn();
    }

    /// Constants refitted to what was observed here, from those in use: they move as far as the observations are many.
    #[must_use]
    pub fn refitted(&self) -> Constants {
        fit(&self.observed, &self.constants)
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::Permille;

    use super::*;

    fn resident(program: &str, smact: u32) -> Resident<'_> {
        let activity = Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(smact / 2) };
        Resident { program, activity }
    }

    #[test]
    fn an_interval_holds_the_speed_and_slow_jobs_have_wider_ones() {
        let speeds = Predictor::default().speeds(&[resident("a", 800), resident("b", 100)]);
        for speed in &speeds {
            assert!(speed.low <= speed.value && speed.value <= speed.high && speed.high <= 1.0, "{speed:?}");
        }
        let width = |speed: &Speed| speed.value - speed.low;
        assert!(speeds[1].value < speeds[0].value && width(&speeds[1]) > width(&speeds[0]));
        assert_eq!(Predictor::default().speeds(&[resident("a", 800)])[0].value, 1.0);
    }

    #[test]
    fn what_is_observed_moves_predictions_towards_it() {
        let jobs = [resident("a", 500), resident("b", 600)];
        let mut predictor = Predictor::default();
        let error = |predictor: &Predictor| (predictor.speeds(&jobs)[0].value - 0.6).abs();
        let mut last = error(&predictor);
        for _ in 0..4 {
            predictor.observe(&jobs, &[0.6, 0.7]);
            predictor.learn();
            let now = error(&predictor);
            assert!(now < last, "{now} after {last}");
            last = now;
        }
        assert!(predictor.refitted().compute > Constants::A100_40GB.compute);
        let before = predictor.clone();
        predictor.observe(&jobs, &[f64::NAN, 0.5]);
        predictor.observe(&jobs[..1], &[0.5]);
        assert_eq!(predictor, before, "what cannot be is not learned");
    }

    #[test]
    fn three_jobs_are_slower_than_two() {
        let jobs = [resident("a", 400), resident("b", 500), resident("c", 300)];
        let predictor = Predictor::default();
        let (two, three) = (predictor.speeds(&jobs[..2]), predictor.speeds(&jobs));
        assert!(three[0].value <= two[0].value && three[1].value <= two[1].value);
    }

    #[test]
    fn a_spread_covers_its_level() {
        let pairs: Vec<(f64, f64)> = (0..100).map(|n| (1.0, 1.0 - f64::from(n) / 1000.0)).collect();
        let spread = Spread::of(&pairs, 0.95).unwrap();
        let covered = pairs.iter().filter(|(predicted, seen)| spread.around(*predicted).low <= *seen);
        assert_eq!(covered.count(), 96);
        assert_eq!(Spread::of(&pairs[..10], 0.95), None);
    }
}
