//! Why a source of figures on the host's memory counts nothing.

use std::io;
use std::path::PathBuf;

use crate::host::perf::not_allowed;

/// Reason that a source counts nothing.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// There is no such file system.
    #[error("resctrl is not mounted at {0}, or this processor has none")]
    NotMounted(PathBuf),
    /// It does not count this.
    #[error("resctrl counts no {0} on this processor")]
    NotCounted(&'static str),
    /// No group can be made.
    #[error("resctrl takes no group: {}", radrm_base::reason(.0))]
    NoGroup(io::Error),
    /// The kernel lists none, as in most virtual machines.
    #[error("the kernel lists no memory controller that counts")]
    NoController,
    /// A controller is not described as one that can be opened.
    #[error("the kernel does not describe the counters of {0}")]
    NoUnit(String),
    /// A controller cannot be counted in bytes.
    #[error("the kernel names no event {event} of {unit}, or not its bytes")]
    NoEvent {
        /// The controller.
        unit: String,
        /// The event.
        event: &'static str,
    },
    /// The controllers of one node are never so many.
    #[error("the memory controllers have more than {0} counters")]
    ManyCounters(usize),
    /// Each has descriptors.
    #[error("the cycles of {0} jobs are counted already")]
    ManyJobs(usize),
    /// As in most virtual machines.
    #[error("this processor counts no stalled cycles")]
    NoStalls,
    /// The kernel refuses a counter.
    #[error("{}", refusal(.0))]
    Refused(io::Error),
}

fn refusal(error: &io::Error) -> String {
    match not_allowed(error) {
        true => "perf events are not allowed (kernel.perf_event_paranoid, a container's seccomp filter, or no CAP_PERFMON)"
            .into(),
        false => format!("the kernel opens no counter: {}", radrm_base::reason(error)),
    }
}
