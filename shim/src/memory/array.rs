//! Arrays and mipmapped arrays: device memory outside any pointer.
//!
//! The driver is asked for the size and answers for some kinds of array only; else it is worked out
//! from the descriptor, which leaves out the tiling's padding ([`texels`]). Sparse and deferred arrays
//! hold nothing of their own: what is mapped into them is charged where it was created.

use crate::telemetry::{BlockKey, Kind, Namespace};
use radrm_cuda_abi::*;

use super::claim::Claim;
use super::place::Place;
use super::{ledger, texels, vmm};
use crate::abi_traits::ArrayShape;
use crate::cx::Cx;

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
    let claim = Claim::here(cx, Kind::Array, estimate);
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let array = unsafe { *handle };
        let bytes = confirmed(cx, claim.place, estimate, |device| cx.driver().array_size(array, device));
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
    let claim = Claim::here(cx, Kind::Array, estimate);
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let mipmap = unsafe { *handle };
        let bytes = confirmed(cx, claim.place, estimate, |device| cx.driver().mipmap_size(mipmap, device));
        claim.keep(cx, Namespace::MipmappedArray, mipmap.addr(), bytes);
    }
    result
}

/// The driver's own figure where it gives one; an array that is mapped later stays at 0.
fn confirmed(cx: &Cx<'_>, place: Option<Place>, estimate: u64, ask: impl Fn(CUdevice) -> Option<u64>) -> u64 {
    match place {
        Some(place) if estimate != 0 => cx.relaxed_capture(|| ask(place.device)).unwrap_or(estimate),
        _ => estimate,
    }
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
