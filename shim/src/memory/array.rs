//! Arrays and mipmapped arrays: device memory outside any pointer.
//!
//! The size is worked out from the descriptor ([`texels`]); where the driver answers
//! `cu{Array,MipmappedArray}GetMemoryRequirements` (it does for some kinds of array only) and its tiling
//! needs more, that is charged. Sparse and deferred arrays hold nothing of their own: what is mapped into
//! them is charged where it was created.

use radrm_cuda_abi::*;

use super::claim::Claim;
use super::place::Place;
use super::{ledger, texels, vmm};
use crate::abi_traits::ArrayShape;
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Kind, Namespace};

/// `cuArrayCreate`, `cuArray3DCreate`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn create<D: ArrayShape>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUarray,
    shape: *const D,
) -> CUresult {
    // SAFETY: the descriptor is the program's, readable or null; the driver reads it as well.
    let shape = unsafe { shape.as_ref() };
    let estimate = shape.map_or(0, |s| if texels::is_mapped_later(s.flags()) { 0 } else { texels::array(s) });
    let mut claim = match Claim::here(cx, Kind::Array, estimate) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let array = unsafe { *handle };
        let bytes = confirmed(cx, claim.place, estimate, |device| cx.driver().array_needs(array, device));
        if !claim.grew(cx, bytes) {
            cx.driver().destroy_array(array);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        claim.keep(cx, Namespace::Array, array.addr(), bytes);
    }
    result
}

/// `cuMipmappedArrayCreate`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn create_mipmapped<D: ArrayShape>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmipmappedArray,
    shape: *const D,
    levels: u32,
) -> CUresult {
    // SAFETY: the descriptor is the program's, readable or null; the driver reads it as well.
    let shape = unsafe { shape.as_ref() };
    let estimate =
        shape.map_or(0, |s| if texels::is_mapped_later(s.flags()) { 0 } else { texels::mipmap(s, levels) });
    let mut claim = match Claim::here(cx, Kind::Array, estimate) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let mipmap = unsafe { *handle };
        let bytes = confirmed(cx, claim.place, estimate, |device| cx.driver().mipmap_needs(mipmap, device));
        if !claim.grew(cx, bytes) {
            cx.driver().destroy_mipmap(mipmap);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        claim.keep(cx, Namespace::MipmappedArray, mipmap.addr(), bytes);
    }
    result
}

/// The estimate, or the driver's own figure where its tiling pads by more than a whole allocation is
/// aligned to: that alignment is not a part of what small arrays take, which share allocations.
fn confirmed(
    cx: &Cx<'_>,
    place: Option<Place>,
    estimate: u64,
    ask: impl Fn(CUdevice) -> Option<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
) -> u64 {
    let Some(place) = place.filter(|_| estimate != 0) else { return estimate };
    let Some(needs) = cx.relaxed_capture(|| ask(place.device)) else { return estimate };
    let (size, alignment) = (needs.size as u64, (needs.alignment as u64).max(1));
    let aligned = estimate.checked_next_multiple_of(alignment).unwrap_or(estimate);
    if size > aligned { size } else { estimate }
}

/// `cuArrayDestroy`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn destroy(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, array: CUarray) -> CUresult {
    let result = ledger::around(cx, BlockKey::new(Namespace::Array, array.addr()), call);
    if result.is_ok() {
        vmm::unbind_all(cx, array.addr());
    }
    result
}

/// `cuMipmappedArrayDestroy`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn destroy_mipmapped(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    mipmap: CUmipmappedArray,
) -> CUresult {
    let result = ledger::around(cx, BlockKey::new(Namespace::MipmappedArray, mipmap.addr()), call);
    if result.is_ok() {
        vmm::unbind_all(cx, mipmap.addr());
    }
    result
}
