//! The programs.

mod graphs;
mod memory;
mod repeat;
pub mod shape;
mod streaming;
mod training;

use anyhow::Result;

use crate::{code::Gpu, known::Known, size::Size};

/// A named piece of work.
pub struct Program {
    /// Name by which the user calls it.
    pub name: &'static str,
    /// Description, in a line.
    pub about: &'static str,
    /// Does it. What it says is in words what the returned figures say, for people.
    pub run: fn(&Gpu, Size) -> Result<Known>,
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "square",
        about: "squares one element per thread: the micro-benchmark over --blocks and --threads",
        run: streaming::square,
    },
    Program { name: "triad", about: "memory-bound: a = 3 b + c over three arrays", run: streaming::triad },
    Program { name: "spin", about: "compute-bound: many operations for each element", run: streaming::spin },
    Program {
        name: "ladder",
        about: "allocates blocks of doubling size, frees them from the top",
        run: memory::ladder,
    },
    Program { name: "storm", about: "launches of a kernel that does nothing", run: graphs::storm },
    Program {
        name: "replay",
        about: "a graph of --nodes kernels that each add 1, launched again and again",
        run: graphs::replay,
    },
    Program {
        name: "churn",
        about: "stream-ordered allocations and frees of mixed sizes",
        run: memory::churn,
    },
    Program {
        name: "train",
        about: "steps of a small training: copy a batch, forward, backward, update",
        run: training::train,
    },
];
