//! Batches of calls, as a client prints them.

use anyhow::{Result, bail};

/// A batch of calls: nanoseconds per call, and per round of the yardstick before and after it.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The yardstick before.
    pub before: f64,
    /// Per call.
    pub nanos: f64,
    /// The yardstick after.
    pub after: f64,
}

impl Batch {
    /// A batch as the client prints it.
    pub fn parse(cell: &str) -> Result<Self> {
        let numbers: Vec<f64> = cell.split(':').map(str::parse).collect::<Result<_, _>>()?;
        let [before, nanos, after] = numbers[..] else { bail!("the client said {cell:?}") };
        Ok(Self { before, nanos, after })
    }
}

/// A batch past the shim, and its neighbour through it.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// By the driver's own function.
    pub past: Batch,
    /// As the program sees it.
    pub through: Batch,
}

impl Pair {
    /// Share of the loop's time that is added.
    pub fn added(&self) -> f64 {
        self.through.nanos / self.past.nanos - 1.0
    }

    /// The yardsticks around both.
    pub fn yardsticks(&self) -> [f64; 4] {
        [self.past.before, self.past.after, self.through.before, self.through.after]
    }
}
