//! Memory of graphs' allocation nodes.
//!
//! An allocation node takes nothing when it is made: the driver reserves memory when a graph with such
//! nodes is launched or uploaded and keeps it until it is trimmed. What it reserves is read from the
//! driver at those calls, for the devices that nodes were seen for.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::level::{Caller, Level};
use super::{claim, gpu, place};
use crate::cx::Cx;
use crate::map::HandleMap;
use crate::telemetry::{Bypass, GpuIndex, Kind};
use crate::wiped::{Wiped, Zeroable};

/// Devices that graph memory is followed for: the bits of one word.
const DEVICES: usize = 64;

struct Levels {
    /// Bit n: allocation nodes for device n were seen.
    noted: AtomicU64,
    /// Reserved bytes by device.
    reserved: [Level; DEVICES],
    /// Executable graph -> device and bytes of its allocation nodes.
    needs: HandleMap,
}

// SAFETY: zero is "nothing noted"; atomics and the map have no destructor.
unsafe impl Zeroable for Levels {}

static LEVELS: Wiped<Levels> = Wiped::new();

/// Notes that a graph may allocate on a device.
fn note(device: CUdevice) {
    let bit = u32::try_from(device).ok().and_then(|d| 1u64.checked_shl(d));
    if let (Some(bit), Some(levels)) = (bit, LEVELS.get()) {
        levels.noted.fetch_or(bit, Ordering::Relaxed);
    }
}

/// A stream-ordered allocation was captured: it is a node now. It lies on the stream's device, whatever context the
/// thread has.
pub(super) fn captured_allocation(cx: &Cx<'_>, stream: CUstream) {
    let of_stream = cx.relaxed_capture(|| cx.driver().device_of_stream(stream));
    if let Some(device) = of_stream.or_else(|| place::current(cx).map(|place| place.device)) {
        note(device);
    }
}

/// Bit offset of the device in a word, above a number of bytes.
const DEVICE_AT: u32 = 56;
/// Multiple that a graph's memory is rounded up to, node by node, at most, bytes.
const GRANULE: u64 = 2 << 20;

/// After an instantiation: under a quota a launch must know what the graph needs.
pub(crate) fn instantiated(
    cx: &Cx<'_>,
    exec: CUgraphExec,
    allocations: impl FnOnce() -> Option<(CUdevice, u64)>,
) {
    if !cx.page.quota.is_on() {
        return;
    }
    if let Some((device, bytes)) = allocations() {
        note(device);
        let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes).min((1 << DEVICE_AT) - 1);
        remember(exec, Some(u64::from(device.cast_unsigned()) << DEVICE_AT | bytes));
    }
}

/// Enters what an executable graph needs.
pub(crate) fn remember(exec: CUgraphExec, needs: Option<u64>) {
    if let (Some(levels), Some(needs)) = (LEVELS.get(), needs) {
        levels.needs.insert(exec.addr(), needs);
    }
}

/// Takes out what an executable graph needs.
pub(crate) fn forget(exec: CUgraphExec) -> Option<u64> {
    LEVELS.get()?.needs.remove(exec.addr())
}

/// Memory that a launch may take of a device, reserved under the quota for the time of the call.
#[must_use]
pub(crate) struct Room(Option<(GpuIndex, u64)>);

impl Room {
    /// The call is over: what the driver holds for graphs now is charged.
    pub(crate) fn settle(self, cx: &Cx<'_>) {
        refresh_by(cx, Caller::Asked);
        if let Self(Some((gpu, bytes))) = self {
            cx.page.quota.release(gpu, bytes);
        }
    }
}

/// Reserves what the launch or upload of a graph may take. The driver keeps a graph's memory from one launch to
/// the next and shares it among graphs: what it holds already is not reserved again.
///
/// # Errors
///
/// Result code that the program gets: a quota refuses the request.
#[inline]
pub(crate) fn room(cx: &Cx<'_>, exec: CUgraphExec, captured: bool) -> Result<Room, CUresult> {
    if captured || !cx.page.quota.is_on() { Ok(Room(None)) } else { reserve(cx, exec) }
}

#[cold]
#[inline(never)]
fn reserve(cx: &Cx<'_>, exec: CUgraphExec) -> Result<Room, CUresult> {
    let needs = LEVELS.get().and_then(|levels| Some((levels, levels.needs.get(exec.addr())?)));
    let Some((levels, needs)) = needs else { return Ok(Room(None)) };
    let (device, bytes) = ((needs >> DEVICE_AT) as u32, needs & ((1 << DEVICE_AT) - 1));
    let held = levels.reserved.get(device as usize).map_or(0, Level::charged);
    let Some(gpu) = gpu::of_device(cx, device.cast_signed()).filter(|_| bytes > held) else {
        return Ok(Room(None));
    };
    claim::reserve(cx, gpu, Kind::Graph, bytes, bytes - held)?;
    Ok(Room(Some((gpu, bytes - held))))
}

/// Reads what the driver reserves for graphs on every device that nodes were seen for.
#[inline]
pub(crate) fn refresh(cx: &Cx<'_>) {
    refresh_by(cx, Caller::Found);
}

#[inline]
fn refresh_by(cx: &Cx<'_>, caller: Caller) {
    let Some(levels) = LEVELS.get() else { return };
    let noted = levels.noted.load(Ordering::Relaxed);
    if noted != 0 {
        refresh_noted(cx, levels, noted, caller);
    }
}

#[cold]
#[inline(never)]
fn refresh_noted(cx: &Cx<'_>, levels: &Levels, noted: u64, caller: Caller) {
    for (device, level) in (0..).zip(&levels.reserved) {
        if noted & (1 << device) == 0 {
            continue;
        }
        let Some(gpu) = gpu::of_device(cx, device) else { continue };
        let read = || cx.relaxed_capture(|| cx.driver().graph_memory_reserved(device));
        if !level.follow(cx, gpu, Kind::Graph, caller, read) {
            cx.bypass(Bypass::HelperFailed);
        }
    }
}

/// `cuGraphAddMemAllocNode`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn add_alloc_node(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    params: *const CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult {
    let result = call();
    // SAFETY: the parameters are the program's; the driver has read them and reported no error.
    if let Some(params) = unsafe { params.as_ref() }.filter(|_| result.is_ok()) {
        note_location(params.poolProps.location);
    }
    result
}

fn note_location(location: CUmemLocation) {
    if location.kind == CU_MEM_LOCATION_TYPE_DEVICE {
        note(location.id);
    }
}

/// Beginning of `CUgraphNodeParams` for an allocation node.
#[repr(C)]
#[derive(Clone, Copy)]
struct NodeParams {
    kind: CUgraphNodeType,
    reserved: [i32; 3],
    pool: CUmemPoolProps,
}

/// `cuGraphAddNode`: any sort of node.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn add_node(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    params: *mut c_void,
) -> CUresult {
    let result = call();
    if result.is_ok() && !params.is_null() {
        // SAFETY: the driver has read the parameters, which start with the sort of node.
        let kind = unsafe { params.cast::<CUgraphNodeType>().read() };
        if kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            // SAFETY: parameters of an allocation node are this long; the driver has read them.
            note_location(unsafe { params.cast::<NodeParams>().read() }.pool.location);
        }
    }
    result
}

/// `cuGraphUpload`: reserves what the graph's allocation nodes need.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn uploaded(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, exec: CUgraphExec) -> CUresult {
    let room = match room(cx, exec, false) {
        Ok(room) => room,
        Err(code) => return code,
    };
    let result = call();
    room.settle(cx);
    result
}

/// `cuDeviceGraphMemTrim`, `cuDeviceGetGraphMemAttribute`, `cuDeviceSetGraphMemAttribute`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn touched(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, device: CUdevice) -> CUresult {
    let result = call();
    if result.is_ok() {
        note(device);
        refresh(cx);
    }
    result
}
