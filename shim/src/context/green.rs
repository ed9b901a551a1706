//! Green contexts: each keeps its device's primary context, and owns nothing itself. What is allocated while one is
//! current belongs to the primary context and stays when the green one ends.

use radrm_cuda_abi::*;

use super::arrival::{device_in, primary_before, primary_found};
use super::reference_gone;
use crate::cx::Cx;
use crate::kernels::timing;
use crate::memory::place;

fn word(device: CUdevice) -> u64 {
    u64::from(device.cast_unsigned()) + 1
}

/// After `cuGreenCtxCreate`: the first one of a device makes the primary context.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn created(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    green: *mut CUgreenCtx,
    device: CUdevice,
) -> CUresult {
    let result = call();
    if result.is_ok() && !green.is_null() {
        // SAFETY: the driver has written there.
        cx.page.contexts.greens.insert(unsafe { *green }.addr(), word(device));
        if let Some(primary) = cx.relaxed_capture(|| cx.driver().primary_context(device)) {
            primary_found(cx, primary, device);
        }
    }
    result
}

/// After `cuCtxFromGreenCtx`: the handle may become current from here on.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn viewed(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    view: *mut CUcontext,
    green: CUgreenCtx,
) -> CUresult {
    let result = call();
    if result.is_ok()
        && !view.is_null()
        && let Some(device) = cx.page.contexts.greens.get(green.addr())
    {
        // SAFETY: the driver has written there.
        cx.page.contexts.views.insert(unsafe { *view }.addr(), device);
    }
    result
}

/// Around `cuGreenCtxDestroy`, which gives a reference to the primary context back. Forgotten before the call: the
/// driver may hand out the handles again before it is back.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn destroyed(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, green: CUgreenCtx) -> CUresult {
    let contexts = &cx.page.contexts;
    let Some(known) = contexts.greens.remove(green.addr()) else { return call() };
    let view = cx.driver().context_of_green(green).unwrap_or(CUcontext::NULL);
    let viewed = contexts.views.remove(view.addr()).is_some();
    let device = device_in(known);
    let before = device.and_then(|device| primary_before(cx, device));
    let result = call();
    if result.is_ok() {
        timing::launch::context_ended(cx, view);
        place::context_ended();
        if let Some(device) = device {
            reference_gone(cx, before, device);
        }
    } else {
        contexts.greens.insert(green.addr(), known);
        if viewed {
            contexts.views.insert(view.addr(), known);
        }
    }
    result
}
