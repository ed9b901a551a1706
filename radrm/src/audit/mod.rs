//! `radrm audit`: what the driver says that processes hold, against what their shims say.
//!
//! A preload is cooperation and not a wall: a static program, a library opened with `RTLD_DEEPBIND`, or a child
//! that lost the preload takes memory that no quota counts. The driver counts all of it. So every
//! process that NVML lists is looked for in the jobs that this user can see, and named if it is in
//! none of them, or holds more than its shim knows of.

pub mod devices;
pub mod judge;
pub mod known;
pub mod show;
pub mod why;

use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::Amount;

use crate::limits::amount;
use crate::limits::config::Context;
use crate::limits::contexts::Contexts;
use crate::limits::files;
use crate::quota::machine::Node;
use crate::quota::{jobs, proc::Process};
use judge::{Entry, Expected, Finding};

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
pub const FOUND: i32 = 3;

/// All that was seen.
#[derive(Debug)]
pub struct Audit {
    /// Each process on each GPU.
    pub findings: Vec<Finding>,
    /// What is allowed for.
    pub expected: Expected,
    /// Devices that could not be asked, with the reason.
    pub silent: Vec<String>,
}

impl Audit {
    /// Whether anything has to be looked at.
    #[must_use]
    pub fn found(&self) -> bool {
        self.findings.iter().any(Finding::counts)
    }
}

/// Looks, and prints what was seen. Gives the exit code.
///
/// # Errors
/// One sentence: NVML does not work, so nothing can be said.
pub fn run(order: &Order) -> Result<i32, String> {
    let audit = look(order.machine.as_deref(), order.tolerance)?;
    show::print(&audit, order.json)?;
    Ok(if audit.found() { FOUND } else { 0 })
}

/// Looks.
///
/// # Errors
/// One sentence: NVML does not work.
pub fn look(machine: Option<&Path>, tolerance: Option<u64>) -> Result<Audit, String> {
    let node = Node::of(machine)?;
    let listed = devices::list(&node.source).map_err(|why| format!("NVML does not work: {why}"))?;
    let contexts = Contexts::load(node.ledgers.emulated());
    // A file that is wrong is no reason not to look.
    let configured = files::all().ok().and_then(|files| files.iter().find_map(|file| file.config.context));
    let fixed = match configured {
        Some(Context::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let expected = Expected { tolerance: tolerance.unwrap_or(judge::TOLERANCE), fixed, contexts };
    let known = known::all(&jobs::all());
    let mut findings = Vec::new();
    for device in &listed.devices {
        for entry in &device.processes {
            let process = Process(entry.pid);
            if why::is_service(process) {
                continue;
            }
            let counted = known.of(process, &device.gpu.bytes);
            let entry =
                Entry { process, gpu: device.gpu.clone(), driver: listed.driver.clone(), held: entry.used };
            findings.push(judge::judge(entry, counted, &expected));
        }
    }
    findings.sort_by_key(|finding| (!finding.counts(), std::cmp::Reverse(finding.unexplained), finding.pid));
    Ok(Audit { findings, expected, silent: listed.silent })
}
