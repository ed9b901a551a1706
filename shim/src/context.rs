//! Contexts.

use radrm_cuda_abi::*;

use crate::cx::Cx;

/// After a context was created.
pub(crate) unsafe fn created(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _context: *mut CUcontext,
    _device: CUdevice,
) -> CUresult {
    call()
}

/// After a context was destroyed.
pub(crate) unsafe fn destroyed(_cx: &Cx<'_>, call: impl FnOnce() -> CUresult, _context: CUcontext) -> CUresult {
    call()
}

/// After `cuDevicePrimaryCtxRetain`.
pub(crate) unsafe fn primary_retained(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _context: *mut CUcontext,
    _device: CUdevice,
) -> CUresult {
    call()
}

/// After `cuDevicePrimaryCtxRelease`.
pub(crate) unsafe fn primary_released(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _device: CUdevice,
) -> CUresult {
    call()
}

/// After `cuDevicePrimaryCtxReset`.
pub(crate) unsafe fn primary_reset(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _device: CUdevice,
) -> CUresult {
    call()
}
