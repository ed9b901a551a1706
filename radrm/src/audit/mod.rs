//! `radrm audit`: what the driver says that processes hold, against what their shims report.
//!
//! A preload is cooperation and not a wall: a static program, a library opened with `RTLD_DEEPBIND`, or a child
//! that lost the preload takes memory that no quota counts. The driver counts all of it. So every
//! process that NVML lists is searched for in the jobs that this user can see, and named if it is in
//! none of them, or holds more than its shim knows of.

mod show;

use std::path::PathBuf;

use radrm_limits::amount::bytes;
use radrm_limits::audit::of_machine;

use crate::Failure;

#[derive(clap::Args, Debug)]
pub(crate) struct Flags {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Memory that may remain unexplained [default: 64MiB]
    #[arg(long, value_name = "AMOUNT", value_parser = bytes)]
    tolerance: Option<u64>,
    /// Audit the emulated machine in FILE
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
}

/// Exit code when something was found.
const FOUND: u8 = 3;

/// Prints the audit's findings. Gives the exit code.
pub(crate) fn run(flags: &Flags) -> Result<u8, Failure> {
    let audit = of_machine(flags.machine.as_deref(), flags.tolerance)?;
    show::print(&audit, flags.json)?;
    Ok(if audit.found() { FOUND } else { 0 })
}
