//! Modules and libraries. What is unloaded leaves handles behind that the driver may give to others,
//! so everything cached about handles is forgotten before.

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::telemetry::EventKind;

/// After a module was loaded.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn loaded(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, module: *mut CUmodule) -> CUresult {
    let result = call();
    if result.is_ok() && !module.is_null() {
        // SAFETY: the driver has written there.
        cx.event(EventKind::ModuleLoaded, None, unsafe { *module }.addr(), 0);
    }
    result
}

/// After a library was loaded.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn library_loaded(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    library: *mut CUlibrary,
) -> CUresult {
    let result = call();
    if result.is_ok() && !library.is_null() {
        // SAFETY: the driver has written there.
        cx.event(EventKind::ModuleLoaded, None, unsafe { *library }.addr(), 0);
    }
    result
}

/// Around `cuModuleUnload`, `cuLibraryUnload`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn unloaded(cx: &Cx<'_>, call: impl FnOnce() -> CUresult) -> CUresult {
    // Before the call: another thread may be given the same handles before it is back.
    cx.page.forget_handles();
    call()
}
