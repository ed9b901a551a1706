//! Stream captures: work that is put into a capturing stream does not run.

pub(crate) mod hooks;

use radrm_cuda_abi::*;

use crate::driver;
use crate::entries::{EntryId, Flavour};
use crate::state::Page;

/// Returns true if any stream of the process may be capturing.
#[inline(always)]
pub(crate) fn under_way(page: &Page) -> bool {
    page.captures() != 0
}

/// Capture status of `stream` as `entry` understands it; `None` where the driver answers with an error, as it does for
/// the legacy stream while another stream captures.
fn status(entry: EntryId, stream: CUstream) -> Option<CUstreamCaptureStatus> {
    let ask = match entry.flavour() {
        Flavour::Legacy => driver::get().stream_is_capturing(),
        Flavour::Ptsz | Flavour::Ptds => driver::get().stream_is_capturing_ptsz(),
    }?;
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is the program's.
    let result = unsafe { ask(stream, &raw mut status) };
    result.is_ok().then_some(status)
}

/// Returns true if `stream`, as `entry` understands it, is capturing.
#[cold]
#[inline(never)]
pub(crate) fn is_capturing(entry: EntryId, stream: CUstream) -> bool {
    status(entry, stream).is_some_and(|status| status != CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Returns true if `stream`, as `entry` understands it, is known not to be capturing.
pub(crate) fn is_idle(entry: EntryId, stream: CUstream) -> bool {
    status(entry, stream) == Some(CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Runs driver queries of our own with this thread's capture mode relaxed while captures are under
/// way: a query must not invalidate a capture of another thread.
pub(crate) fn relaxed<R>(page: &Page, work: impl FnOnce() -> R) -> R {
    if under_way(page) { always_relaxed(work) } else { work() }
}

/// As [`relaxed`], whether or not a capture is known: one may begin at any moment.
pub(crate) fn always_relaxed<R>(work: impl FnOnce() -> R) -> R {
    let Some(exchange) = driver::get().exchange_capture_mode() else { return work() };
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` is valid; the driver hands back the mode before.
    let exchanged = unsafe { exchange(&raw mut mode) }.is_ok();
    let result = work();
    if exchanged {
        // SAFETY: as above, with the mode that was handed back.
        let _ = unsafe { exchange(&raw mut mode) };
    }
    result
}
