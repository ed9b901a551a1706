//! `xu`: the place with the least slowdown by a linear model of what each job does to a GPU.
//!
//! Xu, Zhang, Bian, Ye, Wang, Fu, Tang: Characterization and Prediction of Performance Interference on Mediated Passthrough
//! GPUs for Interference-aware Scheduler, HotCloud '19. Slowdowns are predicted by regression from the utilisations of both
//! jobs, and a job goes where the predicted interference is least. The coefficients are least squares over the speeds of
//! 163 pairs on an A100 40 GB (error .062, in sample); of several neighbours what each one takes adds up.

use super::company::progress;
use super::{Candidate, Company, DecidedBy, Fit, Policy, Progress, Rules, at_once, crowded};
use crate::interference::Activity;
use crate::reason::Wait;
use crate::settings::Settings;

/// Speed beside one neighbour: a constant, own and the neighbour's SM activity, own and the neighbour's DRAM activity.
const SPEED: [f64; 5] = [1.080, 0.066, -0.584, -0.113, 0.078];

/// A device on which a job would be slower waits for one to leave: the paper's threshold is set by the operator.
const MIN_SPEED: f64 = 0.5;

pub(super) struct Xu;

fn lost(of: Activity, beside: Activity) -> f64 {
    let [constant, own, other, own_dram, other_dram] = SPEED;
    let speed = constant
        + own * of.smact.fraction()
        + other * beside.smact.fraction()
        + own_dram * of.drama.fraction()
        + other_dram * beside.drama.fraction();
    (1.0 - speed).max(0.0)
}

impl Rules for Xu {
    fn rank(&self, place: &Candidate) -> Fit {
        place.by_gain()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let speeds = |count: usize, out: &mut Vec<f64>| {
            let all = || company.activities().take(count).enumerate();
            let speed = |i: usize, of: Activity| {
                let others = all().filter(|(j, _)| *j != i);
                (1.0 - others.map(|(_, beside)| lost(of, beside)).sum::<f64>()).max(0.0)
            };
            out.clear();
            out.extend(all().map(|(i, of)| speed(i, of)));
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        speeds(company.jobs.len() - 1, &mut before);
        speeds(company.jobs.len(), &mut after);
        let keeps = after.iter().all(|speed| *speed >= MIN_SPEED);
        keeps.then(|| progress(&before, &after, company.rule(Policy::Xu))).ok_or_else(|| crowded(Policy::Xu))
    }

    fn refusal(&self) -> &'static str {
        "its regression over pairs of an A100 predicts that a job would have less than half of its speed"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
    }
}
