//! A process that belongs to a job with a quota and cannot count what it takes.
//!
//! Observing fails open, a limit does not: until the end of the process every request for device memory is
//! answered as the driver answers when there is none left. Everything else passes through; a graph that
//! allocates when it is launched cannot be distinguished from any other here.

use radrm_cuda_abi::*;

use crate::entries::EntryId;
use crate::mode;

/// A call of a process that has not joined its segment, for good or because another thread has not
/// finished doing so.
#[cold]
#[inline(never)]
pub(crate) fn outside(entry: EntryId, call: impl FnOnce() -> CUresult) -> CUresult {
    let is_request = entry.info().is_some_and(|info| info.is_request);
    if is_request && (mode::is_denied() || mode::has_quota()) { CUDA_ERROR_OUT_OF_MEMORY } else { call() }
}
