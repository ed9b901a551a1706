//! Everything that was measured.

use std::collections::BTreeMap;

use super::batch::{Batch, Pair};
use super::cores::{Figure, by_core};
use super::plan::Setup;

/// Subject of a figure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The call, as the table names it.
    pub call: String,
    /// Live blocks.
    pub live: u64,
    /// Threads.
    pub threads: u64,
}

/// Samples of one figure, by set-up and round.
pub type Samples = BTreeMap<Setup, BTreeMap<usize, f64>>;

/// The batches of one call, by process: its set-up and round.
pub type Processes = Vec<(Setup, usize, Vec<Batch>)>;

/// Everything that was measured.
#[derive(Default, Debug)]
pub struct Figures {
    /// Batches of calls.
    pub batches: BTreeMap<Key, Processes>,
    /// The loop that launches every 4 us: what is recorded, set-up, round.
    pub paced: BTreeMap<(&'static str, Setup), BTreeMap<usize, Vec<Pair>>>,
    /// Instructions per call, where they could be counted.
    pub instructions: BTreeMap<String, BTreeMap<Setup, f64>>,
    /// Reason that instructions could not be counted.
    pub no_instructions: Option<String>,
    /// Nanoseconds from start to end of a program that only initialises the driver.
    pub start: Samples,
    /// Nanoseconds until all of many such programs, started at once, have ended.
    pub at_once: Samples,
    /// Nanoseconds from start to end of a program without CUDA.
    pub exec: Samples,
    /// Nanoseconds to the first line of a program's `main`, by how it was started.
    pub watched: BTreeMap<&'static str, Vec<f64>>,
    /// Resident KiB before and after many launches, and 512-byte blocks of the segment likewise.
    pub growth: BTreeMap<Setup, [u64; 4]>,
}

impl Figures {
    /// Adds what one process said of one call.
    pub(super) fn add(&mut self, call: String, live: u64, threads: u64, process: (Setup, usize, Vec<Batch>)) {
        self.batches.entry(Key { call, live, threads }).or_default().push(process);
    }

    /// Nanoseconds per call, on whole and on shared cores, and the share of batches on whole ones.
    pub(super) fn calls(&self) -> (BTreeMap<&Key, Figure>, f64) {
        by_core(&self.batches)
    }
}

/// The median; the mean of the two in the middle where there are two. 0 of nothing.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
