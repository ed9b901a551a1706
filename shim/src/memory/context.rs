//! What happens to memory when contexts come and go.
//!
//! A context's own memory (code, local memory, heaps) is in no call. A `cuMemGetInfo` difference
//! around its creation would count what other processes took or gave meanwhile, and before the first
//! context of a device there is none to ask with; it is therefore left to the remainder between these
//! figures and NVML's for the process. A quota charges what is expected of a context, until the
//! launcher has measured that remainder.

use radrm_cuda_abi::*;

use super::{graph, ledger, place, pool};
use crate::cx::Cx;

/// After a context was destroyed: the driver has freed every allocation of it.
pub(crate) fn destroyed(cx: &Cx<'_>, context: CUcontext) {
    place::context_ended();
    if !context.is_null() {
        ledger::drop_owned(cx, context.addr());
    }
    pool::context_destroyed(cx);
    graph::refresh(cx);
}
