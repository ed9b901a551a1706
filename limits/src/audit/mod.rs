//! What the driver says that processes hold, against what their shims say.

mod bindings;
pub mod devices;
pub mod job;
pub mod judge;
pub mod known;
pub mod why;

use std::path::Path;

use crate::LimitError;
use crate::jobs;
use crate::machine::Node;
use judge::{Entry, Expected, Finding};
use radrm_os::Process;
use radrm_os::nvml::NvmlSource;

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
    /// Whether there is anything to check.
    #[must_use]
    pub fn found(&self) -> bool {
        self.findings.iter().any(Finding::counts)
    }
}

/// Audits this computer, or the emulated machine in a file.
///
/// # Errors
/// One sentence: NVML does not work.
pub fn of_machine(machine: Option<&Path>, tolerance: Option<u64>) -> Result<Audit, LimitError> {
    let node = Node::of(machine)?;
    of_source(&node.source, Expected::configured(node.ledgers.emulated(), tolerance))
}

/// Compares what NVML says of each process with what all shims count; findings come first, the largest of them
/// before.
///
/// # Errors
/// One sentence: NVML does not work.
pub fn of_source(source: &NvmlSource, expected: Expected) -> Result<Audit, LimitError> {
    let listed = devices::list(source).map_err(|error| LimitError::Nvml(error.to_string()))?;
    let known = known::all(&jobs::all());
    let entries = listed.devices.iter().flat_map(|device| {
        device.processes.iter().map(|held| Entry {
            process: Process(held.pid),
            gpu: device.gpu.clone(),
            driver: listed.driver.clone(),
            held: held.used,
        })
    });
    let entries = entries.filter(|entry| !why::is_service(entry.process));
    let mut findings: Vec<Finding> = entries.map(|entry| judge::judge(entry, &known, &expected)).collect();
    findings.sort_by_key(|finding| (!finding.counts(), std::cmp::Reverse(finding.unexplained), finding.pid));
    Ok(Audit { findings, expected, silent: listed.silent })
}
