//! Processes of the job that its own audit found, as the profile has them.

use radrm_limits::audit::job::OutsideProcess;
use radrm_profile::model::{Uncounted, UncountedMemory, UncountedProcess};
use radrm_profile::{Bytes, Nanos};

/// Records of the uncounted processes for the profile.
pub(crate) fn recorded(found: Vec<OutsideProcess>) -> Vec<UncountedProcess> {
    let memory = |(gpu, peak): (radrm_os::nvml::Gpu, u64)| UncountedMemory {
        gpu: gpu.uuid,
        index: gpu.index,
        peak: Bytes(peak),
    };
    let process = |found: OutsideProcess| UncountedProcess {
        kind: if found.is_refused { Uncounted::Refused } else { Uncounted::Outside },
        pid: found.pid,
        command: found.command,
        reason: found.reason.code().to_owned(),
        explanation: found.reason.sentence(),
        remedy: found.reason.remedy().to_owned(),
        first: Nanos(found.first_ns),
        last: Nanos(found.last_ns),
        gpus: found.gpus.into_iter().map(memory).collect(),
    };
    found.into_iter().map(process).collect()
}
