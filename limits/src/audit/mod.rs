//! Comparison of what the driver reports that processes hold with what their shims count.

mod bindings;
pub mod devices;
pub mod job;
pub mod judge;
pub mod known;
pub mod why;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::LimitError;
use crate::jobs;
use crate::machine::Node;
use judge::{Entry, Expected, Finding, Look};
use known::Known;
use radrm_os::Process;
use radrm_os::nvml::NvmlSource;

/// All that was seen.
#[derive(Debug)]
pub struct Audit {
    /// Each process on each GPU.
    pub findings: Vec<Finding>,
    /// Memory that is allowed for.
    pub expected: Expected,
    /// Devices that could not be asked, with the reason, and users whose jobs were not all read.
    pub silent: Vec<String>,
}

impl Audit {
    /// Returns true if there is anything to check.
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
    let found = jobs::find();
    let known = known::all(&found.jobs);
    let entries = listed.devices.iter().flat_map(|device| {
        device.processes.iter().map(|held| Entry {
            process: Process(held.pid),
            gpu: device.gpu.clone(),
            driver: listed.driver.clone(),
            held: held.used,
        })
    });
    let entries = entries.filter(|entry| !why::is_service(entry.process));
    let mut patience = Patience::default();
    let mut findings: Vec<Finding> = entries.map(|entry| patience.judge(entry, &known, &expected)).collect();
    findings.sort_by_key(|finding| (!finding.counts(), std::cmp::Reverse(finding.unexplained), finding.pid));
    let silent = listed.silent.into_iter().chain(found.unread()).chain(known.unread()).collect();
    Ok(Audit { findings, expected, silent })
}

/// Time that the reasons of one user's processes may take together.
const MAX_PATIENCE: Duration = Duration::from_secs(2);

/// Time that the processes of each user have taken.
#[derive(Debug, Default)]
struct Patience(HashMap<Option<u32>, Duration>);

impl Patience {
    fn judge(&mut self, entry: Entry, known: &Known, expected: &Expected) -> Finding {
        let spent = self.0.entry(entry.process.uid()).or_default();
        let look = if *spent < MAX_PATIENCE { Look::Whole } else { Look::Cheap };
        let began = Instant::now();
        let finding = judge::judge_by(entry, known, expected, look);
        *spent += began.elapsed();
        finding
    }
}
