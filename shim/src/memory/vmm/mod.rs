//! Virtual memory management: physical memory by handle, mapped where the program likes.
//!
//! Physical memory is charged when it is created and returns when neither a handle nor a mapping nor a
//! binding holds it. Reserved address space is no memory and is not counted. Memory of another process
//! is charged there; here its mappings are shown as imported. The device comes from the properties that
//! the program asks for, because a worker thread may have no context.

mod bindings;
mod objects;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use crate::arena;
use crate::cx::Cx;
use crate::map::HandleMap;
use crate::memory::claim::Claim;
use crate::memory::ledger;
use crate::memory::place::{self, Place};
use crate::memory::references::{Left, References};
use crate::telemetry::{BlockKey, Bypass, Kind, Namespace};
use crate::wiped::{Wiped, Zeroable};

use bindings::Bindings;
pub(crate) use objects::*;

/// Physical memory that the process holds.
struct Vmm {
    /// References of every handle: handles, mappings, bindings.
    handles: References,
    /// Mappings by address.
    mappings: HandleMap,
    bindings: Bindings,
}

// SAFETY: zero is the empty state of all three; none has a destructor.
unsafe impl Zeroable for Vmm {}

static VMM: Wiped<Vmm> = Wiped::new();

/// Note of a handle whose memory this process created.
const OWN: u8 = 0;
/// Note of a handle to another process's memory.
const FOREIGN: u8 = 1;

/// One mapping.
#[repr(C)]
struct Mapping {
    /// The arena's own word once the record is free.
    link: AtomicU64,
    size: AtomicU64,
    handle: AtomicU64,
}

/// `cuMemCreate`.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn create(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
) -> CUresult {
    // SAFETY: the properties are the program's, readable or null; the driver reads them as well.
    let location = unsafe { prop.as_ref() }.map(|p| p.location);
    let (place, kind) = placed(cx, location);
    let claim = match Claim::at(cx, place, kind, size as u64) {
        Ok(claim) => claim,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        claim.refused(cx, result);
    } else if !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let handle = unsafe { *handle };
        match VMM.get().filter(|v| v.handles.start(handle, OWN)) {
            Some(_) if place.is_some() => claim.keep(cx, Namespace::Vmm, handle, size as u64),
            Some(_) => cx.bypass(Bypass::UnknownDevice),
            None => cx.bypass(Bypass::ShimTableFull),
        }
    }
    result
}

/// Place at which memory of a location is charged, and its kind. Host memory is shown beside the first device:
/// no context owns it.
fn placed(cx: &Cx<'_>, location: Option<CUmemLocation>) -> (Option<Place>, Kind) {
    match location {
        Some(CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id }) => {
            (place::of_device(cx, id), Kind::Vmm)
        }
        _ => (place::of_device(cx, 0), Kind::PinnedHost),
    }
}

/// `cuMemRelease`: drops one handle reference.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn release(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(vmm) = VMM.get() else { return call() };
    let key = BlockKey::new(Namespace::Vmm, handle);
    let left = vmm.handles.release(handle);
    let block = match left {
        Left::Nothing(_) => ledger::take(cx, key),
        _ => None,
    };
    let result = call();
    match (left, block) {
        (Left::Unknown, _) => {
            let _ = ledger::unknown_free(cx, result);
        }
        (Left::Some, _) if result.is_ok() => {}
        (Left::Some, _) => {
            // The reference was taken away too early; what is left of it cannot have gone meanwhile.
            let _ = vmm.handles.hold(handle);
        }
        (Left::Nothing(_), block) if result.is_ok() => {
            if let Some(block) = block {
                ledger::discharge_hot(cx, key, block);
            }
            unbind_all(cx, handle);
        }
        (Left::Nothing(note), block) => {
            vmm.handles.start(handle, note);
            if let Some(block) = block {
                ledger::put_back(cx, key, block);
            }
        }
    }
    result
}

/// Takes away a reference that a mapping or binding held.
fn let_go(cx: &Cx<'_>, vmm: &Vmm, handle: u64) {
    if let Left::Nothing(_) = vmm.handles.release(handle) {
        let key = BlockKey::new(Namespace::Vmm, handle);
        if let Some(block) = ledger::take(cx, key) {
            ledger::discharge(cx, key, block);
        }
        unbind_all(cx, handle);
    }
}

/// `cuMemMap`: a mapping keeps the memory alive after its handles are released.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn map(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    ptr: CUdeviceptr,
    size: usize,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(vmm) = VMM.get() else { return call() };
    // Held before the call, so that a release on another thread cannot be the last in between.
    let held = vmm.handles.hold(handle);
    let result = call();
    let Some(note) = held else { return result };
    if !result.is_ok() {
        let_go(cx, vmm, handle);
        return result;
    }
    if !vmm.note_mapping(ptr, size as u64, handle) {
        // Without the note the reference could never be dropped.
        cx.bypass(Bypass::ShimTableFull);
        let_go(cx, vmm, handle);
    } else if note == FOREIGN {
        let location = cx.driver().location_of(handle);
        let (place, _) = placed(cx, location);
        Claim::imported(place, size as u64).keep(cx, Namespace::Other, ptr, size as u64);
    }
    result
}

impl Vmm {
    fn note_mapping(&self, address: u64, size: u64, handle: u64) -> bool {
        let Some(block) = arena::alloc(size_of::<Mapping>()) else { return false };
        // SAFETY: zeroed, large and aligned enough, and shared from here on through atomics only.
        let mapping = unsafe { block.cast::<Mapping>().as_ref() };
        mapping.size.store(size, Ordering::Relaxed);
        mapping.handle.store(handle, Ordering::Relaxed);
        // The map's release publishes the two stores.
        let stored = self.mappings.insert(address, block.as_ptr().addr() as u64);
        if !stored {
            // SAFETY: made just above with this size and not published.
            unsafe { arena::free(block, size_of::<Mapping>()) };
        }
        stored
    }

    /// Takes out the mapping at an address: its size and handle.
    fn forget_mapping(&self, address: u64) -> Option<(u64, u64)> {
        let block = NonNull::new(self.mappings.remove(address)? as *mut Mapping)?;
        // SAFETY: the map holds addresses of mapping records only, in memory that stays mapped.
        let mapping = unsafe { block.as_ref() };
        let known = (mapping.size.load(Ordering::Relaxed), mapping.handle.load(Ordering::Relaxed));
        // SAFETY: made by `note_mapping` with this size; out of the map, so no other thread frees it.
        unsafe { arena::free(block.cast(), size_of::<Mapping>()) };
        Some(known)
    }

    /// The handle mapped at an address.
    fn mapped_at(&self, address: u64) -> Option<u64> {
        let block = NonNull::new(self.mappings.get(address)? as *mut Mapping)?;
        // SAFETY: as in `forget_mapping`.
        Some(unsafe { block.as_ref() }.handle.load(Ordering::Relaxed))
    }
}

/// `cuMemUnmap`: of one mapping or of several side by side.
///
/// Worked off after the real call: unlike a handle, the address is the program's to use again, and it
/// can only do so once it knows that this call has returned.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn unmap(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    ptr: CUdeviceptr,
    size: usize,
) -> CUresult {
    let result = call();
    let Some(vmm) = VMM.get().filter(|_| result.is_ok()) else { return result };
    let end = ptr.saturating_add(size as u64);
    let mut at = ptr;
    while at < end {
        let Some((bytes, handle)) = vmm.forget_mapping(at) else {
            cx.bypass(Bypass::UnknownBlock);
            break;
        };
        let key = BlockKey::new(Namespace::Other, at);
        if let Some(block) = ledger::take(cx, key) {
            ledger::discharge(cx, key, block);
        }
        let_go(cx, vmm, handle);
        at = at.saturating_add(bytes.max(1));
    }
    result
}

/// `cuMemRetainAllocationHandle`: one more handle reference.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn retain(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
) -> CUresult {
    let result = call();
    if result.is_ok() && !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let handle = unsafe { *handle };
        if VMM.get().and_then(|v| v.handles.hold(handle)).is_none() {
            cx.bypass(Bypass::ForeignHandle);
        }
    }
    result
}

/// `cuMemImportFromShareableHandle`: a handle to memory that its exporter is charged for.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn import(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
) -> CUresult {
    // SAFETY: passed on.
    unsafe { came(cx, call, handle, FOREIGN) }
}

/// A call that gives the program a handle without memory of its own.
///
/// # Safety
/// `handle` is the out-parameter of `call`: null, or set when it succeeds.
unsafe fn came(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
    note: u8,
) -> CUresult {
    ledger::seen(cx);
    let result = call();
    if result.is_ok() && !handle.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        start_or_hold(cx, unsafe { *handle }, note);
    }
    result
}

/// A handle from elsewhere; the driver may hand out one that the process has already.
fn start_or_hold(cx: &Cx<'_>, handle: u64, note: u8) {
    let known = VMM.get().is_some_and(|v| v.handles.hold(handle).is_some() || v.handles.start(handle, note));
    if !known {
        cx.bypass(Bypass::ShimTableFull);
    }
}

/// Drops every binding of an object that is gone.
pub(super) fn unbind_all(cx: &Cx<'_>, owner: u64) {
    let Some(vmm) = VMM.get() else { return };
    while let Some(memory) = vmm.bindings.unbind_any(owner) {
        let_go(cx, vmm, memory);
    }
}
