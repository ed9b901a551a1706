//! Measured times of steps that were predicted: what they say of the next prediction on this GPU and stack.
//!
//! Errors of one card and one stack have one sign, so the median of earlier errors is taken off. Where the GPU sets the pace, the
//! predicted time of its operations is corrected; where the host does, the time of the host in the dry run, whose stand-ins return
//! at once.

use radrm_base::Permille;
use radrm_estimator::calibrate::{margin, score};

use super::StepPrediction;
use super::predicted::Interval;

/// Part of the bounds that hold. Nine runs are the fewest that promise it.
const LEVEL: Permille = Permille(900);

/// Runs that count, the newest ones.
const MAX_RUNS: usize = 64;

/// Factor of the bound of a host's time until there are enough runs for their own. No measurement says how often it holds.
const HOST_FACTOR: f64 = 1.5;

/// Measured times of steps, on one model of GPU with one stack, by what set their pace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StepTimes {
    /// Logarithms of measured / predicted time of the operations.
    gpu: Vec<f64>,
    /// Logarithms of measured time / time of the host in the dry run.
    host: Vec<f64>,
}

impl StepTimes {
    /// A real run of a program whose dry run had this step took `ns` for one.
    pub(super) fn observe(&mut self, step: &StepPrediction, ns: u64) {
        let is_host = step.time.is_none() && ns > step.gpu[2];
        let (scores, predicted) = match (is_host, step.host) {
            (false, _) => (&mut self.gpu, step.gpu[1]),
            (true, Some(host)) => (&mut self.host, host),
            (true, None) => return,
        };
        if ns == 0 || predicted == 0 {
            return;
        }
        scores.push(score(ns as f64, predicted as f64));
        if scores.len() > MAX_RUNS {
            scores.remove(0);
        }
    }

    /// The prediction as these runs correct it.
    pub(super) fn corrected(&self, step: &StepPrediction) -> StepPrediction {
        let own = |[low, _, high]: Interval<u64>, value: u64| {
            let part = |end: u64| end as f64 / value.max(1) as f64;
            [part(low), 1.0, part(high)]
        };
        let gpu = Correction::of(&self.gpu, own(step.gpu, step.gpu[1]));
        let host = Correction::of(&self.host, [1.0 / HOST_FACTOR, 1.0, HOST_FACTOR]);
        let (time, by) = match (step.time, gpu, host.zip(step.host)) {
            // The GPU sets the pace.
            (Some(_), Some(gpu), _) => (gpu.times(step.gpu[1]), gpu),
            // The longer of the two sets it.
            (None, gpu, Some((by, host))) => {
                let host = by.times(host);
                let operations = gpu.map_or(step.gpu, |gpu| gpu.times(step.gpu[1]));
                ([0, 1, 2].map(|at| operations[at].max(host[at])), by)
            }
            _ => return *step,
        };
        let operations = gpu.map_or(step.gpu, |gpu| gpu.times(step.gpu[1]));
        StepPrediction {
            gpu: operations,
            low: time[0],
            time: Some(time),
            confidence: by.confidence,
            runs: by.runs,
            ..*step
        }
    }
}

/// Factors on a predicted time: lower end, expected and upper end.
#[derive(Clone, Copy, Debug)]
struct Correction {
    factors: Interval<f64>,
    confidence: Option<Permille>,
    runs: u32,
}

impl Correction {
    /// Of these errors. `around`: factors of the ends about the corrected time until there are enough runs. `None` without runs.
    fn of(scores: &[f64], around: Interval<f64>) -> Option<Self> {
        let middle = median(scores.to_vec())?;
        // Of each run from the others: a median that has seen a run lies nearer to it.
        let distance = |(at, score): (usize, &f64)| {
            let others = scores.iter().enumerate().filter(|(other, _)| *other != at);
            Some((score - median(others.map(|(_, score)| *score).collect())?).abs())
        };
        let distances: Vec<f64> = scores.iter().enumerate().filter_map(distance).collect();
        let measured = margin(&distances, LEVEL.fraction());
        let around = measured.map_or(around, |margin| [(-margin).exp(), 1.0, margin.exp()]);
        Some(Self {
            factors: around.map(|factor| middle.exp() * factor),
            confidence: measured.map(|_| LEVEL),
            runs: u32::try_from(scores.len()).unwrap_or(u32::MAX),
        })
    }

    fn times(&self, ns: u64) -> Interval<u64> {
        // A conversion from a float saturates.
        self.factors.map(|factor| (ns as f64 * factor) as u64)
    }
}

fn median(mut scores: Vec<f64>) -> Option<f64> {
    scores.sort_unstable_by(f64::total_cmp);
    scores.get(scores.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A step of 100 ms (80 to 125) that the GPU limits.
    fn gpu_bound() -> StepPrediction {
        let time = [80 * MS, 100 * MS, 125 * MS];
        StepPrediction {
            gpu: time,
            host: Some(2 * MS),
            low: 80 * MS,
            time: Some(time),
            confidence: Some(Permille(850)),
            smact: Permille(600),
            drama: Permille(300),
            runs: 0,
        }
    }

    /// A step whose operations take 5 ms (4 to 6) and whose host took 8 ms in the dry run.
    fn host_bound() -> StepPrediction {
        let gpu = [4 * MS, 5 * MS, 6 * MS];
        StepPrediction { gpu, host: Some(8 * MS), low: 8 * MS, time: None, confidence: None, ..gpu_bound() }
    }

    fn near(found: Option<Interval<u64>>, expected: Interval<u64>) {
        let found = found.expect("a time");
        let is_near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= b / 1000;
        assert!(found.iter().zip(&expected).all(is_near), "{found:?} and not {expected:?}");
    }

    #[test]
    fn without_runs_a_prediction_stays() {
        for step in [gpu_bound(), host_bound()] {
            assert_eq!(StepTimes::default().corrected(&step), step);
        }
    }

    #[test]
    fn one_run_moves_a_prediction_and_takes_its_coverage() {
        let mut times = StepTimes::default();
        times.observe(&gpu_bound(), 120 * MS);
        let found = times.corrected(&gpu_bound());
        near(found.time, [96 * MS, 120 * MS, 150 * MS]);
        assert_eq!((found.confidence, found.runs), (None, 1), "of one run nothing is known of coverage");
        assert_eq!(times.corrected(&host_bound()).time, None, "it says nothing of a host");
    }

    #[test]
    fn one_run_gives_a_host_bound_step_a_time() {
        let mut times = StepTimes::default();
        times.observe(&host_bound(), 24 * MS);
        let found = times.corrected(&host_bound());
        near(found.time, [16 * MS, 24 * MS, 36 * MS]);
        // Another program of the same host: 30 ms of launches, which take longer than its operations.
        let longer = StepPrediction { host: Some(10 * MS), low: 10 * MS, ..host_bound() };
        near(times.corrected(&longer).time, [20 * MS, 30 * MS, 45 * MS]);
        // The GPU takes longer than the host of this one.
        let gpu = [40 * MS, 50 * MS, 60 * MS];
        near(times.corrected(&StepPrediction { gpu, low: 40 * MS, ..host_bound() }).time, gpu);
    }

    #[test]
    fn nine_runs_give_a_bound_of_their_own() {
        let mut times = StepTimes::default();
        for at in 0..9 {
            times.observe(&gpu_bound(), (116 + at) * MS);
        }
        let found = times.corrected(&gpu_bound());
        // 116 of the others' median of 121 ms is the furthest.
        near(found.time, [115_041 * MS / 1000, 120 * MS, 125_172 * MS / 1000]);
        assert_eq!((found.confidence, found.runs), (Some(LEVEL), 9));
        (0..200).for_each(|_| times.observe(&gpu_bound(), 50 * MS));
        assert_eq!(times.corrected(&gpu_bound()).runs, MAX_RUNS as u32, "the newest count");
    }

    #[test]
    fn a_step_without_a_hosts_time_teaches_nothing_of_a_host() {
        let mut times = StepTimes::default();
        times.observe(&StepPrediction { host: None, ..host_bound() }, 24 * MS);
        times.observe(&gpu_bound(), 0);
        assert_eq!(times, StepTimes::default());
    }
}
