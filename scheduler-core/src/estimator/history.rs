//! What earlier runs of the same program needed: a line through their batch sizes.

use std::collections::BTreeMap;

use super::{Estimate, Estimator, Features};
use crate::units::{Bytes, Permille};

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its batch size, if that is known.
    pub batch: Option<u32>,
    /// Its peak on a GPU; of a run that ran out of memory what it held and asked for.
    pub peak: Bytes,
    /// It was not cut short: a run that was needs at least its peak.
    pub complete: bool,
}

/// Added to a line's prediction for its bound: on 1017 TIMM models at five batch sizes (A100, two
/// runs predict a third) 95 % of the peaks were less than 6.6 % above it beyond the larger run, 5.4 %
/// between the two, 7.6 % below the smaller.
const MARGIN: Permille = Permille(80);

/// Runs kept of each program and batch size.
const KEPT: usize = 8;

/// Peaks of earlier runs, by program and batch size.
#[derive(Clone, Debug, Default)]
pub struct History {
    programs: BTreeMap<String, BTreeMap<Option<u32>, Vec<Run>>>,
}

impl History {
    /// Adds a run; the oldest of the same size makes room.
    pub fn add(&mut self, program: &str, run: Run) {
        let runs = self.programs.entry(program.to_owned()).or_default().entry(run.batch).or_default();
        if runs.len() == KEPT {
            runs.remove(0);
        }
        runs.push(run);
    }

    /// Programs that were seen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }
}

fn peak(runs: &[Run]) -> Option<Bytes> {
    runs.iter().filter(|run| run.complete).map(|run| run.peak).max()
}

impl Estimator for History {
    fn name(&self) -> &str {
        "history"
    }

    fn estimate(&self, job: &Features) -> Option<Estimate> {
        let sizes = self.programs.get(&job.program)?;
        // Runs that ran out of memory say what does not suffice at their size.
        let equal = sizes.get(&job.batch).map_or(&[][..], Vec::as_slice);
        let lacking = equal.iter().filter(|run| !run.complete).map(|run| run.peak).max();
        if let Some(peak) = peak(equal) {
            // What ran out of memory had less than what ended well then needed, or was another size
            // after all: the larger of both is safe.
            let bytes = peak.max(lacking.unwrap_or(Bytes::ZERO));
            return Some(Estimate {
                bytes,
                upper: bytes,
                confidence: Permille(990),
                measured: lacking.is_none_or(|least| least <= peak),
            });
        }
        let Some(batch) = job.batch else { return lacking.map(guess) };
        let points: Vec<(u32, Bytes)> =
            sizes.iter().filter_map(|(size, runs)| Some(((*size)?, peak(runs)?))).collect();
        let (bytes, upper) = match points.as_slice() {
            [] => return lacking.map(guess),
            [one] => from_one(*one, batch),
            more => from_line(more, batch),
        };
        let least = lacking.map_or(Bytes::ZERO, |peak| peak.plus(part(peak, MARGIN)));
        Some(Estimate {
            bytes: bytes.max(least),
            upper: upper.max(least),
            confidence: Permille(950),
            measured: false,
        })
    }
}

/// Only that a size did not suffice is known.
fn guess(lacking: Bytes) -> Estimate {
    let bytes = lacking.plus(part(lacking, MARGIN));
    Estimate { bytes, upper: lacking.plus(Bytes(lacking.0 / 2)), confidence: Permille(500), measured: false }
}

/// One size is known: memory that does not depend on the batch is anything from nothing to all.
fn from_one((size, peak): (u32, Bytes), batch: u32) -> (Bytes, Bytes) {
    if batch <= size {
        return (peak, peak);
    }
    let times = |by: u32| u128::from(peak.0) * u128::from(by) / u128::from(size.max(1));
    let all = Bytes(u64::try_from(times(batch)).unwrap_or(u64::MAX));
    (Bytes(peak.0 / 2).plus(Bytes(all.0 / 2)), all)
}

/// Least squares through two or more sizes, and the margin on top; never under a smaller size's
/// peak, nor a bound above the peak of a larger one.
fn from_line(points: &[(u32, Bytes)], batch: u32) -> (Bytes, Bytes) {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&(u32, Bytes)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let x = mean(&|point| f64::from(point.0));
    let y = mean(&|point| point.1.0 as f64);
    let covariance = mean(&|point| (f64::from(point.0) - x) * (point.1.0 as f64 - y));
    let variance = mean(&|point| (f64::from(point.0) - x) * (f64::from(point.0) - x));
    // More samples never need less: a falling line is noise.
    let slope = (covariance / variance.max(1e-9)).max(0.0);
    let line = |at: u32| y + slope * (f64::from(at) - x);
    // What the line misses by at the sizes that are known, it may miss by here too.
    let missed = points.iter().map(|point| point.1.0 as f64 - line(point.0)).fold(0.0, f64::max);
    let below =
        points.iter().filter(|point| point.0 < batch).map(|point| point.1).max().unwrap_or(Bytes::ZERO);
    let above =
        points.iter().filter(|point| point.0 > batch).map(|point| point.1).min().unwrap_or(Bytes::MAX);
    let bytes = Bytes(line(batch).max(0.0) as u64).max(below).min(above);
    let upper = bytes.plus(Bytes(missed as u64));
    let upper = upper.plus(part(upper, MARGIN));
    (bytes, if above < Bytes::MAX { upper.min(above.plus(part(above, Permille(20)))) } else { upper })
}

fn part(bytes: Bytes, share: Permille) -> Bytes {
    Bytes(u64::try_from(u128::from(bytes.0) * u128::from(share.0) / 1000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(runs: &[(u32, u64)]) -> History {
        let mut history = History::default();
        for &(batch, mib) in runs {
            history.add("train", Run { batch: Some(batch), peak: Bytes::from_mib(mib), complete: true });
        }
        history
    }

    fn ask(history: &History, batch: u32) -> Estimate {
        let job = Features { program: "train".into(), batch: Some(batch), model: None };
        history.estimate(&job).unwrap()
    }

    #[test]
    fn two_sizes_give_a_line() {
        let history = history(&[(32, 4000), (64, 7000)]);
        let third = ask(&history, 128);
        assert_eq!(third.bytes, Bytes::from_mib(13_000));
        assert_eq!(third.upper, Bytes::from_mib(14_040));
        assert!(!third.measured);
        assert_eq!(ask(&history, 48).bytes, Bytes::from_mib(5500));
        assert!(ask(&history, 16).upper <= Bytes::from_mib(4080), "never more than a larger size needed");
        assert!(ask(&history, 64).measured);
    }

    #[test]
    fn one_size_bounds_others() {
        let history = history(&[(32, 4000)]);
        assert_eq!(ask(&history, 16).upper, Bytes::from_mib(4000));
        assert_eq!(ask(&history, 64).upper, Bytes::from_mib(8000));
        assert_eq!(ask(&history, 64).bytes, Bytes::from_mib(6000));
    }

    #[test]
    fn a_run_that_ran_out_of_memory_raises_the_answer() {
        let mut history = history(&[(32, 4000), (64, 7000)]);
        let peak = Bytes::from_mib(20_000);
        history.add("train", Run { batch: Some(128), peak, complete: false });
        assert!(ask(&history, 128).bytes > peak);
        let mut only = History::default();
        only.add("train", Run { batch: Some(8), peak, complete: false });
        assert!(ask(&only, 8).upper > peak);
        only.add("script", Run { batch: None, peak, complete: false });
        let script = Features { program: "script".into(), ..Features::default() };
        assert!(only.estimate(&script).unwrap().upper > peak, "its batch size is not known");
        only.add("script", Run { batch: None, peak, complete: true });
        assert!(only.estimate(&script).unwrap().measured, "an equal run had as much and ended well");
    }

    #[test]
    fn a_falling_line_is_not_followed() {
        assert!(ask(&history(&[(32, 7000), (64, 6900)]), 128).bytes >= Bytes::from_mib(6900));
    }
}
