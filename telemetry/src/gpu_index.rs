//! The numbers of the GPUs of a job.

use crate::layout::GPUS;

/// Number of a GPU within the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuIndex(u8);

impl GpuIndex {
    /// The number, below [`GPUS`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The GPU with this number, for callers that keep numbers in words of their own.
    pub const fn from_number(number: usize) -> Option<Self> {
        if number < GPUS { Some(Self(number as u8)) } else { None }
    }
}
