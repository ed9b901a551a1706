//! Accounting of memory when contexts come and go.
//!
//! A context's own memory (code, local memory, heaps) is in no call. A `cuMemGetInfo` difference
//! around its creation would count what other processes took or gave meanwhile, and before the first
//! context of a device there is none to ask with; it is therefore left to the remainder between these
//! figures and NVML's for the process. A quota charges what is expected of a context, until the
//! launcher has measured that remainder.

use radrm_cuda_abi::*;

use super::{claim, gpu, graph, ledger, place, pool};
use crate::cx::Cx;
use crate::telemetry::Kind;

/// The answer for a context on a GPU of which the job may have nothing: the context itself would take memory there.
/// `None`: the driver decides.
pub(crate) fn refused(cx: &Cx<'_>, device: CUdevice) -> Option<CUresult> {
    let quota = &cx.page.quota;
    if !quota.is_on() {
        return None;
    }
    let gpu = gpu::of_device(cx, device)?;
    let refusal = quota.refusal(gpu);
    (refusal.limit == 0).then(|| claim::refuse(cx, gpu, Kind::Device, 0, refusal))
}

/// After a context was destroyed: the driver has freed every allocation of it.
pub(crate) fn destroyed(cx: &Cx<'_>, context: CUcontext) {
    place::context_ended();
    if !context.is_null() {
        ledger::drop_owned(cx, context.addr());
    }
    pool::context_destroyed(cx);
    graph::refresh(cx);
}
