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
