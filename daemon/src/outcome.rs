//! Findings of a profile on an attempt's end.

use std::path::Path;

use radrm_analyzer::{Footprint, Summary, findings, footprint};
use radrm_collector::dataset::{Features, GpuPeak, Row, gpu_peaks};
use radrm_os::untrusted;
use radrm_profile::Profile;
use serde::{Deserialize, Serialize};

/// The parts that the scheduler needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// GPU memory that it needed.
    pub(crate) footprint: Footprint,
    /// The peak on each GPU.
    pub(crate) peaks: Vec<GpuPeak>,
    /// The shim could not be in the program.
    pub(crate) unseen: bool,
    /// For the dataset.
    pub(crate) record: RunRecord,
}

/// A run as its profile shows it, for the dataset, but for its arguments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) row: Row,
    pub(crate) features: Features,
}

impl RunRecord {
    /// The record of a profile, as `radrm-run` makes it.
    pub(crate) fn of(profile: &Profile, path: &Path, summary: &Summary) -> Self {
        let findings = findings(summary);
        let row = Row::of(profile, Some(path), &findings);
        // Its command line is the job's, and may be long.
        Self { row: Row { arguments: Vec::new(), ..row }, features: findings.features }
    }
}

/// Reads the profile; `None` if there is none.
pub(crate) fn of_profile(path: &Path) -> Option<Measured> {
    // The job may have put anything in its place.
    let profile = Profile::of_file(untrusted::open(path).ok()?).ok()?;
    // Only where the shim could not be in the program: one that it was in and that asked for nothing
    // did not run out of memory, whatever it writes.
    let unseen = profile.processes.is_empty() && !profile.unseen.is_empty();
    let summary = Summary::from_profile(&profile);
    let record = RunRecord::of(&profile, path, &summary);
    Some(Measured { footprint: footprint(&summary), peaks: gpu_peaks(&profile), unseen, record })
}

/// Messages that frameworks write when GPU memory runs out.
const WORDS: [&str; 5] = [
    "CUDA out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "OOM when allocating tensor",
    "RESOURCE_EXHAUSTED: Out of memory",
];

/// Returns true if a program's output shows an out-of-memory.
pub(crate) fn log_shows_oom(text: &str) -> bool {
    WORDS.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_merely_mentions_memory_is_no_out_of_memory() {
        assert!(log_shows_oom("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"));
        assert!(!log_shows_oom("memory: 3 GiB, cuda is out of date"));
    }
}
