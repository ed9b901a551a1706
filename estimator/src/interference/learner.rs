//! Learning from what a site observes, which makes its predictions better: constants, and effects of programs.

use std::collections::VecDeque;

use super::compose::slowdown;
use super::{Company, Constants, Effects, PairSum, Predictor, Resident, fit};

/// Observations that are kept: the newest ones.
const MAX_KEPT: usize = 1024;

/// Observations that constants are fitted to: 256 pairs take about 20 ms.
const MAX_FITTED: usize = 256;

/// Observations of one GPU model and one way of sharing it, and the predictor that follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    start: Constants,
    observed: VecDeque<Company>,
    /// Observations since effects were learned last, and since constants were fitted last.
    unlearned: usize,
    unfitted: usize,
    predictor: Predictor,
}

impl Learner {
    /// One that has only the formula.
    #[must_use]
    pub fn new(start: Constants) -> Self {
        Self { start, observed: VecDeque::new(), unlearned: 0, unfitted: 0, predictor: Predictor::new(start) }
    }

    /// Predictor as learned so far.
    #[must_use]
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Jobs were seen to share a GPU with these speeds. Predictions change with [`Learner::learn`] and
    /// [`Learner::refit`]. What cannot be is ignored: fewer than two jobs, speeds that are no numbers.
    pub fn observe(&mut self, jobs: &[Resident], speeds: &[f64]) {
        if jobs.len() < 2 || jobs.len() != speeds.len() || speeds.iter().any(|speed| !speed.is_finite()) {
            return;
        }
        let speeds = speeds.iter().map(|speed| speed.clamp(0.0, 1.0)).collect();
        self.observed.push_back(Company { jobs: jobs.to_vec(), speeds });
        if self.observed.len() > MAX_KEPT {
            self.observed.pop_front();
        }
        self.unlearned += 1;
        self.unfitted += 1;
    }

    /// Learns where enough is new: effects with each sixteenth more, constants with each quarter more. Returns whether
    /// predictions changed. Over many observations each costs the same.
    pub fn learn_if_due(&mut self) -> bool {
        if self.unfitted >= 8 && self.unfitted * 4 >= self.observed.len() {
            self.refit();
        } else if self.unlearned * 16 < self.observed.len() || self.unlearned == 0 {
            return false;
        } else {
            self.learn();
        }
        true
    }

    /// Effects of programs from all that was observed.
    pub fn learn(&mut self) {
        let formula = Predictor::new(*self.predictor.constants());
        let mut effects = Effects::default();
        let mut expected = Vec::new();
        for Company { jobs, speeds } in &self.observed {
            formula.compose_into(jobs, &mut expected);
            let weight = 1.0 / (jobs.len() - 1) as f64;
            for i in 0..jobs.len() {
                // What a slowdown was off by is shared evenly by the neighbours.
                let off = (slowdown(speeds[i]) - slowdown(expected[i])) * weight;
                for j in (0..jobs.len()).filter(|j| *j != i) {
                    let (Some(program), Some(neighbour)) = (jobs[i].program, jobs[j].program) else {
                        continue;
                    };
                    let pair = formula.pair(&jobs[i], &jobs[j])[0];
                    let residual = 1.0 / (1.0 + (slowdown(pair) + off).max(0.0)) - pair;
                    effects.observe(program, neighbour, residual, weight);
                }
            }
        }
        effects.learn();
        let sum = PairSum::learned(self.observed.iter());
        self.predictor = formula.with_effects(effects).with_sum(sum).after(self.observed.len());
        self.unlearned = 0;
    }

    /// Constants fitted to the newest observations, from those at the start: they move as far as the observations are
    /// many. Then effects.
    pub fn refit(&mut self) {
        let newest = self.observed.iter().rev().take(MAX_FITTED);
        self.predictor = Predictor::new(fit(newest, &self.start));
        self.unfitted = 0;
        self.learn();
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::{Activity, Permille};

    use super::super::{Program, speeds};
    use super::*;

    fn resident(program: u64, smact: u32) -> Resident {
        let activity = Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(smact / 2) };
        Resident { program: Some(Program(program)), activity }
    }

    #[test]
    fn what_is_observed_moves_predictions_towards_it() {
        let jobs = [resident(1, 500), resident(2, 600)];
        let mut learner = Learner::new(Constants::A100_40GB);
        assert_eq!(learner.predictor().companies(), 0);
        let error = |learner: &Learner| (learner.predictor().speeds(&jobs)[0].value - 0.6).abs();
        let mut last = error(&learner);
        for _ in 0..4 {
            learner.observe(&jobs, &[0.6, 0.7]);
            learner.learn();
            let now = error(&learner);
            assert!(now < last, "{now} after {last}");
            last = now;
        }
        assert_eq!(learner.predictor().companies(), 4);
        learner.refit();
        assert!(learner.predictor().constants().compute > Constants::A100_40GB.compute);
        let before = learner.clone();
        learner.observe(&jobs, &[f64::NAN, 0.5]);
        learner.observe(&jobs[..1], &[0.5]);
        assert_eq!(learner, before, "what cannot be is not learned");
    }

    /// Two programs of the activity that is assumed would fill a GPU: each had .77 of its speed at most.
    #[test]
    fn an_activity_that_was_too_high_is_learned_away() {
        let activity = Activity { smact: Permille(650), smocc: Permille(300), drama: Permille(400) };
        let job = |program| Resident { program: Some(Program(program)), activity };
        let mut learner = Learner::new(Constants::A100_40GB);
        let unseen = |learner: &Learner| learner.predictor().speeds(&[job(1001), job(1002)])[0].value;
        assert!(unseen(&learner) < 0.77);
        for n in 0..600 {
            learner.observe(&[job(n % 40), job(40 + n % 37)], &[0.95, 0.95]);
            learner.learn_if_due();
        }
        assert!(unseen(&learner) > 0.9, "{}", unseen(&learner));
    }

    #[test]
    fn a_triple_says_something_of_its_pairs() {
        let jobs = [resident(1, 300), resident(2, 300), resident(3, 300)];
        let mut learner = Learner::new(Constants::A100_40GB);
        let before = learner.predictor().pair(&jobs[0], &jobs[1])[0];
        for _ in 0..5 {
            learner.observe(&jobs, &[0.4, 1.0, 1.0]);
        }
        learner.learn();
        let [one, other] = learner.predictor().pair(&jobs[0], &jobs[1]);
        assert!(one < before - 0.1 && other > before - 0.1, "{before} {one} {other}");
        let triple = learner.predictor().speeds(&jobs)[0].value;
        assert!((triple - 0.4).abs() < 0.15, "{triple}");
    }

    #[test]
    fn learning_is_due_often_at_first_and_seldom_later() {
        let mut learner = Learner::new(Constants::A100_40GB);
        let slower = Constants { compute: 4.0, ..Constants::A100_40GB };
        let mut learned = Vec::new();
        for n in 0..200u32 {
            let jobs = [resident(u64::from(n % 7), 400 + n % 500), resident(u64::from(n % 5), 600)];
            learner.observe(&jobs, &speeds(&jobs.map(|job| job.activity), &slower));
            learned.push(learner.learn_if_due());
        }
        assert!(learned[..8].iter().all(|learned| *learned));
        let later = learned[100..].iter().filter(|learned| **learned).count();
        assert!((8..30).contains(&later), "{later}");
        assert!(learner.predictor().constants().compute > 2.5, "{:?}", learner.predictor().constants());
    }
}
