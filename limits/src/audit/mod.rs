//! What the driver says that processes hold, against what their shims say.

pub mod devices;
pub mod judge;
pub mod known;
pub mod why;

use std::path::Path;

use crate::config::Context;
use crate::contexts::Contexts;
use crate::files;
use crate::jobs;
use crate::machine::Node;
use judge::{Entry, Expected, Finding};
use radrm_os::Process;

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
