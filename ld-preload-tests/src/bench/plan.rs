//! Plan of a benchmark: measurements and their repeats.

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

/// Amounts to measure.
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
    /// True if this is the short plan.
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
