//! The benchmarks: what is measured, how often, and the table that comes out.
//!
//! Three set-ups run in turn, each time in a fresh process: no shim, the pass-through shim, RADRM
//! under a live segment. All of them call the instant driver, so that what is left is the shim. A
//! figure is the median over the alternations of the median over a process's batches.
//!
//! On a rented machine the other thread of a core may belong to another tenant, and a call takes up to twice as
//! long while that one is busy. A yardstick before and after each batch tells; batches on a whole core and
//! batches on a shared one give figures of their own.

mod batch;
mod calls;
mod check;
mod cores;
mod figures;
mod paced;
mod plan;
mod processes;
mod quota;
mod report;

use anyhow::Result;

pub use batch::{Batch, Pair};
pub use figures::{Figures, Key, Processes, Samples, median};
pub use plan::{Plan, Setup};
pub use report::table;

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
