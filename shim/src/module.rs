//! Modules and libraries: what is unloaded may leave handles behind that come back as others.

use radrm_cuda_abi::*;

use crate::cx::Cx;

/// After a module was loaded.
pub(crate) unsafe fn loaded(_cx: &Cx<'_>, call: impl FnOnce() -> CUresult, _module: *mut CUmodule) -> CUresult {
    call()
}

/// Around `cuModuleUnload`.
pub(crate) unsafe fn unloaded(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, _module: CUmodule) -> CUresult {
    let result = call();
    if result.is_ok() {
        cx.page.forget_handles();
    }
    result
}

/// After a library was loaded.
pub(crate) unsafe fn library_loaded(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _library: *mut CUlibrary,
) -> CUresult {
    call()
}

/// Around `cuLibraryUnload`.
pub(crate) unsafe fn library_unloaded(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _library: CUlibrary,
) -> CUresult {
    let result = call();
    if result.is_ok() {
        cx.page.forget_handles();
    }
    result
}
