//! Plain device memory and managed memory: `cuMemAlloc`, `cuMemAllocPitch`, `cuMemAllocManaged`,
//! `cuMemFree`.

use radrm_cuda_abi::*;

use super::claim::Claim;
use super::{ledger, pool};
use crate::abi_traits::{ByteSize, DevicePtr};
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Kind, Namespace};

/// From this size on a request takes whole chunks of the device, for which the driver may take from
/// pools what they do not use.
const PRESSING: u64 = 2 << 20;
/// Multiple that a row of `cuMemAllocPitch` is rounded up to, in bytes.
const PITCH: u64 = 512;

/// `cuMemAlloc`: charged as requested.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn alloc<P: DevicePtr, S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytesize: S,
) -> CUresult {
    // SAFETY: passed on.
    unsafe { plain(cx, call, Kind::Device, dptr, bytesize.bytes()) }
}

/// `cuMemAllocManaged`: kept apart, since its pages move between host and device.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn alloc_managed<P: DevicePtr, S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytesize: S,
) -> CUresult {
    ledger::seen(cx);
    // SAFETY: passed on.
    unsafe { plain(cx, call, Kind::Managed, dptr, bytesize.bytes()) }
}

/// One pointer for a number of bytes that is known beforehand.
///
/// # Safety
/// `dptr` is the out-parameter of `call`: null, or set when it succeeds.
#[inline(always)]
unsafe fn plain<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    kind: Kind,
    dptr: *mut P,
    bytes: u64,
) -> CUresult {
    let claim = match Claim::here(cx, kind, bytes) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !dptr.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        claim.keep(cx, Namespace::Pointer, unsafe { *dptr }.addr(), bytes);
        if bytes >= PRESSING {
            pool::pressed(cx);
        }
    }
    result
}

/// `cuMemAllocPitch`: the driver chooses the pitch, so rows of that pitch are what is held.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn alloc_pitch<P: DevicePtr, S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    pitch: *mut S,
    width: S,
    height: S,
) -> CUresult {
    let height = height.bytes();
    // Pitches are multiples of this on every GPU so far.
    let likely = width.bytes().checked_next_multiple_of(PITCH).unwrap_or(u64::MAX);
    let mut claim = match Claim::here(cx, Kind::Device, likely.saturating_mul(height)) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !dptr.is_null() && !pitch.is_null() {
        // SAFETY: the driver reported success and so has written both.
        let (address, pitch) = unsafe { ((*dptr).addr(), (*pitch).bytes()) };
        let bytes = pitch.saturating_mul(height);
        if !claim.grew(cx, bytes) {
            cx.driver().free(address);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        claim.keep(cx, Namespace::Pointer, address, bytes);
    }
    result
}

/// `cuMemFree`: of plain, managed and stream-ordered blocks, of mapped external memory; what is not
/// known here (a graph's block, one from before the process joined) is the driver's business alone.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn free<P: DevicePtr>(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, dptr: P) -> CUresult {
    let key = BlockKey::new(Namespace::Pointer, dptr.addr());
    let Some(block) = ledger::take(cx, key) else {
        let result = call();
        return if dptr.addr() == 0 { result } else { ledger::unknown_free(cx, result) };
    };
    let result = call();
    if !result.is_ok() {
        ledger::put_back(cx, key, block);
    } else if block.kind == Kind::PoolUsed {
        pool::freed_at_once(cx, key, block);
    } else {
        ledger::discharge_hot(cx, key, block);
    }
    result
}
