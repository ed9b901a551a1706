//! Needs of earlier runs of the same program.

use std::collections::BTreeMap;

use radrm_base::{HostUse, PastRun};

use super::resolved::EQUAL;
use super::{Estimator, Features, Known, Need, Source};
use radrm_base::SeenActivity;
use radrm_base::{Bytes, Millis, Permille};

/// Runs of one program that are read, the newest ones.
pub const MAX_RUNS: usize = 64;

/// Runs of each batch size that are read.
const MAX_OF_SIZE: usize = 8;

/// Added to what a run had that ran out of memory.
const MARGIN: Permille = Permille(80);

/// Earlier runs of the same program. A run that ran out of memory is a lower bound of the memory at its batch size,
/// and says nothing of the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct History;

fn runs<'a>(job: &Features<'a>) -> impl Iterator<Item = &'a PastRun> {
    job.runs.iter().take(MAX_RUNS)
}

/// Runs whose memory was measured: a peak of nothing was not.
fn measured<'a>(job: &Features<'a>) -> impl Iterator<Item = &'a PastRun> {
    runs(job).filter(|run| run.peak > Bytes::ZERO)
}

/// Measured runs at the job's batch size.
fn equal<'a>(job: &Features<'a>) -> impl Iterator<Item = &'a PastRun> {
    let batch = job.batch;
    measured(job).filter(move |run| run.batch == batch).take(MAX_OF_SIZE)
}

/// The most that an equal run had that ran out of memory.
fn lacking(job: &Features<'_>) -> Option<Bytes> {
    equal(job).filter(|run| !run.complete).map(|run| run.peak).max()
}

/// The least that a job needs of which an equal run ran out of memory.
pub(super) fn least(job: &Features<'_>) -> Bytes {
    lacking(job).map_or(Bytes::ZERO, with_margin)
}

fn with_margin(bytes: Bytes) -> Bytes {
    bytes.plus(bytes.part(MARGIN))
}

/// The peak at each batch size, the highest of its newest runs that ended well.
pub(super) fn sizes(job: &Features<'_>) -> BTreeMap<u32, Bytes> {
    let mut sizes: BTreeMap<u32, (usize, Option<Bytes>)> = BTreeMap::new();
    for run in measured(job) {
        let Some(size) = run.batch else { continue };
        let (seen, peak) = sizes.entry(size).or_default();
        *seen += 1;
        if *seen <= MAX_OF_SIZE && run.complete {
            *peak = Some(run.peak).max(*peak);
        }
    }
    sizes.into_iter().filter_map(|(size, (_, peak))| Some((size, peak?))).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the figure of the newest equal run, else of the newest of all.
fn newest<T>(job: &Features<'_>, of: impl Fn(&PastRun) -> Option<T>) -> Option<Known<T>> {
    let equal = runs(job).filter(|run| run.batch == job.batch).find_map(&of);
    if let Some(value) = equal {
        return Some(Known { value, bound: None, source: Source::EqualRuns { runs: 1 } });
    }
    let value = runs(job).find_map(of)?;
    Some(Known { value, bound: None, source: Source::OtherBatchSizes { sizes: 1 } })
}

impl Estimator for History {
    fn name(&self) -> &'static str {
        "own history"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let peak = equal(job).filter(|run| run.complete).map(|run| run.peak).max()?;
        let runs = count(equal(job).filter(|run| run.complete).count());
        // What ran out of memory had less than what ended well then needed, or was another size
        // after all: the larger of both is safe.
        let bytes = peak.max(lacking(job).unwrap_or(Bytes::ZERO));
        let source = match bytes > peak {
            true => Source::EqualRunsAndOutOfMemory { runs },
            false => Source::EqualRuns { runs },
        };
        // The rate is that of peaks: how often an amount that ran out suffices is not known.
        Some(Need::new(bytes, bytes, (bytes == peak).then_some(EQUAL), source))
    }

    /// That of an equal run, or else of another batch size: it fills the GPU otherwise, but no less alike than nothing
    /// at all.
    fn activity(&self, job: &Features<'_>) -> Option<Known<SeenActivity>> {
        newest(job, |run| run.activity)
    }

    /// Likewise.
    fn host(&self, job: &Features<'_>) -> Option<Known<HostUse>> {
        newest(job, |run| run.host)
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
        Some(Known { value, bound: None, source: Source::EqualRuns { runs: count(found) } })
    }
}

/// Runs that ran out of memory, where nothing else is known: more than they had.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutOfMemory;

impl Estimator for OutOfMemory {
    fn name(&self) -> &'static str {
        "out of memory"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let lacking = lacking(job)?;
        let upper = lacking.plus(Bytes(lacking.0 / 2));
        Some(Need::new(with_margin(lacking), upper, None, Source::OutOfMemory))
    }
}
