//! Ground truth of a replay: speeds of jobs that share a GPU, memory over time, power.

use serde::{Deserialize, Serialize};

use crate::interference::{Activity, Constants, USUAL, speeds_into};
use crate::units::{Bytes, Millis};

/// Mode in which jobs share a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Multi-process service: kernels of several processes run at the same time.
    #[default]
    Mps,
    /// Plain processes: the driver gives each a slice of time in turn.
    Streams,
    /// Instances with their own SMs and memory.
    Mig,
}

/// The model's constants. Each says where it comes from in `docs/replay-model.md`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Mode in which jobs share a GPU.
    pub mode: Mode,
    /// Interference under MPS: the truth, which the scheduler does not know.
    pub mps: Constants,
    /// Streams: the part of the time a job keeps the GPU busy, `base + slope * SMACT`, at most 1.
    pub streams_base: f64,
    /// See `streams_base`.
    pub streams_slope: f64,
    /// Streams: what changing from one process to the other costs each.
    pub streams_switch: f64,
    /// MIG: the part of the GPU's SMs (and of its memory bandwidth) that each instance has.
    pub mig_part: f64,
    /// A device that does nothing, in W.
    pub idle_watts: f64,
    /// A device with at least one process, on top, in W.
    pub awake_watts: f64,
    /// At full SM activity, on top, in W.
    pub busy_watts: f64,
    /// From the start of a job to its process on the GPU.
    pub launch: Millis,
    /// From there until it holds its peak; it holds `early` of it at half that time.
    pub ramp: Millis,
    /// See `ramp`.
    pub early: f64,
    /// Memory of a process's context, there as soon as it shows up.
    pub context: Bytes,
    /// The monitor reports once in this time: the means over it, and the memory in use at its end. Decisions in between
    /// rest on the last report. 0: it reports each change at once.
    pub window: Millis,
    /// `aware` gets the activity of a running job of which nothing was known once in this time: its own where it is alone, and
    /// the sum of all jobs of its device and the launches of each where it is not. 0: never.
    pub read: Millis,
    /// Bytes a second when a job is suspended or resumed.
    pub suspend_rate: u64,
    /// Random differences from run to run: deviation of a job's run time.
    pub jitter: f64,
    /// Random differences of `ramp`: uniform within this part of it, up and down.
    pub ramp_jitter: f64,
    /// Random differences of the interference constants from seed to seed: uniform within this part.
    pub spread: f64,
    /// Each pair of programs has slowdowns of its own: those of the model times a factor between 1 / `scatter` and
    /// `scatter`, which no prediction knows. 1: as the model says. Above, predictions are wrong in their order.
    pub scatter: f64,
    /// Activity of jobs of which the trace states neither that nor a share, whatever the scheduler assumes of them.
    pub unknown: Activity,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            mode: Mode::Mps,
            mps: Self::MPS,
            streams_base: 0.75,
            streams_slope: 0.35,
            streams_switch: 0.05,
            mig_part: 3.0 / 7.0,
            idle_watts: 55.0,
            awake_watts: 45.0,
            busy_watts: 215.0,
            launch: Millis::from_secs(5),
            ramp: Millis::from_secs(20),
            early: 0.6,
            context: Bytes::from_mib(500),
            window: Millis::from_secs(93),
            read: Millis::from_secs(60),
            suspend_rate: 5_000_000_000,
            jitter: 0.01,
            ramp_jitter: 0.5,
            spread: 0.0,
            scatter: 1.0,
            unknown: USUAL,
        }
    }
}

impl Model {
    /// Three constants fitted to 163 pairs on an A100 40 GB, with an exponent of 2. Replays were calibrated on published
    /// figures with these, so they stay; the scheduler predicts with [`Constants::A100_40GB`].
    pub const MPS: Constants =
        Constants { latency: 0.100, compute: 0.617, memory: 0.628, capacity: 1.0, exponent: 2 };

    /// No start-up, no ramp, no randomness: jobs of clusters of which only run times are known.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.launch = Millis::ZERO;
        self.ramp = Millis::ZERO;
        self.window = Millis::ZERO;
        self.read = Millis::ZERO;
        self.jitter = 0.0;
        self
    }

    /// Returns true if anything differs from one seed to the next.
    #[must_use]
    pub fn has_chance(&self) -> bool {
        self.jitter > 0.0
            || (self.ramp > Millis::ZERO && self.ramp_jitter > 0.0)
            || self.window > Millis::ZERO
            || self.spread > 0.0
            || self.scatter > 1.0
    }

    /// Speeds of jobs on one device, against running alone on a whole GPU. `caps` are the parts of
    /// SM time they are limited to (1: not limited).
    pub(crate) fn speeds(&self, jobs: &[Activity], caps: &[f64], part: f64, out: &mut Vec<f64>) {
        match self.mode {
            Mode::Mps | Mode::Mig => {
                let capped: Vec<Activity> =
                    jobs.iter().zip(caps).map(|(job, cap)| job.scaled(cap_of(*job, *cap))).collect();
                speeds_into(&capped, &self.mps, out);
                for ((speed, job), cap) in out.iter_mut().zip(jobs).zip(caps) {
                    *speed *= cap_of(*job, *cap);
                }
            }
            Mode::Streams => {
                out.clear();
                let busy =
                    |job: &Activity| (self.streams_base + self.streams_slope * job.smact.fraction()).min(1.0);
                let sum: f64 = jobs.iter().map(busy).sum();
                let switch = if jobs.len() > 1 { 1.0 - self.streams_switch } else { 1.0 };
                out.extend(
                    jobs.iter().zip(caps).map(|(job, cap)| (switch / sum.max(1.0)).min(cap_of(*job, *cap))),
                );
            }
        }
        if part < 1.0 {
            for (speed, job) in out.iter_mut().zip(jobs) {
                // The part of the time in which it uses the SMs (or DRAM) stretches as they get fewer.
                let used = job.smact.fraction().max(job.drama.fraction());
                *speed /= 1.0 - used + used / part;
            }
        }
    }

    /// Slowdowns of pairs of programs on one device under [`Model::scatter`], from the speeds of [`Model::speeds`]: each
    /// neighbour counts by its SM activity.
    pub(crate) fn scatter_into(
        &self,
        jobs: &[Activity],
        factor: impl Fn(usize, usize) -> f64,
        out: &mut [f64],
    ) {
        let weight = |job: usize| 1e-3 + jobs[job].smact.fraction();
        let scattered: Vec<f64> = (0..jobs.len())
            .map(|one| {
                let others = || (0..jobs.len()).filter(|other| *other != one);
                let all: f64 = others().map(weight).sum();
                let mean = others().map(|other| factor(one, other) * weight(other)).sum::<f64>() / all;
                1.0 / (1.0 + (1.0 / out[one] - 1.0) * mean)
            })
            .collect();
        let busy: f64 = jobs.iter().zip(&scattered).map(|(job, speed)| job.smact.fraction() * speed).sum();
        let part = (self.mps.capacity / busy).min(1.0);
        out.iter_mut().zip(scattered).for_each(|(speed, scattered)| *speed = scattered * part);
    }

    /// Time to suspend a job that holds `bytes`, or to resume it.
    pub(crate) fn suspension(&self, bytes: Bytes) -> Millis {
        Millis(bytes.0 * 1000 / self.suspend_rate.max(1))
    }

    /// Power of a device, in W. An instance has its part of what a process costs and what its SM
    /// activity (of the whole GPU) costs; its GPU's idle power is counted once, at the GPU.
    pub(crate) fn watts(&self, processes: usize, smact: f64, part: f64) -> f64 {
        let idle = if part < 1.0 { 0.0 } else { self.idle_watts };
        let awake = if processes > 0 { self.awake_watts * part } else { 0.0 };
        idle + awake + self.busy_watts * smact.min(1.0)
    }
}

fn cap_of(job: Activity, cap: f64) -> f64 {
    let used = job.smact.fraction();
    if cap >= 1.0 || used <= cap { 1.0 } else { cap / used }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Permille;

    fn job(smact: u32) -> Activity {
        Activity { smact: Permille(smact), smocc: Permille(300), drama: Permille(200) }
    }

    fn speeds(model: &Model, jobs: &[Activity], caps: &[f64], part: f64) -> Vec<f64> {
        let mut out = Vec::new();
        model.speeds(jobs, caps, part, &mut out);
        out
    }

    #[test]
    fn sharing_by_mps_gets_more_done_than_by_slices_of_time() {
        let jobs = [job(600), job(500)];
        let mps: f64 = speeds(&Model::default(), &jobs, &[1.0; 2], 1.0).iter().sum();
        let streams = Model { mode: Mode::Streams, ..Model::default() };
        let slices: f64 = speeds(&streams, &jobs, &[1.0; 2], 1.0).iter().sum();
        assert!(mps > slices + 0.2 && slices > 1.0, "{mps} {slices}");
    }

    #[test]
    fn a_budget_holds_and_helps_the_neighbour() {
        let model = Model::default();
        let free = speeds(&model, &[job(800), job(800)], &[1.0, 1.0], 1.0);
        let held = speeds(&model, &[job(800), job(800)], &[1.0, 0.2], 1.0);
        assert!(held[1] * 0.8 <= 0.2 + 1e-9, "{held:?}");
        assert!(held[0] > free[0] + 0.1, "{held:?} {free:?}");
    }

    #[test]
    fn scattered_slowdowns_differ_by_pair_and_get_no_more_done_than_the_gpu_can() {
        let model = Model::default();
        let jobs = [job(700), job(600), job(300)];
        let plain = speeds(&model, &jobs, &[1.0; 3], 1.0);
        let mut same = plain.clone();
        model.scatter_into(&jobs, |_, _| 1.0, &mut same);
        assert!(same.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-9), "{same:?} {plain:?}");
        let mut less = plain.clone();
        model.scatter_into(&jobs, |one, _| if one == 0 { 0.25 } else { 4.0 }, &mut less);
        assert!(less[0] > plain[0] && less[1] < plain[1] && less[2] < plain[2], "{less:?} {plain:?}");
        let busy: f64 = jobs.iter().zip(&less).map(|(job, speed)| job.smact.fraction() * speed).sum();
        assert!(busy <= 1.0 + 1e-9, "{busy}");
    }

    #[test]
    fn an_instance_is_slower_the_more_a_job_uses() {
        let model = Model { mode: Mode::Mig, ..Model::default() };
        let heavy = speeds(&model, &[job(900)], &[1.0], 3.0 / 7.0)[0];
        let light = speeds(&model, &[job(100)], &[1.0], 3.0 / 7.0)[0];
        assert!(heavy < 0.5 && light > 0.78, "{heavy} {light}");
        assert_eq!(speeds(&model, &[job(900)], &[1.0], 1.0), [1.0]);
    }
}
