//! Memory that pools hold and do not use, when it is wanted elsewhere.

use super::table::{Pool, pools};
use crate::cx::Cx;
use crate::telemetry::GpuIndex;

/// Has the pools of a GPU give back what they do not use.
pub(in crate::memory) fn trim(cx: &Cx<'_>, gpu: GpuIndex) {
    let Some(all) = pools() else { return };
    for pool in all.each().filter(|p| p.gpu() == Some(gpu) && p.has_slack()) {
        if let Some(handle) = pool.handle()
            && cx.relaxed_capture(|| cx.driver().trim_pool(handle, 0))
        {
            pool.refresh(cx);
        }
    }
}

/// After something that makes pools give back what they do not use: a synchronisation, or a request
/// that found the device full.
#[inline(never)]
pub(in crate::memory) fn pressed(cx: &Cx<'_>) {
    pressed_beside(cx, None);
}

/// As [`pressed`]; `done` was checked already.
pub(super) fn pressed_beside(cx: &Cx<'_>, done: Option<&Pool>) {
    let Some(all) = pools() else { return };
    for pool in all.each().filter(|p| p.has_slack() && !done.is_some_and(|d| core::ptr::eq(d, *p))) {
        pool.refresh(cx);
    }
}
