//! Constants of the formula from what was observed.

use super::{Company, Constants, compose, pair_speeds};

/// Weight of the constants that a fit starts from, in observed speeds: a site with few observations keeps them.
const PRIOR: f64 = 1.0;

/// Errors above this count in proportion and not squared: one odd pair cannot rule.
const SOFT: f64 = 0.05;

/// Constants refitted to what was observed on one GPU model, from `start`: latency, compute and memory move (soft L1,
/// coordinate search), the exponent stays. The capacity only grows: jobs that got more together than a whole GPU's SM activity are
/// less active than was known of them. Far from `start` costs as much as a few observed speeds.
pub fn fit<'a>(observed: impl Iterator<Item = &'a Company> + Clone, start: &Constants) -> Constants {
    let soft = |error: f64| ((error / SOFT).powi(2) + 1.0).sqrt() - 1.0;
    let mut buffer = Vec::new();
    let mut loss = |constants: &Constants| {
        let mut sum = 0.0;
        for company in observed.clone() {
            let jobs = &company.jobs;
            let pair = |i: usize, j: usize| pair_speeds(jobs[i].activity, jobs[j].activity, constants);
            compose(jobs, constants.capacity, pair, &mut buffer);
            sum += buffer.iter().zip(&company.speeds).map(|(a, b)| soft(a - b)).sum::<f64>();
        }
        let moved = |of: fn(&Constants) -> f64| ((of(constants) + 0.01) / (of(start) + 0.01)).ln().powi(2);
        sum + PRIOR
            * (moved(|c| c.latency) + moved(|c| c.compute) + moved(|c| c.memory) + moved(|c| c.capacity))
    };
    let (mut best, mut step) = (*start, 0.5);
    let mut least = loss(&best);
    while step > 0.004 {
        let mut moved = false;
        for which in 0..4 {
            for factor in [1.0 - step, 1.0 + step] {
                let mut next = best;
                match which {
                    0 => next.latency *= factor,
                    1 => next.compute *= factor,
                    2 => next.memory *= factor,
                    _ => next.capacity = (next.capacity * factor).max(start.capacity),
                }
                let now = loss(&next);
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

#[cfg(test)]
mod tests {
    use radrm_base::{Activity, Permille};

    use super::super::{Resident, speeds};
    use super::*;

    fn job(smact: u32, drama: u32) -> Activity {
        Activity { smact: Permille(smact), smocc: Permille(smact / 2), drama: Permille(drama) }
    }

    #[test]
    fn a_fit_recovers_constants_and_few_observations_move_little() {
        let truth = Constants { latency: 0.1, compute: 0.9, memory: 0.6, ..Constants::A100_40GB };
        let observed: Vec<Company> = (0..60)
            .map(|n| {
                let jobs = vec![job(300 + 11 * n, 20 * (n % 40)), job(950 - 9 * n, 15 * (n % 50))];
                let speeds = speeds(&jobs, &truth);
                let jobs = jobs.into_iter().map(|activity| Resident { program: None, activity });
                Company { speeds, jobs: jobs.collect() }
            })
            .collect();
        let error = |constants: &Constants| {
            let all = observed.iter().flat_map(|company| {
                let jobs: Vec<Activity> = company.jobs.iter().map(|job| job.activity).collect();
                let predicted = speeds(&jobs, constants);
                predicted.into_iter().zip(company.speeds.clone())
            });
            crate::evaluate::mean_absolute(all)
        };
        let found = fit(observed.iter(), &Constants::A100_40GB);
        assert!(error(&found) < 0.01 && error(&Constants::A100_40GB) > 2.0 * error(&found), "{found:?}");
        assert_eq!(fit([].iter(), &Constants::A100_40GB), Constants::A100_40GB);
        let one = fit(observed[..1].iter(), &Constants::A100_40GB);
        assert!(one.compute > found.compute, "{one:?}");
    }
}
