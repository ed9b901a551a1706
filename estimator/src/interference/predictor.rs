//! Speeds with intervals, from the formula and what was learned.

use serde::{Deserialize, Serialize};

use super::compose::LOWEST;
use super::{Activity, Constants, Effects, PairSum, Resident, compose, pair_speeds};
use crate::calibrate::margin;

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
    /// 95 % of the speeds of A100 pairs whose family was held out, see `docs/interference-accuracy.md`.
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

/// Predictions for one GPU model and one way of sharing it.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictor {
    constants: Constants,
    effects: Effects,
    sum: PairSum,
    spread: Spread,
    digest: u64,
    /// Observed companies that it follows.
    companies: u32,
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new(Constants::A100_40GB)
    }
}

impl Predictor {
    /// One that has only the formula.
    #[must_use]
    pub fn new(constants: Constants) -> Self {
        let (effects, sum, spread) = (Effects::default(), PairSum::default(), Spread::default());
        Self { constants, effects, sum, spread, digest: 0, companies: 0 }.with_effects(Effects::default())
    }

    pub(super) fn with_effects(mut self, effects: Effects) -> Self {
        let Constants { latency, compute, memory, capacity, exponent } = self.constants;
        let constants = [latency, compute, memory, capacity, f64::from(exponent)].map(f64::to_bits);
        let mix =
            |digest: u64, bits: u64| (digest ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.digest = constants.into_iter().fold(effects.digest(), mix);
        self.effects = effects;
        self
    }

    pub(super) fn with_sum(self, sum: PairSum) -> Self {
        Self { sum, ..self }
    }

    pub(super) fn after(self, companies: usize) -> Self {
        Self { companies: u32::try_from(companies).unwrap_or(u32::MAX), ..self }
    }

    /// Number of observed companies of jobs that its predictions follow; 0: they are those of the constants.
    #[must_use]
    pub fn companies(&self) -> u32 {
        self.companies
    }

    /// Sum of the speeds of two jobs by KACE's regression, which has no part in the other predictions.
    #[must_use]
    pub fn pair_sum(&self, one: Activity, other: Activity) -> f64 {
        self.sum.of(one, other)
    }

    /// The constants in use.
    #[must_use]
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Equal for predictors that predict alike.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Speeds of two jobs alone with each other.
    #[must_use]
    pub fn pair(&self, one: &Resident, other: &Resident) -> [f64; 2] {
        let [first, second] = pair_speeds(one.activity, other.activity, &self.constants);
        let (Some(a), Some(b)) = (one.program, other.program) else { return [first, second] };
        [first + self.effects.of(a, b), second + self.effects.of(b, a)].map(|speed| speed.clamp(LOWEST, 1.0))
    }

    pub(super) fn compose_into(&self, jobs: &[Resident], out: &mut Vec<f64>) {
        compose(jobs, self.constants.capacity, |i, j| self.pair(&jobs[i], &jobs[j]), out);
    }

    /// Speeds of all jobs on one GPU, in the order given.
    #[must_use]
    pub fn speeds(&self, jobs: &[Resident]) -> Vec<Speed> {
        let mut all = Vec::new();
        self.compose_into(jobs, &mut all);
        match *all {
            [alone] => vec![Speed { value: alone, low: alone, high: alone }],
            _ => all.into_iter().map(|speed| self.interval(speed)).collect(),
        }
    }

    /// The interval of a speed beside others.
    #[must_use]
    pub fn interval(&self, speed: f64) -> Speed {
        self.spread.around(speed)
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::{Activity, Permille};

    use super::*;

    fn resident(smact: u32) -> Resident {
        let activity = Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(smact / 2) };
        Resident { program: None, activity }
    }

    #[test]
    fn an_interval_holds_the_speed_and_slow_jobs_have_wider_ones() {
        let speeds = Predictor::default().speeds(&[resident(800), resident(100)]);
        for speed in &speeds {
            assert!(speed.low <= speed.value && speed.value <= speed.high && speed.high <= 1.0, "{speed:?}");
        }
        let width = |speed: &Speed| speed.value - speed.low;
        assert!(speeds[1].value < speeds[0].value && width(&speeds[1]) > width(&speeds[0]));
        let alone = Predictor::default().speeds(&[resident(800)]);
        assert_eq!(alone, [Speed { value: 1.0, low: 1.0, high: 1.0 }]);
    }

    #[test]
    fn another_neighbour_never_makes_a_job_faster() {
        let predictor = Predictor::default();
        let mut jobs = vec![resident(500)];
        let mut last = 1.0;
        for n in 1..8 {
            jobs.push(resident(100 * n));
            let speed = predictor.speeds(&jobs)[0].value;
            assert!(speed <= last, "{n}: {speed} after {last}");
            last = speed;
        }
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
