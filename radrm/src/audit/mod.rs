//! `radrm audit`: what the driver says that processes hold, against what their shims say.
//!
//! A preload is cooperation and not a wall: a static program, a library opened with `RTLD_DEEPBIND`, or a child
//! that lost the preload takes memory that no quota counts. The driver counts all of it. So every
//! process that NVML lists is looked for in the jobs that this user can see, and named if it is in
//! none of them, or holds more than its shim knows of.

pub mod show;

use std::path::PathBuf;

use radrm_limits::amount;
use radrm_limits::audit::of_machine;
use radrm_telemetry::ledger::Amount;

use crate::Failure;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// As JSON.
    pub json: bool,
    /// The emulated machine that is meant.
    pub machine: Option<PathBuf>,
    /// What a process may hold beyond what is explained.
    pub tolerance: Option<u64>,
}

/// Reads a tolerance.
///
/// # Errors
/// One sentence.
pub fn tolerance(text: &str) -> Result<u64, String> {
    match amount::parse(text)? {
        Amount::Bytes(bytes) => Ok(bytes),
        _ => Err(format!("`{text}` is no amount of memory such as 100MiB")),
    }
}

/// Exit code when something was found.
pub const FOUND: u8 = 3;

/// Looks, and prints what was seen. Gives the exit code.
///
/// # Errors
/// One sentence: NVML does not work, so nothing can be said.
pub fn run(order: &Order) -> Result<u8, Failure> {
    let audit = of_machine(order.machine.as_deref(), order.tolerance)?;
    show::print(&audit, order.json)?;
    Ok(if audit.found() { FOUND } else { 0 })
}
