//! Memory: addresses that never overlap, nothing behind them.
//!
//! Blocks of up to [`STRIDE`] bytes take one stride of address space each; a thread hands the block
//! that it freed last out again, as a driver does. With `RADRM_INSTANT_FRESH=1` every block has a
//! new address, which is the hardest case for a table of live blocks. Larger blocks come from an
//! upper region and are never handed out again.

use core::{
    cell::Cell,
    ffi::{c_int, c_uint, c_void},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use radrm_cuda_abi::*;

use crate::entry::{TOTAL_BYTES, put};

/// Address space that one small block takes.
const STRIDE: u64 = 2 << 20;
/// Address space that a thread takes at a time.
const CHUNK: u64 = 1 << 36;
/// First address of small blocks.
const LOW: u64 = 0x10_0000_0000;
/// First address of large blocks.
const HIGH: u64 = 0x1000_0000_0000;

/// Next chunk for a thread. Relaxed: only its own value matters.
static NEXT_CHUNK: AtomicU64 = AtomicU64::new(LOW);
/// Next large block. Relaxed: only its own value matters.
static NEXT_LARGE: AtomicU64 = AtomicU64::new(HIGH);
/// True if freed blocks stay unused. Relaxed: set once in `cuInit`.
static FRESH: AtomicBool = AtomicBool::new(false);

struct Bump {
    next: Cell<u64>,
    end: Cell<u64>,
    freed: Cell<u64>,
}

thread_local! {
    static BUMP: Bump = const { Bump { next: Cell::new(0), end: Cell::new(0), freed: Cell::new(0) } };
}

/// Reads the options from the environment.
pub fn read_options() {
    FRESH.store(std::env::var_os("RADRM_INSTANT_FRESH").is_some(), Ordering::Relaxed);
}

fn take(bytes: usize) -> u64 {
    if bytes as u64 > STRIDE {
        let span = (bytes as u64).next_multiple_of(STRIDE);
        return NEXT_LARGE.fetch_add(span, Ordering::Relaxed);
    }
    BUMP.with(|bump| {
        let freed = bump.freed.get();
        if freed != 0 {
            bump.freed.set(0);
            return freed;
        }
        if bump.next.get() == bump.end.get() {
            let chunk = NEXT_CHUNK.fetch_add(CHUNK, Ordering::Relaxed);
            bump.next.set(chunk);
            bump.end.set(chunk + CHUNK);
        }
        let block = bump.next.get();
        bump.next.set(block + STRIDE);
        block
    })
}

fn give(block: u64) {
    if block < HIGH && !FRESH.load(Ordering::Relaxed) {
        BUMP.with(|bump| bump.freed.set(block));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(block: *mut CUdeviceptr, bytes: usize) -> CUresult {
    unlike_others!("cuMemAlloc_v2");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocPitch_v2(
    block: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _element: c_uint,
) -> CUresult {
    unlike_others!("cuMemAllocPitch_v2");
    let row = width.next_multiple_of(512);
    // SAFETY: the caller's out-parameters.
    unsafe {
        let _ = put(pitch, row);
        put(block, take(row * height))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(
    block: *mut CUdeviceptr,
    bytes: usize,
    _flags: c_uint,
) -> CUresult {
    unlike_others!("cuMemAllocManaged");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(block: CUdeviceptr) -> CUresult {
    unlike_others!("cuMemFree_v2");
    give(block);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(
    block: *mut CUdeviceptr,
    bytes: usize,
    _stream: CUstream,
) -> CUresult {
    unlike_others!("cuMemAllocAsync");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync_ptsz(
    block: *mut CUdeviceptr,
    bytes: usize,
    _stream: CUstream,
) -> CUresult {
    unlike_others!("cuMemAllocAsync_ptsz");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(
    block: *mut CUdeviceptr,
    bytes: usize,
    _pool: CUmemoryPool,
    _stream: CUstream,
) -> CUresult {
    unlike_others!("cuMemAllocFromPoolAsync");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync_ptsz(
    block: *mut CUdeviceptr,
    bytes: usize,
    _pool: CUmemoryPool,
    _stream: CUstream,
) -> CUresult {
    unlike_others!("cuMemAllocFromPoolAsync_ptsz");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(block: CUdeviceptr, _stream: CUstream) -> CUresult {
    unlike_others!("cuMemFreeAsync");
    give(block);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync_ptsz(block: CUdeviceptr, _stream: CUstream) -> CUresult {
    unlike_others!("cuMemFreeAsync_ptsz");
    give(block);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    _prop: *const CUmemAllocationProp,
    _flags: u64,
) -> CUresult {
    unlike_others!("cuMemCreate");
    // SAFETY: the caller's out-parameter.
    unsafe { put(handle, take(bytes)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
    unlike_others!("cuMemRelease");
    give(handle);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    block: *mut CUdeviceptr,
    bytes: usize,
    _alignment: usize,
    _wish: CUdeviceptr,
    _flags: u64,
) -> CUresult {
    unlike_others!("cuMemAddressReserve");
    // SAFETY: the caller's out-parameter.
    unsafe { put(block, take(bytes.max(STRIDE as usize + 1))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    unlike_others!("cuMemGetInfo_v2");
    // SAFETY: each is null or the caller's out-parameter.
    unsafe {
        let _ = put(free, TOTAL_BYTES - (1 << 30));
        let _ = put(total, TOTAL_BYTES);
    }
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(pool: *mut CUmemoryPool, _props: *const CUmemPoolProps) -> CUresult {
    unlike_others!("cuMemPoolCreate");
    // SAFETY: the caller's out-parameter.
    unsafe { put(pool, CUmemoryPool(0x4000 as *mut c_void)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetDefaultMemPool");
    // SAFETY: the caller's out-parameter.
    unsafe { put(pool, CUmemoryPool(0x5000 as *mut c_void)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetMemPool");
    // SAFETY: the caller's out-parameter.
    unsafe { put(pool, CUmemoryPool(0x5000 as *mut c_void)) }
}

/// A pool that holds 32 MiB at any time; all other attributes are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(
    _pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    unlike_others!("cuMemPoolGetAttribute");
    // SAFETY: the caller's out-parameter; memory sizes are 64 bits wide, switches are 32.
    unsafe {
        match attribute {
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => {
                put(value.cast::<u64>(), 32 << 20)
            }
            a if a.0 >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD.0 => put(value.cast::<u64>(), 0),
            _ => put(value.cast::<c_int>(), 0),
        }
    }
}
