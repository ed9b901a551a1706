//! Memory of other processes and interfaces: shown as imported, charged where it was made.

use radrm_cuda_abi::*;

use super::claim::Claim;
use super::ledger;
use super::place::{self, Place};
use super::references::{Left, References};
use crate::abi_traits::DevicePtr;
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Bypass, Namespace};
use crate::wiped::{Wiped, Zeroable};

/// Blocks of other processes that are open here.
struct Opened {
    /// Times that each address was opened: the driver hands out the same one again.
    addresses: References,
}

// SAFETY: zero is the empty table, which has no destructor.
unsafe impl Zeroable for Opened {}

static OPENED: Wiped<Opened> = Wiped::new();

/// `cuIpcOpenMemHandle`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn ipc_open<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
) -> CUresult {
    ledger::seen(cx);
    let result = call();
    if !result.is_ok() || dptr.is_null() {
        return result;
    }
    // SAFETY: the driver reported success and so has written the address.
    let address = unsafe { *dptr }.addr();
    let Some(opened) = OPENED.get() else { return result };
    let is_known = ledger::knows(cx, BlockKey::new(Namespace::Pointer, address))
        && opened.addresses.hold(address).is_some();
    if is_known {
        return result;
    }
    if opened.addresses.start(address, 0) {
        imported_pointer(cx, address);
    } else {
        cx.bypass(Bypass::ShimTableFull);
    }
    result
}

/// A pointer to memory of another process, of the size that the driver reports.
fn imported_pointer(cx: &Cx<'_>, address: u64) {
    let size = cx.relaxed_capture(|| cx.driver().allocation_size(address)).unwrap_or(0);
    let owner = place::current(cx);
    // The memory may lie on another device than the one that the context works with.
    let at = place::of_pointer(cx, address).map(|p| Place { context: owner.map_or(0, |o| o.context), ..p });
    Claim::imported(at.or(owner), size).keep(cx, Namespace::Pointer, address, size);
}

/// `cuIpcCloseMemHandle`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn ipc_close<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: P,
) -> CUresult {
    let address = dptr.addr();
    let left = OPENED.get().map_or(Left::Unknown, |o| o.addresses.release(address));
    match left {
        Left::Unknown => ledger::unknown_free(cx, call()),
        Left::Some => {
            let result = call();
            if !result.is_ok() {
                let _ = OPENED.get().and_then(|o| o.addresses.hold(address));
            }
            result
        }
        Left::Nothing(note) => {
            let result = ledger::around(cx, BlockKey::new(Namespace::Pointer, address), call);
            if !result.is_ok() {
                let _ = OPENED.get().map(|o| o.addresses.start(address, note));
            }
            result
        }
    }
}

/// `cuMemPoolImportPointer`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn pool_pointer<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
) -> CUresult {
    ledger::seen(cx);
    let result = call();
    if result.is_ok() && !dptr.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        imported_pointer(cx, unsafe { *dptr }.addr());
    }
    result
}

/// `cuImportExternalMemory`: of a graphics interface or a dma-buf; the descriptor has its size.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn external_import(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    memory: *mut CUexternalMemory,
    desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> CUresult {
    ledger::seen(cx);
    let result = call();
    if result.is_ok() && !memory.is_null() && !desc.is_null() {
        // SAFETY: the driver has read the descriptor and written the handle, and reported no error.
        let (size, handle) = unsafe { ((*desc).size, (*memory).addr()) };
        if let Some(place) = place::beside_host(cx) {
            Claim::imported(Some(place), size).keep(cx, Namespace::External, handle, size);
        }
    }
    result
}

/// `cuDestroyExternalMemory`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn external_destroy(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    memory: CUexternalMemory,
) -> CUresult {
    ledger::around(cx, BlockKey::new(Namespace::External, memory.addr()), call)
}

/// `cuExternalMemoryGetMappedBuffer`: a pointer into memory that is shown already. It is freed by
/// `cuMemFree`, and is in the table, with no bytes of its own, so that this is distinguished from a free of
/// something unknown.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn external_buffer<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
) -> CUresult {
    let result = call();
    if result.is_ok() && !dptr.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        let address = unsafe { *dptr }.addr();
        Claim::imported(place::current(cx), 0).keep(cx, Namespace::Pointer, address, 0);
    }
    result
}

/// `cuExternalMemoryGetMappedMipmappedArray`: as for a buffer.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn external_mipmap(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    mipmap: *mut CUmipmappedArray,
) -> CUresult {
    let result = call();
    if result.is_ok() && !mipmap.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let handle = unsafe { *mipmap }.addr();
        Claim::imported(place::current(cx), 0).keep(cx, Namespace::MipmappedArray, handle, 0);
    }
    result
}
