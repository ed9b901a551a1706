//! The benchmarks: what is measured, how often, and the table that comes out.
//!
//! Three set-ups run in turn, each time in a fresh process: no shim, the pass-through shim, RADRM
//! under a live segment. All of them call the instant driver, so that what is left is the shim. A
//! figure is the median over the alternations of the median over a process's batches.
//!
//! On a rented machine the other thread of a core may belong to another tenant, and a call takes up to twice as
//! long while that one is busy. A yardstick before and after each batch tells; batches on a whole core and
//! batches on a shared one give figures of their own.

mod calls;
mod cores;
mod paced;
mod processes;
mod quota;
mod report;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

pub use cores::Batch;
use cores::{Figure, by_core};
use paced::Pair;
pub use report::table;

/// The three set-ups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Setup {
    /// The program and the driver.
    Bare,
    /// With the shim that only forwards.
    Passthrough,
    /// With RADRM.
    Radrm,
}

impl Setup {
    /// All of them, in the order of the table.
    pub const ALL: [Setup; 3] = [Setup::Bare, Setup::Passthrough, Setup::Radrm];
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds in which the set-ups take turns.
    pub alternations: usize,
    /// Calls in a batch, and batches in a process.
    pub batch: (u64, u64),
    /// Pairs of batches of a process that launches every 4 us.
    pub pairs: u64,
    /// Numbers of live blocks.
    pub live: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// Process starts timed one by one, per set-up.
    pub starts: usize,
    /// Starts of a program without CUDA, per set-up.
    pub execs: usize,
    /// Starts under `radrm-run`, in each of the ways.
    pub watched: usize,
    /// Processes started at once.
    pub at_once: usize,
    /// Processes of a job under a quota.
    pub crowd: usize,
    /// Launches over which memory must not grow.
    pub launches: u64,
    /// Calls over which instructions are counted; 0 leaves that out.
    pub counted: u64,
    /// Whether this is the short plan.
    pub is_quick: bool,
}

impl Plan {
    /// The plan behind `bench/RESULTS.md`.
    pub fn full() -> Self {
        Self {
            alternations: 15,
            batch: (10_000, 50),
            pairs: 60,
            live: vec![1, 10_000, 1_000_000],
            threads: vec![1, 2],
            starts: 60,
            execs: 1500,
            watched: 300,
            at_once: 300,
            crowd: 300,
            launches: 100_000_000,
            counted: 10_000,
            is_quick: false,
        }
    }

    /// A plan of seconds.
    pub fn quick() -> Self {
        Self {
            alternations: 2,
            batch: (2_000, 5),
            pairs: 5,
            live: vec![1, 1_000],
            threads: vec![1, 2],
            starts: 4,
            execs: 20,
            watched: 4,
            at_once: 10,
            crowd: 10,
            launches: 1_000_000,
            counted: 500,
            is_quick: true,
        }
    }
}

/// What a figure is of.
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
    /// Why instructions could not be counted.
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
    /// Whether every figure of the plan came out.
    ///
    /// # Errors
    /// Names the first that did not.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        for setup in Setup::ALL {
            ensure!(
                self.start.get(&setup).is_some_and(|s| s.len() >= plan.starts),
                "{setup:?}: starts are missing"
            );
            ensure!(
                self.exec.get(&setup).is_some_and(|s| s.len() >= plan.execs),
                "{setup:?}: starts without CUDA are missing"
            );
            ensure!(self.at_once.contains_key(&setup), "{setup:?}: starts at once are missing");
            for mode in paced::MODES {
                let rounds = self.paced.get(&(mode, setup)).map_or(0, BTreeMap::len);
                ensure!(rounds == plan.alternations, "{setup:?}: launches every 4 us are missing");
            }
            for (key, processes) in &self.batches {
                let own: Vec<_> = processes.iter().filter(|p| p.0 == setup).collect();
                ensure!(
                    own.len() == plan.alternations
                        && own.iter().all(|p| !p.2.is_empty() && p.2.iter().all(|b| b.nanos > 0.0)),
                    "{setup:?}: {key:?} is missing"
                );
            }
        }
        for call in calls::CALLS {
            ensure!(self.batches.keys().any(|k| k.call == call), "{call} was not measured");
        }
        for (name, _) in processes::WATCHED {
            ensure!(
                self.watched.get(name).is_some_and(|s| s.len() == plan.watched),
                "{name}: starts are missing"
            );
        }
        ensure!(self.growth.contains_key(&Setup::Radrm), "the growth of memory was not measured");
        ensure!(
            plan.counted == 0 || self.no_instructions.is_some() || !self.instructions.is_empty(),
            "instructions were not counted"
        );
        Ok(())
    }

    /// Adds what one process said of one call.
    fn add(&mut self, call: String, live: u64, threads: u64, process: (Setup, usize, Vec<Batch>)) {
        self.batches.entry(Key { call, live, threads }).or_default().push(process);
    }

    /// Nanoseconds per call, on whole and on shared cores, and the share of batches on whole ones.
    fn calls(&self) -> (BTreeMap<&Key, Figure>, f64) {
        by_core(&self.batches)
    }
}

/// Measures everything of the plan.
///
/// # Errors
/// A client did not run.
pub fn measure(plan: &Plan) -> Result<Figures> {
    let mut figures = Figures::default();
    calls::time(plan, &mut figures)?;
    quota::time(plan, &mut figures)?;
    calls::count_instructions(plan, &mut figures)?;
    processes::starts(plan, &mut figures)?;
    processes::execs(plan, &mut figures)?;
    processes::watched(plan, &mut figures)?;
    processes::growth(plan, &mut figures)?;
    Ok(figures)
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
