//! Three and more jobs from pairs.

use super::Resident;
use super::formula::cap;

/// Slowest speed that is predicted.
pub(super) const LOWEST: f64 = 0.02;

/// Speeds of jobs from the speeds that they have in pairs, into a vector that is used again: slowdowns add,
/// `1 / s_i = 1 + sum_j (1 / s_ij - 1)`. Of three and more the sum of SM activity is at or under `capacity`: pairs of
/// light jobs say nothing of how many of them fill a GPU.
/// `pair(i, j)` are the speeds of jobs i and j alone with each other, i below j.
pub fn compose(
    jobs: &[Resident],
    capacity: f64,
    mut pair: impl FnMut(usize, usize) -> [f64; 2],
    out: &mut Vec<f64>,
) {
    out.clear();
    for at in 0..jobs.len() {
        join(at, &mut pair, out);
    }
    settle(jobs, capacity, out);
}

/// Adds to the sums of slowdowns of jobs `0..newcomer` what one more job does to them, and its own sum. Sums begin at 1:
/// [`settle`] makes speeds of them.
pub fn join(newcomer: usize, mut pair: impl FnMut(usize, usize) -> [f64; 2], sums: &mut Vec<f64>) {
    let mut own = 1.0;
    for (at, sum) in sums.iter_mut().enumerate().take(newcomer) {
        let [one, other] = pair(at, newcomer).map(slowdown);
        *sum += one;
        own += other;
    }
    sums.push(own);
}

/// Speeds from sums of slowdowns, in their place.
pub fn settle(jobs: &[Resident], capacity: f64, sums: &mut [f64]) {
    sums.iter_mut().for_each(|slow| *slow = 1.0 / *slow);
    if jobs.len() > 2 {
        cap(jobs.iter().map(|job| job.activity.smact.fraction()), capacity, sums);
    }
}

/// The speed of a job that is slowed in two places: slowdowns add.
#[must_use]
pub fn both(one: f64, other: f64) -> f64 {
    1.0 / (1.0 + slowdown(one) + slowdown(other))
}

/// Extra time at a speed, in run times alone.
#[inline]
pub(super) fn slowdown(speed: f64) -> f64 {
    1.0 / speed.clamp(LOWEST, 1.0) - 1.0
}

#[cfg(test)]
mod tests {
    use radrm_base::{Activity, Permille};

    use super::*;

    fn light(jobs: usize) -> Vec<Resident> {
        let activity = Activity { smact: Permille(200), ..Activity::default() };
        vec![Resident { program: None, activity }; jobs]
    }

    fn composed(jobs: usize, pair: impl FnMut(usize, usize) -> [f64; 2]) -> Vec<f64> {
        let mut out = Vec::new();
        compose(&light(jobs), 1.0, pair, &mut out);
        out
    }

    #[test]
    fn slowdowns_add() {
        let speeds = composed(3, |i, j| if (i, j) == (0, 1) { [0.5, 0.8] } else { [0.8, 0.8] });
        assert!(
            (speeds[0] - 1.0 / 2.25).abs() < 1e-12 && (speeds[1] - 1.0 / 1.5).abs() < 1e-12,
            "{speeds:?}"
        );
        assert_eq!(composed(1, |_, _| [0.1; 2]), [1.0]);
        assert_eq!(composed(2, |_, _| [1.3; 2]), [1.0, 1.0], "noise makes no job faster than alone");
    }

    #[test]
    fn many_light_jobs_get_no_more_than_the_gpu() {
        let speeds = composed(10, |_, _| [1.0; 2]);
        assert!(speeds.iter().all(|speed| (speed - 0.5).abs() < 1e-9), "{speeds:?}");
    }
}
