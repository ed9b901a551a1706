//! Page-locked host memory: never device memory, kept on its own account beside the GPU that the
//! calling thread works with.

use core::ffi::c_void;

use radrm_cuda_abi::*;

use super::claim::Claim;
use super::{ledger, place};
use crate::abi_traits::ByteSize;
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Kind, Namespace};

/// `cuMemAllocHost`, `cuMemHostAlloc`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn alloc<S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    pp: *mut *mut c_void,
    bytesize: S,
) -> CUresult {
    let claim = match Claim::at(cx, place::beside_host(cx), Kind::PinnedHost, bytesize.bytes()) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !pp.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        let address = unsafe { *pp }.addr() as u64;
        claim.keep(cx, Namespace::Host, address, bytesize.bytes());
    }
    result
}

/// `cuMemHostRegister`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn register<S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    p: *mut c_void,
    bytesize: S,
) -> CUresult {
    let claim = match Claim::at(cx, place::beside_host(cx), Kind::PinnedHost, bytesize.bytes()) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if result.is_ok() {
        claim.keep(cx, Namespace::Host, p.addr() as u64, bytesize.bytes());
    } else {
        claim.refused(cx, result);
    }
    result
}

/// `cuMemFreeHost`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn free(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, p: *mut c_void) -> CUresult {
    ledger::around(cx, BlockKey::new(Namespace::Host, p.addr() as u64), call)
}

/// `cuMemHostUnregister`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn unregister(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, p: *mut c_void) -> CUresult {
    ledger::around(cx, BlockKey::new(Namespace::Host, p.addr() as u64), call)
}
