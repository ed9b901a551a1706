//! Kernel launches, counted once they have succeeded and unless the stream is capturing.

use core::ffi::{c_int, c_uint};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::kernels::{cache, learn};
use crate::telemetry::KernelId;

/// Counts one launch of a function: blocks of the grid, threads of a block, dynamic shared memory in
/// bytes per block.
#[inline(always)]
fn count(cx: &Cx<'_>, function: CUfunction, blocks: u64, threads: u64, shared: u64) {
    let kernel = match cache::of(cx.tls()).and_then(|c| c.get(function.addr())) {
        Some(kernel) => kernel,
        None => learn::kernel_of(cx, function),
    };
    add(cx, kernel, blocks, threads, shared);
}

#[inline(always)]
fn add(cx: &Cx<'_>, kernel: KernelId, blocks: u64, threads: u64, shared: u64) {
    if let Some(lane) = cx.tls().lane.get() {
        lane.launch(kernel, blocks, threads, shared);
    }
}

fn product(x: c_uint, y: c_uint, z: c_uint) -> u64 {
    u64::from(x).wrapping_mul(u64::from(y)).wrapping_mul(u64::from(z))
}

/// `cuLaunchKernel`, `cuLaunchCooperativeKernel`.
///
/// # Safety
/// The arguments of such a call.
#[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
#[inline(always)]
pub(crate) unsafe fn kernel(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
) -> CUresult {
    let captured = cx.capturing(stream);
    let result = call();
    if result.is_ok() && !captured {
        let (blocks, threads) = (product(grid_x, grid_y, grid_z), product(block_x, block_y, block_z));
        count(cx, function, blocks, threads, u64::from(shared));
    }
    result
}

/// `cuLaunchKernelEx`.
///
/// # Safety
/// The arguments of such a call.
#[inline(always)]
pub(crate) unsafe fn kernel_ex(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    config: *const CUlaunchConfig,
    function: CUfunction,
) -> CUresult {
    // SAFETY: null, or the program's configuration, valid during the call.
    let stream = unsafe { config.as_ref() }.map(|c| c.hStream);
    let captured = stream.is_some_and(|s| cx.capturing(s));
    let result = call();
    if result.is_ok() && !captured {
        // SAFETY: as above; the driver has accepted it.
        if let Some(c) = unsafe { config.as_ref() } {
            let blocks = product(c.gridDimX, c.gridDimY, c.gridDimZ);
            let threads = product(c.blockDimX, c.blockDimY, c.blockDimZ);
            count(cx, function, blocks, threads, u64::from(c.sharedMemBytes));
        }
    }
    result
}

/// `cuLaunchCooperativeKernelMultiDevice`: one launch per device.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn multi_device(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    list: *mut CUDA_LAUNCH_PARAMS,
    devices: c_uint,
) -> CUresult {
    let result = call();
    if result.is_ok() && !list.is_null() {
        for n in 0..devices as usize {
            // SAFETY: the driver has accepted a list of that many.
            let p = unsafe { &*list.wrapping_add(n) };
            if !cx.capturing(p.hStream) {
                let blocks = product(p.gridDimX, p.gridDimY, p.gridDimZ);
                let threads = product(p.blockDimX, p.blockDimY, p.blockDimZ);
                count(cx, p.function, blocks, threads, u64::from(p.sharedMemBytes));
            }
        }
    }
    result
}

fn old(cx: &Cx<'_>, function: CUfunction, width: c_int, height: c_int) {
    let blocks = u64::try_from(width).unwrap_or(0).wrapping_mul(u64::try_from(height).unwrap_or(0));
    let threads = cx.page.kernels.block_threads(function);
    count(cx, function, blocks, threads, 0);
}

/// `cuLaunch`: one block.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn single_block(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
) -> CUresult {
    // SAFETY: the arguments of such a call.
    unsafe { grid(cx, call, function, 1, 1) }
}

/// `cuLaunchGrid`: on the default stream.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn grid(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    width: c_int,
    height: c_int,
) -> CUresult {
    // SAFETY: the arguments of such a call; the default stream is always there.
    unsafe { grid_async(cx, call, function, width, height, CUstream::NULL) }
}

/// `cuLaunchGridAsync`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn grid_async(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> CUresult {
    let captured = cx.capturing(stream);
    let result = call();
    if result.is_ok() && !captured {
        old(cx, function, width, height);
    }
    result
}
