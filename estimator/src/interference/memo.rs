//! Speeds of pairs that were predicted before: a search over many GPUs meets the same programs again and again.

use super::{Activity, Predictor, Resident};

/// Places for pairs; of two that fall on one place the later one stays.
const PLACES: usize = 1 << 12;

/// A pair under one predictor: its digest, and both programs and activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    predictor: u64,
    programs: [u64; 2],
    activities: u64,
}

impl Key {
    fn of(predictor: &Predictor, one: &Resident, other: &Resident) -> Self {
        // SM occupancy has no part in a speed. Both others are thousandths: 16 bits each hold them.
        let packed =
            |of: Activity| u64::from(of.smact.0.min(0xffff)) << 16 | u64::from(of.drama.0.min(0xffff));
        Self {
            predictor: predictor.digest(),
            programs: [one, other].map(|of| of.program.map_or(0, |program| program.0)),
            activities: packed(one.activity) << 32 | packed(other.activity),
        }
    }

    fn place(&self) -> usize {
        let mix = |digest: u64, bits: u64| (digest ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let digest =
            [self.programs[0], self.programs[1].rotate_left(32), self.activities].into_iter().fold(0, mix);
        (digest >> 40) as usize % PLACES
    }
}

/// Pairs by [`Predictor::pair`], of a bounded number kept.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    places: Vec<Option<(Key, [f64; 2])>>,
}

impl Memo {
    /// The speeds of two jobs alone with each other.
    pub fn pair(&mut self, predictor: &Predictor, one: &Resident, other: &Resident) -> [f64; 2] {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let key = Key::of(predictor, one, other);
        let place = &mut self.places[key.place()];
        match place {
            Some((kept, speeds)) if *kept == key => *speeds,
            _ => place.insert((key, predictor.pair(one, other))).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::Permille;

    use super::super::{Constants, Learner, Program};
    use super::*;

    #[test]
    fn a_kept_pair_is_what_the_predictor_says_also_after_it_learned() {
        let mut memo = Memo::default();
        let mut learner = Learner::new(Constants::A100_40GB);
        let jobs: Vec<Resident> = (0..40)
            .map(|n| Resident {
                program: (n % 3 > 0).then_some(Program(n % 5)),
                activity: Activity {
                    smact: Permille(n as u32 * 25),
                    drama: Permille(300),
                    ..Activity::default()
                },
            })
            .collect();
        for _ in 0..3 {
            for (one, other) in jobs.iter().flat_map(|one| jobs.iter().map(move |other| (one, other))) {
                let direct = learner.predictor().pair(one, other);
                assert_eq!(memo.pair(learner.predictor(), one, other), direct);
                assert_eq!(memo.pair(learner.predictor(), one, other), direct);
            }
            learner.observe(&jobs[31..33], &[0.5, 0.9]);
            learner.learn();
        }
    }
}
