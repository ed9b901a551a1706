//! What happens to memory when contexts come and go.
//!
//! A context's own memory (code, local memory, heaps) is told by no call. A `cuMemGetInfo` difference
//! around its creation would count what other processes took or gave meanwhile, and before the first
//! context of a device there is none to ask with; it is therefore left to the remainder between these
//! figures and NVML's for the process. A quota charges what is expected of a context, until somebody
//! outside has measured that remainder.

use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::{gpu, graph, ledger, pool};
use crate::cx::Cx;

/// Contexts of this process that were destroyed.
static DEATHS: AtomicU64 = AtomicU64::new(0);

/// Number of contexts destroyed so far: what was remembered about a context holds until it changes.
#[inline(always)]
pub(crate) fn deaths() -> u64 {
    // Acquire pairs with the Release in `destroyed`: a thread that makes a new context current, with
    // the handle of the one destroyed, does so after that call has returned.
    DEATHS.load(Ordering::Acquire)
}

/// After a context was created: its GPU is known to the segment from here on.
pub(crate) fn created(cx: &Cx<'_>, _context: CUcontext, device: CUdevice) {
    if let Some(gpu) = gpu::of_device(cx, device) {
        cx.page.quota.context_came(gpu);
    }
}

/// After a context was destroyed: the driver has freed every allocation of it.
pub(crate) fn destroyed(cx: &Cx<'_>, context: CUcontext) {
    // Release pairs with the Acquire in `deaths`.
    DEATHS.fetch_add(1, Ordering::Release);
    if !context.is_null() {
        ledger::drop_owned(cx, context.addr());
    }
    pool::context_destroyed(cx);
    graph::refresh(cx);
}
