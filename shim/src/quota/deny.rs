//! A process that belongs to a job with a quota and cannot count what it takes.
//!
//! Observing fails open, a limit does not: until the end of the process every request for device memory is
//! answered as the driver answers when there is none left, and no memory is shown as free. Everything else passes
//! through; a graph that allocates when it is launched cannot be distinguished from any other here.

use radrm_cuda_abi::*;

use super::View;
use crate::entries::EntryId;
use crate::telemetry::ledger::stated;
use crate::{environ, mode, state, unjoined};

/// Longest text of limits that is read.
const LIMITS_BYTES: usize = 4096;

/// Returns true if this process is refused device memory now: for good, or because another thread has not finished
/// joining.
pub(crate) fn applies() -> bool {
    state::page().epoch() == 0 && !mode::is_bypassed() && (mode::is_denied() || mode::has_quota())
}

/// A call of a process that has not joined its segment, for good or because another thread has not
/// finished doing so.
#[cold]
#[inline(never)]
pub(crate) fn outside(entry: EntryId, call: impl FnOnce() -> CUresult) -> CUresult {
    let is_request = entry.info().is_some_and(|info| info.is_request);
    if is_request && (mode::is_denied() || mode::has_quota()) {
        unjoined::refused();
        CUDA_ERROR_OUT_OF_MEMORY
    } else {
        call()
    }
}

/// View that such a process has of a GPU: the limit that the environment states, and nothing free. `total` is the GPU's
/// memory in bytes.
pub(crate) fn view(uuid: Option<[u8; 16]>, total: u64) -> View {
    let mut room = [0u8; LIMITS_BYTES];
    let limit = environ::value(b"RADRM_LIMITS", &mut room)
        .map_or(u64::MAX, |text| stated(text.to_bytes(), uuid.as_ref(), total));
    View { total: limit.min(total), free: 0 }
}
