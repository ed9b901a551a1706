//! Stream-ordered memory: pools, and allocations from them.
//!
//! A pool grows in steps of [`STEP`] (in steps of 2 MiB where that does not fit), and reuses what was
//! freed at once, in any stream. What is above the release threshold goes back to the device when a
//! stream, an event or a context is synchronised, in whole chunks.

use core::ffi::c_uint;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::advice::{Place, device_of};
use crate::engine::memory::charge::charge;
use crate::engine::memory::device::ALIGNMENT;
use crate::engine::memory::host;
use crate::engine::memory::objects::{DevicePools, Pool};
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::util::ffi::Answer;

/// Bytes by which a pool grows at least.
pub const STEP: u64 = 32 << 20;
/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FD: c_uint = 1;

/// The default pool of a device, made at the first question.
pub(crate) fn default_pool(driver: &Driver, state: &mut State, device: CUdevice) -> Answer<u64> {
    let gpu = driver.device(device)?.gpu;
    if !driver.machine.gpu(gpu).is_some_and(|g| g.memory_pools) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if let Some(handle) = state.device_pools[device as usize].default {
        return Ok(handle);
    }
    let handle = driver.handles.next();
    state.pools.insert(handle, Pool::new(device, gpu, 0, 0));
    state.device_pools[device as usize].default = Some(handle);
    Ok(handle)
}

pub(crate) fn current_pool(driver: &Driver, state: &mut State, device: CUdevice) -> Answer<u64> {
    let default = default_pool(driver, state, device)?;
    Ok(state.device_pools[device as usize].current.unwrap_or(default))
}

/// A pool of managed memory that should be at a location.
pub(crate) fn new_managed(driver: &Driver, place: Place, max_size: u64) -> Pool {
    let device = driver.device(device_of(Some(place)));
    let (ordinal, gpu) = device.or_else(|_| driver.device(0)).map_or((0, 0), |d| (d.ordinal, d.gpu));
    Pool { managed: Some(place), ..Pool::new(ordinal, gpu, max_size, 0) }
}

/// The pools of managed memory of a location; the default one is made at the first question.
pub(crate) fn managed_pools<'a>(driver: &Driver, state: &'a mut State, place: Place) -> &'a mut DevicePools {
    let pools = state.managed_pools.entry(place).or_default();
    if pools.default.is_none() {
        let handle = driver.handles.next();
        state.pools.insert(handle, new_managed(driver, place, 0));
        pools.default = Some(handle);
    }
    pools
}

pub(crate) fn find(state: &mut State, pool: CUmemoryPool) -> Answer<&mut Pool> {
    state.pools.get_mut(&pool.addr()).filter(|p| !p.destroyed).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Gives free chunks back to the device, as long as `keep` bytes stay.
pub(crate) fn trim(driver: &Driver, state: &mut State, handle: u64, keep: u64) -> u64 {
    let Some(pool) = state.pools.get_mut(&handle) else { return 0 };
    // A destroyed pool is released as a whole, with its last block (`cuMemPoolDestroy`).
    let waits = pool.destroyed && pool.blocks > 0;
    if waits || pool.reserved <= keep || pool.imported.is_some() || pool.managed.is_some() {
        return 0;
    }
    let mut released = 0;
    for (base, size) in pool.ranges.free_chunks() {
        if pool.reserved - size < keep {
            continue;
        }
        pool.ranges.drop_chunk(base);
        pool.reserved -= size;
        released += size;
        state.space.give(base, size);
        driver.process.discharge(pool.gpu, Kind::PoolReserved, size, size);
    }
    released
}

/// Trims all pools of a device; `keep` says how much each keeps.
pub(crate) fn trim_device(
    driver: &Driver,
    state: &mut State,
    device: CUdevice,
    keep: impl Fn(&Pool) -> u64,
) -> u64 {
    let pools: Vec<(u64, u64)> =
        state.pools.iter().filter(|(_, p)| p.device == device).map(|(h, p)| (*h, keep(p))).collect();
    pools.into_iter().map(|(handle, keep)| trim(driver, state, handle, keep)).sum()
}

/// Bytes of its pool that a block of `bytes` takes: 0 bytes are an allocation too, with an address of its own.
/// Returns `None` if a number cannot hold them.
fn held_by(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(ALIGNMENT)
}

/// Makes a pool larger so that `size` bytes fit.
fn grow(driver: &Driver, state: &mut State, handle: u64, size: u64) -> Answer {
    let pool = state.pools.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (gpu, device) = (pool.gpu, pool.device);
    let fits = |step: u64| pool.max_size == 0 || pool.reserved.saturating_add(step) <= pool.max_size;
    let round = |step: u64| size.checked_next_multiple_of(step).filter(|s| fits(*s));
    let (generous, tight) = (round(STEP), round(HOLD_GRANULE));
    let take =
        |bytes: Option<u64>| bytes.filter(|b| driver.process.charge(gpu, Kind::PoolReserved, *b, *b).is_ok());
    let mut chunk = take(generous).or_else(|| take(tight));
    // Before a request fails, what other pools of the device do not use goes back.
    if chunk.is_none() && tight.is_some() && trim_device(driver, state, device, |_| 0) > 0 {
        chunk = take(tight);
    }
    let Some(bytes) = chunk else {
        driver.process.failed(gpu, size);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    let base = state.space.take(bytes, HOLD_GRANULE).inspect_err(|_| {
        driver.process.discharge(gpu, Kind::PoolReserved, bytes, bytes);
    })?;
    if let Some(pool) = state.pools.get_mut(&handle) {
        pool.ranges.add_chunk(base, bytes);
        pool.reserved += bytes;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
    }
    Ok(())
}

/// Takes memory from a pool.
pub(crate) fn take(
    driver: &Driver,
    state: &mut State,
    context: &Arc<Context>,
    handle: u64,
    bytes: u64,
) -> Answer<u64> {
    let size = held_by(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let find = |state: &mut State| state.pools.get_mut(&handle).and_then(|p| p.ranges.take(size, ALIGNMENT));
    let base = match find(state) {
        Some(base) => base,
        None => {
            grow(driver, state, handle, size)?;
            find(state).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
        }
    };
    let pool = state.pools.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    pool.used += size;
    pool.used_high = pool.used_high.max(pool.used);
    pool.blocks += 1;
    charge(driver, pool.gpu, Kind::PoolUsed, bytes, size)?;
    let block = Block::new(base, bytes, Use::Pool(handle), Some(context), pool.device, pool.gpu);
    state.blocks.insert(block);
    Ok(base)
}

/// Takes memory from a pool of managed memory, which keeps none in reserve.
pub(crate) fn take_managed(driver: &Driver, context: &Arc<Context>, handle: u64, bytes: u64) -> Answer<u64> {
    let size = held_by(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let full = |pool: &Pool| pool.max_size > 0 && pool.used.saturating_add(size) > pool.max_size;
    if driver.memory.lock().pools.get(&handle).is_none_or(full) {
        driver.process.failed(context.gpu, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let base = host::map(driver, context, bytes, Use::Managed, ATTACH_GLOBAL)?;
    let mut state = driver.memory.lock();
    if let Some(block) = state.blocks.at(base) {
        block.count = handle;
    }
    if let Some(pool) = state.pools.get_mut(&handle) {
        pool.blocks += 1;
        pool.used += size;
        pool.reserved = pool.used;
        pool.used_high = pool.used_high.max(pool.used);
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
    }
    Ok(base)
}

/// Takes managed memory that was freed off the figures of the pool that it is from, if it is from one.
pub(crate) fn give_managed(driver: &Driver, state: &mut State, block: &Block) {
    let Some(pool) = state.pools.get_mut(&block.count) else { return };
    pool.blocks -= 1;
    pool.used -= held_by(block.size).unwrap_or(0);
    pool.reserved = pool.used;
    forget_if_empty(driver, state, block.count);
}

/// A destroyed pool goes with its last block.
fn forget_if_empty(driver: &Driver, state: &mut State, handle: u64) {
    if state.pools.get(&handle).is_some_and(|pool| pool.destroyed && pool.blocks == 0) {
        trim(driver, state, handle, 0);
        state.pools.remove(&handle);
    }
}

/// Gives a block back to its pool that was taken out of the table.
pub(crate) fn give(driver: &Driver, state: &mut State, block: &Block, handle: u64) {
    let size = held_by(block.size).unwrap_or(0);
    driver.process.discharge(block.gpu, Kind::PoolUsed, block.size, size);
    let Some(pool) = state.pools.get_mut(&handle) else { return };
    pool.used -= size;
    pool.blocks -= 1;
    pool.ranges.give(block.base, size);
    forget_if_empty(driver, state, handle);
}
