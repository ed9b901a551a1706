//! Memory of graphs' allocation nodes.
//!
//! An allocation node takes nothing when it is made: the driver reserves memory when a graph with such
//! nodes is launched or uploaded and keeps it until it is trimmed. What it reserves is read from the
//! driver at those calls, for the devices that nodes were seen for.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::level::Level;
use super::{gpu, place};
use crate::cx::Cx;
use crate::telemetry::{Bypass, Kind};
use crate::wiped::{Wiped, Zeroable};

/// Devices that graph memory is followed for: the bits of one word.
const DEVICES: usize = 64;

struct Levels {
    /// Bit n: allocation nodes for device n were seen.
    noted: AtomicU64,
    /// Reserved bytes by device.
    reserved: [Level; DEVICES],
}

// SAFETY: zero is "nothing noted"; atomics have no destructor.
unsafe impl Zeroable for Levels {}

static LEVELS: Wiped<Levels> = Wiped::new();

/// Notes that a graph may allocate on a device.
fn note(device: CUdevice) {
    let bit = u32::try_from(device).ok().and_then(|d| 1u64.checked_shl(d));
    if let (Some(bit), Some(levels)) = (bit, LEVELS.get()) {
        levels.noted.fetch_or(bit, Ordering::Relaxed);
    }
}

/// A stream-ordered allocation was captured: it is a node now.
pub(super) fn captured_allocation(cx: &Cx<'_>) {
    if let Some(place) = place::current(cx) {
        note(place.device);
    }
}

/// After a graph was launched.
pub(crate) fn launched(cx: &Cx<'_>, _exec: CUgraphExec) {
    refresh(cx);
}

/// Reads what the driver reserves for graphs on every device that nodes were seen for.
#[inline]
pub(crate) fn refresh(cx: &Cx<'_>) {
    let Some(levels) = LEVELS.get() else { return };
    let noted = levels.noted.load(Ordering::Relaxed);
    if noted != 0 {
        refresh_noted(cx, levels, noted);
    }
}

#[cold]
#[inline(never)]
fn refresh_noted(cx: &Cx<'_>, levels: &Levels, noted: u64) {
    for (device, level) in (0..).zip(&levels.reserved) {
        if noted & (1 << device) == 0 {
            continue;
        }
        let Some(gpu) = gpu::of_device(cx, device) else { continue };
        let read = || cx.relaxed_capture(|| cx.driver().graph_memory_reserved(device));
        if !level.follow(cx, gpu, Kind::Graph, read) {
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
pub(crate) unsafe fn uploaded(cx: &Cx<'_>, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    refresh(cx);
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
