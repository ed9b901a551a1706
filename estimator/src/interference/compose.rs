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
    out.resize(jobs.len(), 1.0);
    // Sums of slowdowns first.
    for j in 1..jobs.len() {
        for i in 0..j {
            let [one, other] = pair(i, j).map(slowdown);
            out[i] += one;
            out[j] += other;
        }
    }
    out.iter_mut().for_each(|slow| *slow = 1.0 / *slow);
    if jobs.len() > 2 {
        cap(jobs.iter().map(|job| job.activity), capacity, out);
    }
}

/// The speed of a job that is slowed in two places: slowdowns add.
#[must_use]
pub fn both(one: f64, other: f64) -> f64 {
    1.0 / (1.0 + slowdown(one) + slowdown(other))
}

/// What a speed costs, in run times alone.
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
