//! Contexts that come into being, or are seen for the first time.

use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::frameworks;
use crate::memory::gpu;
use crate::telemetry::EventKind;

/// A context was made.
pub(super) fn came(cx: &Cx<'_>, context: CUcontext, device: CUdevice) {
    let gpu = gpu::of_device(cx, device);
    if let Some(gpu) = gpu {
        cx.writer().context(gpu, true);
        cx.page.quota.context_came(gpu);
    }
    cx.event(EventKind::ContextCreated, gpu, context.addr(), 0);
    frameworks::report(cx);
}

/// A device's primary context was met.
pub(super) fn primary_found(cx: &Cx<'_>, context: CUcontext, device: CUdevice) {
    // The exchange makes one of several threads the one that counts it.
    if let Some(primary) = cx.page.contexts.primary(device)
        && primary.swap(context.addr(), Ordering::Relaxed) == 0
    {
        came(cx, context, device);
    }
}

/// A context in which the program works was met; its device is known.
pub(crate) fn seen(cx: &Cx<'_>, context: CUcontext, device: CUdevice) {
    let contexts = &cx.page.contexts;
    let unknown = contexts.primary(device).is_some_and(|p| p.load(Ordering::Relaxed) == 0)
        && contexts.created.get(context.addr()).is_none();
    if unknown && cx.driver().primary_context(device) == Some(context) {
        primary_found(cx, context, device);
    }
}

/// The primary context of a device before a call that may end it.
pub(super) fn primary_before(cx: &Cx<'_>, device: CUdevice) -> Option<CUcontext> {
    let known = cx.page.contexts.primary(device).map_or(0, |p| p.load(Ordering::Relaxed));
    match known {
        0 => cx.driver().primary_context(device),
        known => Some(CUcontext(known as *mut core::ffi::c_void)),
    }
}

/// The device in a word of the tables of green contexts.
pub(super) fn device_in(word: u64) -> Option<CUdevice> {
    CUdevice::try_from(word.checked_sub(1)?).ok()
}

/// The context that owns what is allocated while `context` is current: itself, or the primary context that a green one
/// is a part of.
pub(crate) fn owner(cx: &Cx<'_>, context: CUcontext) -> CUcontext {
    let device = cx.page.contexts.views.get(context.addr()).and_then(device_in);
    device.and_then(|device| primary_before(cx, device)).unwrap_or(context)
}
