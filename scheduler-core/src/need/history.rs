//! What earlier runs of the same program needed: a line through their batch sizes.

use std::collections::BTreeMap;

use radrm_base::PastRun;
use radrm_estimator::memory::{Point, from_one_run};

use super::{Estimator, Features, Known, Need, Source};
use crate::interference::Activity;
use crate::units::{Bytes, Millis, Permille};

/// Runs of one program that are read, the newest ones.
pub const MAX_RUNS: usize = 64;

/// Runs of each batch size that are read.
const MAX_OF_SIZE: usize = 8;

/// How often a run needs no more than an equal one.
pub(super) const EQUAL: Permille = Permille(990);

/// Added to a line's prediction for its bound: on 1017 TIMM models at five batch sizes (A100, two
/// runs predict a third) 95 % of the peaks were less than 6.6 % above it beyond the larger run, 5.4 %
/// between the two, 7.6 % below the smaller.
const MARGIN: Permille = Permille(80);
const LINE: Permille = Permille(950);

/// Earlier runs of the same program. A run that ran out of memory is a lower bound of the memory at its batch size,
/// and says nothing of the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct History;

fn runs<'a>(job: &Features<'a>) -> impl Iterator<Item = &'a PastRun> {
    job.runs.iter().take(MAX_RUNS)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Estimator for History {
    fn name(&self) -> &'static str {
        "own history"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        // A peak of nothing was not measured.
        let measured = || runs(job).filter(|run| run.peak > Bytes::ZERO);
        let equal = || measured().filter(|run| run.batch == job.batch).take(MAX_OF_SIZE);
        let lacking = equal().filter(|run| !run.complete).map(|run| run.peak).max();
        if let Some(peak) = equal().filter(|run| run.complete).map(|run| run.peak).max() {
            let runs = count(equal().filter(|run| run.complete).count());
            // What ran out of memory had less than what ended well then needed, or was another size
            // after all: the larger of both is safe.
            let bytes = peak.max(lacking.unwrap_or(Bytes::ZERO));
            let source = match bytes > peak {
                true => Source::EqualRunsAndOutOfMemory { runs },
                false => Source::EqualRuns { runs },
            };
            return Some(Need::new(bytes, bytes, Some(EQUAL), source));
        }
        let out_of_memory = || {
            let lacking = lacking?;
            let upper = lacking.plus(Bytes(lacking.0 / 2));
            let bytes = lacking.plus(lacking.part(MARGIN));
            Some(Need::new(bytes, upper, Some(Permille(500)), Source::OutOfMemory))
        };
        let Some(batch) = job.batch else { return out_of_memory() };
        let mut sizes: BTreeMap<u32, (usize, Option<Bytes>)> = BTreeMap::new();
        for run in measured() {
            let Some(size) = run.batch else { continue };
            let (seen, peak) = sizes.entry(size).or_default();
            *seen += 1;
            if *seen <= MAX_OF_SIZE && run.complete {
                *peak = Some(run.peak).max(*peak);
            }
        }
        let points: Vec<(u32, Bytes)> =
            sizes.into_iter().filter_map(|(size, (_, peak))| Some((size, peak?))).collect();
        let (bytes, upper) = match points.as_slice() {
            [] => return out_of_memory(),
            [one] => from_one(*one, batch),
            more => from_line(more, batch),
        };
        let least = lacking.map_or(Bytes::ZERO, |peak| peak.plus(peak.part(MARGIN)));
        let source = Source::OtherBatchSizes { sizes: count(points.len()) };
        Some(Need::new(bytes.max(least), upper.max(least), Some(LINE), source))
    }

    /// That of an equal run, or else of another batch size: it fills the GPU otherwise, but no less alike than nothing
    /// at all.
    fn activity(&self, job: &Features<'_>) -> Option<Known<Activity>> {
        let known = |run: &PastRun| run.activity;
        let equal = runs(job).filter(|run| run.batch == job.batch).find_map(known);
        if let Some(value) = equal {
            return Some(Known { value, source: Source::EqualRuns { runs: 1 } });
        }
        let value = runs(job).find_map(known)?;
        Some(Known { value, source: Source::OtherBatchSizes { sizes: 1 } })
    }

    /// The median of equal runs that ended well: some had more company than others.
    fn run_time(&self, job: &Features<'_>) -> Option<Known<Millis>> {
        let mut times = [Millis::ZERO; MAX_RUNS];
        let mut found = 0;
        for run in runs(job).filter(|run| run.complete && run.batch == job.batch) {
            times[found] = run.ran;
            found += 1;
        }
        let times = &mut times[..found];
        times.sort_unstable();
        let value = *times.get(found / 2)?;
        Some(Known { value, source: Source::EqualRuns { runs: count(found) } })
    }
}

/// One size is known.
fn from_one((size, peak): (u32, Bytes), batch: u32) -> (Bytes, Bytes) {
    let run = Point { batch: f64::from(size.max(1)), peak: peak.0 as f64 };
    let (bytes, upper) = from_one_run(run, f64::from(batch));
    // A conversion from a float saturates.
    (Bytes(bytes as u64), Bytes(upper as u64))
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
    let upper = upper.plus(upper.part(MARGIN));
    (bytes, if above < Bytes::MAX { upper.min(above.plus(above.part(Permille(20)))) } else { upper })
}
