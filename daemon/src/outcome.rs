//! What a profile shows of an attempt's end.

use std::path::Path;

use radrm_analyzer::{Footprint, Summary, footprint};
use radrm_collector::dataset::{GpuPeak, gpu_peaks};
use radrm_profile::Profile;

/// The parts that the scheduler needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// What it needed of a GPU's memory.
    pub(crate) footprint: Footprint,
    /// The peak on each GPU.
    pub(crate) peaks: Vec<GpuPeak>,
    /// The shim could not be in the program.
    pub(crate) unseen: bool,
}

/// Reads the profile; `None` if there is none.
pub(crate) fn of_profile(path: &Path) -> Option<Measured> {
    let profile = Profile::open(path).ok()?;
    // Only where the shim could not be in the program: one that it was in and that asked for nothing
    // did not run out of memory, whatever it writes.
    let unseen = profile.processes.is_empty() && !profile.unseen.is_empty();
    let footprint = footprint(&Summary::from_profile(&profile));
    Some(Measured { footprint, peaks: gpu_peaks(&profile), unseen })
}

/// What frameworks write when GPU memory runs out.
const WORDS: [&str; 5] = [
    "CUDA out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "OOM when allocating tensor",
    "RESOURCE_EXHAUSTED: Out of memory",
];

/// Whether a program's output shows an out-of-memory.
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
