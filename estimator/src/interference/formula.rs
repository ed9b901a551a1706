//! The contention formula: speeds from what each job does to a GPU alone.
//!
//! For job i with SM activity a and DRAM activity d, both measured alone, beside jobs j:
//!
//! ```text
//! 1 / s_i = 1 + (latency + compute * a_i) * U_i^n / (1 - U_i) + memory * d_i * D_i
//! U_i = sum a_j s_j,  D_i = sum d_j s_j   (j != i)
//! ```
//!
//! The first term is the waiting time at a server that is busy for the part U of the time with
//! other jobs' kernels (it grows without bound as U nears 1, as in an M/G/1 queue); `latency` is
//! what even a job of tiny kernels waits, `compute` what a job waits for each kernel of its own.
//! The second is the competition for DRAM. Speeds are the fixed point of these equations. The sum
//! of a s over all jobs stays at or under [`Constants::capacity`]: what exceeds it is scaled away.

use serde::{Deserialize, Serialize};

use super::Activity;

/// Constants of the formula, for one GPU model and one way of sharing it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// Waiting of a job of tiny kernels.
    pub latency: f64,
    /// Waiting by a job's own SM activity.
    pub compute: f64,
    /// Competition for DRAM.
    pub memory: f64,
    /// The most SM activity that jobs can get together.
    pub capacity: f64,
    /// The power n of U: how full a GPU is before jobs wait.
    pub exponent: u8,
}

impl Constants {
    /// Processes that share an A100 40 GB through MPS: least squares (soft L1) over the speeds of 163 measured pairs of
    /// 21 training jobs. `docs/interference-accuracy.md` has the error on families left out.
    pub const A100_40GB: Self =
        Self { latency: 0.387, compute: 1.631, memory: 1.5, capacity: 1.0, exponent: 6 };

    /// All three slowdowns times a factor: for asking how much a conclusion depends on them.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            latency: self.latency * factor,
            compute: self.compute * factor,
            memory: self.memory * factor,
            ..self
        }
    }
}

/// The most that one neighbour makes a job wait. A program has few kernels in flight, so the queue
/// before a job's kernel is no longer than its neighbours are many. No measured pair comes to it.
const LONGEST_WAIT: f64 = 5.0;

/// Rounds to a fixed point that is never reached: enough for a thousandth.
const ROUNDS: usize = 24;

/// Speeds of jobs that share one GPU, each against running alone (0 to 1), in the order given.
#[must_use]
pub fn speeds(jobs: &[Activity], constants: &Constants) -> Vec<f64> {
    let mut out = Vec::new();
    speeds_into(jobs, constants, &mut out);
    out
}

/// [`speeds`] into a vector that is used again.
pub fn speeds_into(jobs: &[Activity], constants: &Constants, out: &mut Vec<f64>) {
    out.clear();
    out.resize(jobs.len(), 1.0);
    solve(|at| parts(&jobs[at]), constants, out);
}

/// [`speeds`] of two jobs.
#[must_use]
pub fn pair_speeds(one: Activity, other: Activity, constants: &Constants) -> [f64; 2] {
    let mut out = [1.0; 2];
    let jobs = [parts(&one), parts(&other)];
    solve(|at| jobs[at], constants, &mut out);
    out
}

/// SM activity and DRAM activity, 0 to 1.
fn parts(job: &Activity) -> (f64, f64) {
    (job.smact.fraction(), job.drama.fraction())
}

fn solve(job: impl Fn(usize) -> (f64, f64), constants: &Constants, out: &mut [f64]) {
    if out.len() < 2 {
        return;
    }
    let longest = LONGEST_WAIT * (out.len() - 1) as f64;
    for _ in 0..ROUNDS {
        let (busy, dram) = out.iter().enumerate().fold((0.0, 0.0), |(busy, dram), (at, speed)| {
            let (a, d) = job(at);
            (busy + a * speed, dram + d * speed)
        });
        let mut moved = 0.0f64;
        for (at, speed) in out.iter_mut().enumerate() {
            let (a, d) = job(at);
            // Others' part of the time, from the speeds of the round before.
            let u = (busy - a * *speed).clamp(0.0, 0.999);
            let other = (dram - d * *speed).max(0.0);
            let wait = (power(u, constants.exponent) / (1.0 - u)).min(longest);
            let slow = (constants.latency + constants.compute * a) * wait + constants.memory * d * other;
            // Half a step: whole ones swing between two points on a crowded GPU.
            let next = 0.5 * *speed + 0.5 / (1.0 + slow);
            moved = moved.max((next - *speed).abs());
            *speed = next;
        }
        if moved < 1e-4 {
            break;
        }
    }
    cap((0..out.len()).map(|at| job(at).0), constants.capacity, out);
}

/// By multiplications: a call of the library's function takes as long as the rest of a round.
#[inline]
fn power(base: f64, exponent: u8) -> f64 {
    let square = base * base;
    match exponent {
        2 => square,
        6 => square * square * square,
        _ => base.powi(i32::from(exponent)),
    }
}

/// Scales speeds down to where the sum of SM activity, each 0 to 1, is at or under the capacity.
pub(super) fn cap(smacts: impl Iterator<Item = f64>, capacity: f64, speeds: &mut [f64]) {
    let busy: f64 = smacts.zip(&*speeds).map(|(smact, speed)| smact * speed).sum();
    if busy > capacity {
        speeds.iter_mut().for_each(|speed| *speed *= capacity / busy);
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::Permille;

    use super::*;

    fn job(smact: u32, drama: u32) -> Activity {
        Activity { smact: Permille(smact), smocc: Permille(smact / 2), drama: Permille(drama) }
    }

    #[test]
    fn a_lone_job_has_full_speed_and_a_light_one_does_not_hurt() {
        assert_eq!(speeds(&[job(900, 500)], &Constants::A100_40GB), [1.0]);
        let pair = speeds(&[job(800, 400), job(80, 2)], &Constants::A100_40GB);
        assert!(pair[0] > 0.97 && pair[1] < 0.8, "{pair:?}");
    }

    #[test]
    fn no_more_is_done_than_the_gpu_can_do() {
        for n in 2..12 {
            let jobs = vec![job(700, 400); n];
            let all = speeds(&jobs, &Constants::A100_40GB);
            let busy: f64 = all.iter().map(|speed| speed * 0.7).sum();
            assert!(busy <= 1.0 + 1e-9, "{n}: {busy}");
            assert!(all.iter().all(|speed| (speed - all[0]).abs() < 1e-6), "{all:?}");
        }
    }

    #[test]
    fn another_neighbour_never_makes_a_job_faster() {
        let mut jobs = vec![job(500, 300)];
        let mut last = 1.0;
        for n in 1..8 {
            jobs.push(job(100 * n, 60 * n));
            let speed = speeds(&jobs, &Constants::A100_40GB)[0];
            assert!(speed <= last + 2e-3, "{n}: {speed} after {last}");
            last = speed;
        }
    }
}
