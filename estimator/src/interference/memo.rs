//! Speeds of pairs and sums of companies that were predicted before: a search over many GPUs meets the same programs and
//! the same companies again and again.

use super::{Activity, Predictor, Resident, join, settle};

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
pub(super) struct Memo {
    places: Vec<Option<(Key, [f64; 2])>>,
}

impl Memo {
    /// The speeds of two jobs alone with each other.
    pub(super) fn pair(&mut self, predictor: &Predictor, one: &Resident, other: &Resident) -> [f64; 2] {
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

/// Jobs of one GPU, as they were when a job was last tried beside them.
#[derive(Clone, Debug, Default)]
struct Kept {
    predictor: u64,
    jobs: Vec<Resident>,
    sums: Vec<f64>,
    speeds: f64,
}

/// Companies by GPU, of a bounded number kept. What a newcomer does to one of them takes the pairs with the newcomer alone.
#[derive(Clone, Debug, Default)]
pub struct Companies {
    places: Vec<Kept>,
    pairs: Memo,
}

impl Companies {
    /// Speeds of the jobs of a GPU with the last of them, into a vector that is used again; returns the sum of their speeds
    /// without it. They are those of [`super::compose`]. `gpu` may be any number: other jobs in its place only cost time.
    pub fn with_newcomer(
        &mut self,
        gpu: u32,
        predictor: &Predictor,
        jobs: &[Resident],
        out: &mut Vec<f64>,
    ) -> f64 {
        let Some(newcomer) = jobs.len().checked_sub(1) else { return 0.0 };
        let capacity = predictor.constants().capacity;
        let pairs = &mut self.pairs;
        let mut pair = |i: usize, j: usize| pairs.pair(predictor, &jobs[i], &jobs[j]);
        if self.places.is_empty() {
            self.places.resize(COMPANIES, Kept::default());
        }
        let kept = &mut self.places[gpu as usize % COMPANIES];
        if kept.predictor != predictor.digest() || kept.jobs != jobs[..newcomer] {
            kept.predictor = predictor.digest();
            kept.jobs.clear();
            kept.jobs.extend_from_slice(&jobs[..newcomer]);
            kept.sums.clear();
            (0..newcomer).for_each(|at| join(at, &mut pair, &mut kept.sums));
            out.clone_from(&kept.sums);
            settle(&kept.jobs, capacity, out);
            kept.speeds = out.iter().sum();
        }
        out.clone_from(&kept.sums);
        join(newcomer, pair, out);
        settle(jobs, capacity, out);
        kept.speeds
    }
}

/// Places for companies.
const COMPANIES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use radrm_base::Permille;

    use super::super::{Constants, Learner, Program};
    use super::*;

    #[test]
    fn a_kept_company_is_what_was_composed_also_after_it_changed() {
        let mut companies = Companies::default();
        let mut learner = Learner::new(Constants::A100_40GB);
        let activity =
            |smact| Activity { smact: Permille(smact), drama: Permille(300), ..Activity::default() };
        let job = |n: u64| Resident { program: Some(Program(n % 7)), activity: activity(n as u32 % 11 * 90) };
        for round in 0..3 {
            for gpu in 0..2 * COMPANIES as u64 {
                let jobs: Vec<Resident> = (0..1 + (gpu + round) % 5).map(|n| job(gpu % 13 + n)).collect();
                let (mut before, mut after, mut direct) = (Vec::new(), Vec::new(), Vec::new());
                let predictor = learner.predictor();
                predictor.compose_into(&jobs[..jobs.len() - 1], &mut before);
                predictor.compose_into(&jobs, &mut direct);
                let sum = companies.with_newcomer(gpu as u32, predictor, &jobs, &mut after);
                assert_eq!((sum, after), (before.iter().sum(), direct), "{jobs:?}");
            }
            learner.observe(&[job(1), job(2)], &[0.5, 0.9]);
            learner.learn();
        }
    }

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
