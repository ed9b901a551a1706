//! `miso`: each job of a GPU has a MIG slice of its own, and the GPU is divided anew for each company of jobs so that they get
//! most done in sum; a job comes to the GPU with the fewest jobs.
//!
//! Li, Patel, Samsi, Gadepally, Tiwari: MISO, SoCC '22, doi 10.1145/3542929.3563510. Its network that predicts the speed on a
//! slice from a short run of all jobs under MPS is not public: the part of the time in which a job uses the SMs or DRAM is
//! stretched by the slice here, the rest is not. An A100's slices: of seven parts of the SMs and eight of the memory,
//! one (1, 1), two (2, 2), three (3, 4), four (4, 4) or all (7, 8). Left out: the time of that short run and of the new
//! division, for which jobs write checkpoints.

use super::company::progress;
use super::{Candidate, Company, DecidedBy, DeviceUse, Fit, Policy, Progress, Rules, at_once, crowded};
use crate::interference::Activity;
use crate::reason::Wait;
use crate::settings::Settings;
use crate::units::Bytes;

/// Valid partitions of the left four and the right three compute slices.
const LEFT: [&[u64]; 5] = [&[4], &[3], &[2, 2], &[2, 1, 1], &[1, 1, 1, 1]];
const RIGHT: [&[u64]; 3] = [&[3], &[2, 1], &[1, 1, 1]];

/// Parts of the SMs in all, and of the memory.
const PARTS: u64 = 7;
const MEMORY: u64 = 8;

pub(super) struct Miso;

/// Parts of the memory that come with so many of the SMs.
fn memory(parts: u64) -> u64 {
    match parts {
        3 => 4,
        7 => MEMORY,
        parts => parts,
    }
}

/// The speed of a job on a slice.
fn speed(job: Activity, parts: u64) -> f64 {
    let used = job.smact.fraction().max(job.drama.fraction());
    1.0 / (1.0 - used + used * PARTS as f64 / parts as f64)
}

/// The speeds of jobs on the slices that give them most in sum, in the order given; `None`: no division holds all of them.
pub(crate) fn best(jobs: &[(Activity, Bytes)], capacity: Bytes) -> Option<Vec<f64>> {
    let fits = |need: Bytes, parts: u64| {
        u128::from(need.0) * u128::from(MEMORY) <= u128::from(capacity.0) * u128::from(memory(parts))
    };
    let mut best: Option<(f64, Vec<f64>)> = None;
    let mut consider = |slices: &[u64]| {
        // How many slices there are of each size.
        let mut left = [0u8; 8];
        slices.iter().for_each(|parts| left[*parts as usize] += 1);
        let mut chosen = Vec::with_capacity(jobs.len());
        assign(jobs, &mut left, &fits, &mut chosen, &mut best);
    };
    consider(&[PARTS]);
    for left in LEFT {
        for right in RIGHT {
            consider(&[left, right].concat());
        }
    }
    best.map(|(_, speeds)| speeds)
}

fn assign(
    jobs: &[(Activity, Bytes)],
    left: &mut [u8; 8],
    fits: &impl Fn(Bytes, u64) -> bool,
    chosen: &mut Vec<f64>,
    best: &mut Option<(f64, Vec<f64>)>,
) {
    let Some((activity, need)) = jobs.get(chosen.len()) else {
        let sum: f64 = chosen.iter().sum();
        if best.as_ref().is_none_or(|(most, _)| sum > *most + 1e-9) {
            *best = Some((sum, chosen.clone()));
        }
        return;
    };
    for parts in (1..=PARTS).rev() {
        if left[parts as usize] == 0 || !fits(*need, parts) {
            continue;
        }
        left[parts as usize] -= 1;
        chosen.push(speed(*activity, parts));
        assign(jobs, left, fits, chosen, best);
        chosen.pop();
        left[parts as usize] += 1;
    }
}

impl Rules for Miso {
    fn rank(&self, place: &Candidate) -> Fit {
        let jobs = i64::try_from(place.jobs).unwrap_or(i64::MAX);
        Fit { rank: (jobs, -place.progress.worth(), place.id), score: place.predicted() }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn device_use(&self) -> DeviceUse {
        DeviceUse::Sliced
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let jobs: Vec<(Activity, Bytes)> = company.activities().zip(company.claims.iter().copied()).collect();
        let after = best(&jobs, company.capacity).ok_or_else(|| crowded(Policy::Miso))?;
        let before = best(&jobs[..jobs.len() - 1], company.capacity).unwrap_or_default();
        Ok(progress(&before, &after, company.rule(Policy::Miso)))
    }

    fn refusal(&self) -> &'static str {
        "no division into MIG slices has one for each job there and for it"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Permille;

    fn job(smact: u32, gib: u64) -> (Activity, Bytes) {
        (Activity { smact: Permille(smact), ..Activity::default() }, Bytes::from_gib(gib))
    }

    fn speeds(jobs: &[(Activity, Bytes)]) -> Option<Vec<f64>> {
        best(jobs, Bytes::from_gib(40))
    }

    fn near(found: Option<Vec<f64>>, expected: &[f64]) {
        let found = found.expect("a division");
        let equal = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(equal && found.len() == expected.len(), "{found:?} and not {expected:?}");
    }

    #[test]
    fn slices_are_those_that_get_most_done() {
        near(speeds(&[job(1000, 4)]), &[1.0]);
        // 4 and 3 of 7 parts: the busy job has the larger one. 1 / (1 - .2 + .2 * 7 / 3) = 15 / 19.
        near(speeds(&[job(200, 4), job(1000, 4)]), &[15.0 / 19.0, 4.0 / 7.0]);
        // Memory decides against that: 25 GiB are in no slice but the whole GPU.
        assert_eq!(speeds(&[job(200, 25), job(1000, 4)]), None);
        // 20 GiB fit into both halves, and a third job of 5 GiB beside neither pair of them, but beside 4 and 2 parts.
        near(speeds(&[job(1000, 20), job(1000, 10), job(1000, 5)]), &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]);
        assert_eq!(speeds(&[job(1000, 20), job(1000, 20), job(0, 1)]), None);
    }

    #[test]
    fn seven_jobs_share_a_gpu_and_eight_do_not() {
        near(speeds(&[job(1000, 5); 7]), &[1.0 / 7.0; 7]);
        assert_eq!(speeds(&[job(0, 1); 8]), None);
        near(speeds(&[job(0, 5); 7]), &[1.0; 7]);
    }
}
