//! Objects that hold physical memory without a mapping of the program's: multicast objects, logical
//! endpoints, sparse arrays.

use core::ffi::c_void;

use radrm_cuda_abi::*;

use super::{VMM, came, let_go, unbind_all};
use crate::cx::Cx;
use crate::telemetry::Bypass;

/// Note of a multicast object.
const MULTICAST: u8 = 2;
/// Distinguishes logical endpoints from other owners of bindings.
const ENDPOINT: u64 = 1 << 62;

/// `cuMulticastCreate`: a handle that binds others. What the object itself takes on a device is not reported
/// by any call and is part of the remainder.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn multicast_create(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
) -> CUresult {
    // SAFETY: passed on.
    unsafe { came(cx, call, handle, MULTICAST) }
}

/// Part of a multicast object or logical endpoint: a device's range from an offset on.
fn part(device: CUdevice, offset: u64) -> u64 {
    offset ^ (u64::from(device.cast_unsigned()) << 48)
}

/// `cuMulticastBindMem`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn multicast_bind(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
) -> CUresult {
    let device = cx.driver().location_of(memory).map_or(0, |l| l.id);
    bound(cx, call, object, part(device, offset as u64), Some(memory))
}

/// `cuMulticastBindAddr`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn multicast_bind_address(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
) -> CUresult {
    let device = cx.driver().device_of_pointer(address).unwrap_or(0);
    let memory = VMM.get().and_then(|v| v.mapped_at(address));
    bound(cx, call, object, part(device, offset as u64), memory)
}

/// `cuMulticastUnbind`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn multicast_unbind(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
) -> CUresult {
    unbound(cx, call, object, part(device, offset as u64))
}

/// `cuLogicalEndpointBindMem`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn endpoint_bind(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    endpoint: u64,
    device: CUdevice,
    offset: u64,
    memory: CUmemGenericAllocationHandle,
) -> CUresult {
    bound(cx, call, ENDPOINT | endpoint, part(device, offset), Some(memory))
}

/// `cuLogicalEndpointBindAddr`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn endpoint_bind_address(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    endpoint: u64,
    device: CUdevice,
    offset: u64,
    address: *mut c_void,
) -> CUresult {
    let memory = VMM.get().and_then(|v| v.mapped_at(address.addr() as u64));
    bound(cx, call, ENDPOINT | endpoint, part(device, offset), memory)
}

/// `cuLogicalEndpointUnbind`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn endpoint_unbind(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    endpoint: u64,
    device: CUdevice,
    offset: u64,
) -> CUresult {
    unbound(cx, call, ENDPOINT | endpoint, part(device, offset))
}

/// `cuLogicalEndpointDestroy`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn endpoint_destroy(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    endpoint: u64,
) -> CUresult {
    let result = call();
    if result.is_ok() {
        unbind_all(cx, ENDPOINT | endpoint);
    }
    result
}

/// Runs a binding call, with the memory held from before it on.
fn bound(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    owner: u64,
    part: u64,
    memory: Option<u64>,
) -> CUresult {
    let held = VMM.get().zip(memory).filter(|(vmm, memory)| vmm.handles.hold(*memory).is_some());
    let result = call();
    if let Some((vmm, memory)) = held {
        if !result.is_ok() {
            let_go(cx, vmm, memory);
        } else if !vmm.bindings.bind(owner, part, memory) {
            cx.bypass(Bypass::ShimTableFull);
            let_go(cx, vmm, memory);
        }
    }
    result
}

fn unbound(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, owner: u64, part: u64) -> CUresult {
    let result = call();
    if let Some(vmm) = VMM.get().filter(|_| result.is_ok())
        && let Some(memory) = vmm.bindings.unbind(owner, part)
    {
        let_go(cx, vmm, memory);
    }
    result
}

/// `CUarrayMapInfo`: one tile, or the tail of the levels, of a sparse array.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayMapInfo {
    resource_kind: u32,
    resource: u64,
    subresource_kind: u32,
    subresource: [u64; 4],
    operation: u32,
    handle_kind: u32,
    memory: u64,
    offset: u64,
    device_mask: u32,
    flags: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<ArrayMapInfo>() == 96);

const MAP: u32 = 1;
const UNMAP: u32 = 2;

/// `cuMemMapArrayAsync`: maps physical memory into sparse arrays and takes it out again.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn map_array(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    list: *mut c_void,
    count: u32,
) -> CUresult {
    let result = call();
    let Some(vmm) = VMM.get().filter(|_| result.is_ok() && !list.is_null()) else { return result };
    for at in 0..count as usize {
        // SAFETY: the driver has read `count` entries from the list, and reported no error.
        let entry = unsafe { list.cast::<ArrayMapInfo>().wrapping_add(at).read_unaligned() };
        let part = entry.subresource.iter().fold(u64::from(entry.subresource_kind), |hash, word| {
            (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        if matches!(entry.operation, MAP | UNMAP)
            && let Some(memory) = vmm.bindings.unbind(entry.resource, part)
        {
            let_go(cx, vmm, memory);
        }
        let held = entry.operation == MAP && vmm.handles.hold(entry.memory).is_some();
        if held && !vmm.bindings.bind(entry.resource, part, entry.memory) {
            cx.bypass(Bypass::ShimTableFull);
            let_go(cx, vmm, entry.memory);
        }
    }
    result
}
