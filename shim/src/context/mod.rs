//! Contexts: how many there are on each GPU, and what goes with one that ends.
//!
//! The CUDA runtime takes a device's primary context through a private table, so a primary context may
//! be met for the first time when memory is allocated in it: [`arrival::seen`].

pub(crate) mod arrival;
pub(crate) mod green;
mod table;

use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::kernels::timing;
use crate::memory;
use crate::telemetry::EventKind;
use arrival::{came, primary_before, primary_found};
pub(crate) use table::Contexts;

fn went(cx: &Cx<'_>, context: CUcontext, device: CUdevice) {
    let gpu = memory::gpu::of_device(cx, device);
    if let Some(gpu) = gpu {
        cx.writer().context(gpu, false);
    }
    cx.event(EventKind::ContextDestroyed, gpu, context.addr(), 0);
}

/// After a context was created, whatever its form.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn created(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    if let Some(refused) = memory::context::refused(cx, device) {
        return refused;
    }
    let result = call();
    if result.is_ok() && !context.is_null() {
        // SAFETY: the driver has written there.
        let context = unsafe { *context };
        cx.page.contexts.created.insert(context.addr(), u64::from(device.cast_unsigned()) + 1);
        came(cx, context, device);
    }
    result
}

/// Around `cuCtxDestroy`. Forgotten before the call: the driver may hand out the handle again before
/// it is back.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn destroyed(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, context: CUcontext) -> CUresult {
    let contexts = &cx.page.contexts;
    let word = contexts.created.remove(context.addr());
    // The functions of its modules go with it.
    cx.page.forget_handles();
    let result = call();
    if result.is_ok() {
        if let Some(device) = word.and_then(|w| CUdevice::try_from(w.saturating_sub(1)).ok()) {
            went(cx, context, device);
        }
        timing::launch::context_ended(cx, context);
        memory::context::destroyed(cx, context);
    } else if let Some(word) = word {
        contexts.created.insert(context.addr(), word);
    }
    result
}

/// After `cuDevicePrimaryCtxRetain`: the first one makes the context.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn primary_retained(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    if let Some(refused) = memory::context::refused(cx, device) {
        return refused;
    }
    let result = call();
    if result.is_ok() && !context.is_null() {
        // SAFETY: the driver has written there.
        primary_found(cx, unsafe { *context }, device);
    }
    result
}

fn primary_gone(cx: &Cx<'_>, context: CUcontext, device: CUdevice) {
    let known = cx.page.contexts.primary(device).map_or(0, |p| p.swap(0, Ordering::Relaxed));
    if known != 0 {
        went(cx, context, device);
    }
    timing::launch::context_ended(cx, context);
    memory::context::destroyed(cx, context);
}

/// Around `cuDevicePrimaryCtxRelease`: the last one ends the context.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn primary_released(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    device: CUdevice,
) -> CUresult {
    let before = primary_before(cx, device);
    let result = call();
    if result.is_ok() {
        reference_gone(cx, before, device);
    }
    result
}

/// A reference to the primary context of a device was given back.
fn reference_gone(cx: &Cx<'_>, before: Option<CUcontext>, device: CUdevice) {
    if let Some(context) = before
        && cx.driver().primary_is_active(device) == Some(false)
    {
        cx.page.forget_handles();
        primary_gone(cx, context, device);
    }
}

/// Around `cuDevicePrimaryCtxReset`, which ends the context even if others hold it.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn primary_reset(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    device: CUdevice,
) -> CUresult {
    let before = primary_before(cx, device);
    let result = call();
    if let Some(context) = before.filter(|_| result.is_ok()) {
        cx.page.forget_handles();
        primary_gone(cx, context, device);
    }
    result
}
