//! The calls that begin and end captures.

use radrm_cuda_abi::*;

use super::is_capturing;
use crate::cx::Cx;

/// After a capture was begun.
pub(crate) unsafe fn begun(cx: &Cx<'_>, call: impl FnOnce() -> CUresult) -> CUresult {
    // Raised first: a launch that another thread puts into the stream right after the capture has
    // begun must find the count.
    cx.page.kernels.timing.capture_begins();
    cx.page.change_captures(|n| n.checked_add(1));
    let result = call();
    if !result.is_ok() {
        cx.page.change_captures(LOWER);
    }
    result
}

/// After a capture was ended; it also ends where the driver reports that it was invalidated.
pub(crate) unsafe fn ended(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, stream: CUstream) -> CUresult {
    let before = cx.capturing(stream);
    let result = call();
    if result.is_ok() || (before && !is_capturing(cx.entry, stream)) {
        cx.page.change_captures(LOWER);
    }
    result
}

/// Never below zero: a capture may have begun before the process was observed.
const LOWER: fn(u32) -> Option<u32> = |n| n.checked_sub(1);
