//! Kernel launches, counted once they have succeeded and unless the stream is capturing.

use core::ffi::{c_int, c_uint};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::kernels::learn;
use crate::kernels::timing;
use crate::kernels::timing::strata::Shape;
use crate::telemetry::KernelsMode;
use crate::throttle;

/// A launch of so many blocks of so many threads, with dynamic shared memory in bytes per block. What is counted is
/// the threads of the whole grid.
fn of(blocks: u64, threads: u64, shared: u64) -> Shape {
    Shape { blocks, threads: blocks.wrapping_mul(threads), shared, is_apart: true }
}

/// Returns true if a launch asks to begin before the one before it has ended, or to be followed so: an event between
/// the two would keep them apart.
fn overlaps(config: &CUlaunchConfig) -> bool {
    /// Programmatic stream serialisation, programmatic event, launch completion event.
    const IDS: [u32; 3] = [6, 7, 12];
    /// An identifier, padded, and a value of 64 bytes.
    const ATTRIBUTE_BYTES: usize = 72;
    if config.attrs.is_null() {
        return false;
    }
    (0..config.numAttrs as usize).any(|n| {
        let at = config.attrs.cast::<u8>().wrapping_add(n * ATTRIBUTE_BYTES).cast::<u32>();
        // SAFETY: the program says that there are so many attributes.
        IDS.contains(&unsafe { at.read_unaligned() })
    })
}

/// Makes a launch that is not captured, in the job's launch slot where it has a budget, and records what is to be
/// recorded of it.
fn recorded(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    stream: CUstream,
    shape: Shape,
) -> CUresult {
    if throttle::is_set() {
        return throttle::around(cx, stream, || made(cx, call, function, stream, shape));
    }
    made(cx, call, function, stream, shape)
}

#[inline(always)]
fn made(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    stream: CUstream,
    shape: Shape,
) -> CUresult {
    match cx.page.kernels.timing.mode() {
        KernelsMode::Count => {
            let result = call();
            if result.is_ok() {
                count(cx, function, shape);
            }
            result
        }
        KernelsMode::Off => call(),
        KernelsMode::Sample | KernelsMode::All => timing::launch::launch(cx, call, function, stream, shape),
    }
}

/// Counts a launch that has been made.
fn count(cx: &Cx<'_>, function: CUfunction, shape: Shape) {
    let Shape { blocks, threads, shared, .. } = shape;
    match cx.tls().kernels().get(function.addr()) {
        Some(row) => row.launch(blocks, threads, shared),
        None => learn::count(cx, function, blocks, threads, shared),
    }
}

#[inline(always)]
fn product(x: c_uint, y: c_uint, z: c_uint) -> u64 {
    u64::from(x).wrapping_mul(u64::from(y)).wrapping_mul(u64::from(z))
}

/// `cuLaunchKernel`, `cuLaunchCooperativeKernel`: what `launch_shell` leaves to compiled code.
///
/// # Safety
/// The arguments of such a call.
#[allow(clippy::too_many_arguments, reason = "the driver's prototype")]
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
    if cx.capturing(stream) {
        return call();
    }
    let (blocks, threads) = (product(grid_x, grid_y, grid_z), product(block_x, block_y, block_z));
    recorded(cx, call, function, stream, of(blocks, threads, u64::from(shared)))
}

/// `cuLaunchKernelEx`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn kernel_ex(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    config: *const CUlaunchConfig,
    function: CUfunction,
) -> CUresult {
    // SAFETY: null, or the program's configuration, valid during the call.
    let Some(c) = (unsafe { config.as_ref() }) else { return call() };
    if cx.capturing(c.hStream) {
        return call();
    }
    let (blocks, threads) = shape(c);
    let shape = Shape {
        is_apart: !cx.page.kernels.timing.mode().is_timed() || !overlaps(c),
        ..of(blocks, threads, u64::from(c.sharedMemBytes))
    };
    recorded(cx, call, function, c.hStream, shape)
}

#[inline(always)]
fn shape(c: &CUlaunchConfig) -> (u64, u64) {
    (product(c.gridDimX, c.gridDimY, c.gridDimZ), product(c.blockDimX, c.blockDimY, c.blockDimZ))
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
    // One launch slot for all of them: they begin together. The first stands for the others.
    // SAFETY: null, or a list of at least one.
    let first = unsafe { list.as_ref() }.filter(|first| throttle::is_set() && !cx.capturing(first.hStream));
    let result = match first {
        Some(first) => throttle::around(cx, first.hStream, call),
        None => call(),
    };
    if result.is_ok() && !list.is_null() && cx.page.kernels.timing.mode() != KernelsMode::Off {
        for n in 0..devices as usize {
            // SAFETY: the driver has accepted a list of that many.
            let p = unsafe { &*list.wrapping_add(n) };
            if !cx.capturing(p.hStream) {
                let blocks = product(p.gridDimX, p.gridDimY, p.gridDimZ);
                let threads = product(p.blockDimX, p.blockDimY, p.blockDimZ);
                count(cx, p.function, of(blocks, threads, u64::from(p.sharedMemBytes)));
            }
        }
    }
    result
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

/// `cuLaunchGridAsync`: the block's shape was set before.
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
    if cx.capturing(stream) {
        return call();
    }
    let blocks = u64::try_from(width).unwrap_or(0).wrapping_mul(u64::try_from(height).unwrap_or(0));
    recorded(cx, call, function, stream, of(blocks, cx.page.kernels.block_threads(function), 0))
}
