//! Stream-ordered memory: pools, and allocations from them.
//!
//! A pool grows in steps of [`STEP`] (in steps of 2 MiB where that does not fit), and reuses what was
//! freed at once, in any stream. What is above the release threshold goes back to the device when a
//! stream, an event or a context is synchronised, in whole chunks.

use core::ffi::{c_int, c_uint, c_void};
use std::collections::HashMap;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind, ObjectId};

use crate::capture::{self, Operation, Recorded};
use crate::context::Context;
use crate::ffi::{Answer, In, Out};
use crate::memory::device::ALIGNMENT;
use crate::memory::ranges::Ranges;
use crate::memory::space::{Block, Use};
use crate::memory::{State, charge, free_block, request};
use crate::state::{self, Driver};
use crate::stream;

/// Bytes by which a pool grows at least.
pub const STEP: u64 = 32 << 20;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const POSIX_FD: c_uint = 1;

/// A pool.
pub struct Pool {
    device: CUdevice,
    gpu: usize,
    ranges: Ranges,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    /// Bytes that it keeps at a synchronisation.
    pub threshold: u64,
    reuse: [c_int; 3],
    max_size: u64,
    access: HashMap<CUdevice, u32>,
    handle_types: u32,
    blocks: u64,
    destroyed: bool,
    /// Name of the pool that it stands for, if it is another process's.
    pub(super) imported: Option<ObjectId>,
    /// Name under which other processes know it.
    pub(super) offered: Option<ObjectId>,
}

/// A device's pools.
#[derive(Default)]
pub struct DevicePools {
    default: Option<u64>,
    current: Option<u64>,
}

impl Pool {
    pub(super) fn new(device: CUdevice, gpu: usize, max_size: u64, handle_types: u32) -> Self {
        Self {
            device,
            gpu,
            ranges: Ranges::default(),
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            threshold: 0,
            reuse: [1; 3],
            max_size,
            access: HashMap::new(),
            handle_types,
            blocks: 0,
            destroyed: false,
            imported: None,
            offered: None,
        }
    }

    /// Device ordinal.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn gpu(&self) -> usize {
        self.gpu
    }

    pub(super) fn handle_types(&self) -> u32 {
        self.handle_types
    }
}

/// The default pool of a device, made at the first question.
fn default_pool(driver: &Driver, state: &mut State, device: CUdevice) -> Answer<u64> {
    let gpu = driver.device(device)?.gpu;
    if !driver.machine.gpu(gpu).is_some_and(|g| g.memory_pools) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if let Some(handle) = state.device_pools[device as usize].default {
        return Ok(handle);
    }
    let handle = state::new_handle();
    state.pools.insert(handle, Pool::new(device, gpu, 0, 0));
    state.device_pools[device as usize].default = Some(handle);
    Ok(handle)
}

fn current_pool(driver: &Driver, state: &mut State, device: CUdevice) -> Answer<u64> {
    let default = default_pool(driver, state, device)?;
    Ok(state.device_pools[device as usize].current.unwrap_or(default))
}

pub(super) fn find(state: &mut State, pool: CUmemoryPool) -> Answer<&mut Pool> {
    state.pools.get_mut(&pool.addr()).filter(|p| !p.destroyed).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Gives free chunks back to the device, as long as `keep` bytes stay.
fn trim(driver: &Driver, state: &mut State, handle: u64, keep: u64) -> u64 {
    let Some(pool) = state.pools.get_mut(&handle) else { return 0 };
    if pool.reserved <= keep || pool.imported.is_some() {
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
pub(super) fn trim_device(
    driver: &Driver,
    state: &mut State,
    device: CUdevice,
    keep: impl Fn(&Pool) -> u64,
) -> u64 {
    let pools: Vec<(u64, u64)> =
        state.pools.iter().filter(|(_, p)| p.device == device).map(|(h, p)| (*h, keep(p))).collect();
    pools.into_iter().map(|(handle, keep)| trim(driver, state, handle, keep)).sum()
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
fn take(driver: &Driver, state: &mut State, context: &Arc<Context>, handle: u64, bytes: u64) -> Answer<u64> {
    let size = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
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

/// Gives a block back to its pool that was taken out of the table.
pub(super) fn give(driver: &Driver, state: &mut State, block: &Block, handle: u64) {
    let size = block.size.next_multiple_of(ALIGNMENT);
    driver.process.discharge(block.gpu, Kind::PoolUsed, block.size, size);
    let Some(pool) = state.pools.get_mut(&handle) else { return };
    pool.used -= size;
    pool.blocks -= 1;
    pool.ranges.give(block.base, size);
    // A destroyed pool goes with its last block.
    if pool.destroyed && pool.blocks == 0 {
        trim(driver, state, handle, 0);
        state.pools.remove(&handle);
    }
}

/// One stream-ordered allocation, from `pool` or from the current pool of the stream's device.
fn allocate(
    driver: &Driver,
    out: Out<CUdeviceptr>,
    bytes: u64,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> Answer {
    out.required()?;
    let current = driver.current()?;
    stream::check(driver, &current, stream)?;
    let context = stream::context_of(driver, &current, stream)?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (handle, device, gpu) = {
        let mut state = driver.memory.lock();
        let handle = match pool {
            Some(pool) => pool.addr(),
            None => current_pool(driver, &mut state, context.device)?,
        };
        let pool = find(&mut state, CUmemoryPool(handle as *mut c_void))?;
        if pool.imported.is_some() {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        (handle, pool.device, pool.gpu)
    };
    match capture::offer(driver, &current, stream, Operation::Alloc { device, bytes })? {
        Recorded::At(address) => return out.set(address),
        Recorded::Yes => return out.set(0),
        Recorded::No => {}
    }
    request(driver, gpu, bytes)?;
    out.set(take(driver, &mut driver.memory.lock(), &context, handle, bytes)?)
}

fn checked_props(driver: &Driver, props: &CUmemPoolProps) -> Answer<(CUdevice, usize)> {
    let location = props.location;
    // Pools on the host are not modelled, and the device's attributes say so.
    if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if props.handleTypes & !POSIX_FD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let device = driver.device(location.id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if !driver.gpu_spec(device).memory_pools {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok((device.ordinal, device.gpu))
}

/// The device of a location that names one for pinned memory.
fn pool_device(location: In<CUmemLocation>, kind: CUmemAllocationType) -> Answer<CUdevice> {
    let location = location.get()?;
    if location.kind != CU_MEM_LOCATION_TYPE_DEVICE || kind != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(location.id)
}

fn set_current(driver: &Driver, device: CUdevice, pool: CUmemoryPool) -> Answer {
    driver.device(device)?;
    let mut state = driver.memory.lock();
    if find(&mut state, pool)?.device != device {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    state.device_pools[device as usize].current = Some(pool.addr());
    Ok(())
}

fn handle_of(handle: u64) -> CUmemoryPool {
    CUmemoryPool(handle as *mut c_void)
}

entry_points! {
    /// Takes memory in stream order from the current pool.
    fn cuMemAllocAsync(out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) |driver| {
        allocate(driver, out, bytes as u64, None, stream)
    }

    /// Takes memory in stream order from a pool.
    fn cuMemAllocFromPoolAsync(out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) |driver| {
        allocate(driver, out, bytes as u64, Some(pool), stream)
    }

    /// Frees memory in stream order.
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) |driver| {
        let context = driver.current()?;
        stream::check(driver, &context, stream)?;
        if address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if capture::offer(driver, &context, stream, Operation::Free { address })? != Recorded::No {
            return Ok(());
        }
        let mut guard = driver.memory.lock();
        let state = &mut *guard;
        match state.blocks.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.kind {
            Use::Special => {
                drop(guard);
                return super::device::free_special(driver, address);
            }
            // An imported pool allocation is freed like a local one.
            Use::Pool(_) | Use::Device | Use::Managed | Use::Imported(_) => {}
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        if let Some(block) = state.blocks.remove(address) {
            if let Use::Imported(id) = block.kind {
                state.opened.remove(&id);
            }
            free_block(driver, state, &block);
        }
        Ok(())
    }

    /// A device's default pool.
    fn cuDeviceGetDefaultMemPool(out: Out<CUmemoryPool>, device: CUdevice) |driver| {
        out.required()?;
        out.set(handle_of(default_pool(driver, &mut driver.memory.lock(), device)?))
    }

    /// A device's current pool.
    fn cuDeviceGetMemPool(out: Out<CUmemoryPool>, device: CUdevice) |driver| {
        out.required()?;
        out.set(handle_of(current_pool(driver, &mut driver.memory.lock(), device)?))
    }

    /// Sets a device's current pool.
    fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) |driver| {
        set_current(driver, device, pool)
    }

    /// The default pool of a location.
    fn cuMemGetDefaultMemPool(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: CUmemAllocationType) |driver| {
        out.required()?;
        let device = pool_device(location, kind)?;
        out.set(handle_of(default_pool(driver, &mut driver.memory.lock(), device)?))
    }

    /// The current pool of a location.
    fn cuMemGetMemPool(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: CUmemAllocationType) |driver| {
        out.required()?;
        let device = pool_device(location, kind)?;
        out.set(handle_of(current_pool(driver, &mut driver.memory.lock(), device)?))
    }

    /// Sets the current pool of a location.
    fn cuMemSetMemPool(location: In<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool) |driver| {
        set_current(driver, pool_device(location, kind)?, pool)
    }

    /// Makes a pool.
    fn cuMemPoolCreate(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) |driver| {
        out.required()?;
        let props = props.get()?;
        let (device, gpu) = checked_props(driver, &props)?;
        let handle = state::new_handle();
        let pool = Pool::new(device, gpu, props.maxSize as u64, props.handleTypes);
        driver.memory.lock().pools.insert(handle, pool);
        out.set(handle_of(handle))
    }

    /// Ends a pool; blocks that are still out keep their memory until they are freed.
    fn cuMemPoolDestroy(pool: CUmemoryPool) |driver| {
        let mut state = driver.memory.lock();
        let state = &mut *state;
        let handle = pool.addr();
        if state.device_pools.iter().any(|d| d.default == Some(handle)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = find(state, pool)?;
        pool.destroyed = true;
        let empty = pool.blocks == 0;
        if let Some(id) = pool.offered {
            driver.process.withdraw(id);
        }
        for device in &mut state.device_pools {
            device.current = device.current.filter(|current| *current != handle);
        }
        trim(driver, state, handle, 0);
        if empty {
            state.pools.remove(&handle);
        }
        Ok(())
    }

    /// Gives memory that is not in use back to the device.
    fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) |driver| {
        let mut state = driver.memory.lock();
        find(&mut state, pool)?;
        trim(driver, &mut state, pool.addr(), keep as u64);
        Ok(())
    }

    /// An attribute of a pool: `int` for the three about reuse, else 64 bits.
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: Out<c_void>) |driver| {
        let mut state = driver.memory.lock();
        let pool = find(&mut state, pool)?;
        let wide = match CUmemPool_attribute(attribute) {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                return value.cast::<c_int>().set(pool.reuse[attribute as usize - 1]);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.reserved,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.reserved_high,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used_high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        value.cast::<u64>().set(wide)
    }

    /// Sets an attribute of a pool; high marks can be set to 0 only.
    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: In<c_int>) |driver| {
        let mut state = driver.memory.lock();
        let pool = find(&mut state, pool)?;
        let wide = || value.cast::<u64>().get();
        match CUmemPool_attribute(attribute) {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => pool.reuse[attribute as usize - 1] = value.get()?,
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold = wide()?,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if wide()? == 0 => pool.reserved_high = pool.reserved,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if wide()? == 0 => pool.used_high = pool.used,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    /// Lets other devices use a pool's memory.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: In<CUmemAccessDesc>, count: usize) |driver| {
        let list = list.list(count)?;
        let mut state = driver.memory.lock();
        let pool = find(&mut state, pool)?;
        for entry in list {
            if entry.location.kind != CU_MEM_LOCATION_TYPE_DEVICE || !matches!(entry.flags, 0 | 1 | READ_WRITE) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let device = entry.location.id;
            driver.device(device)?;
            let own = device == pool.device;
            if own && entry.flags == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if !own && !crate::device::can_access(driver, device, pool.device)? {
                return Err(CUDA_ERROR_INVALID_DEVICE);
            }
            pool.access.insert(device, entry.flags);
        }
        Ok(())
    }

    /// Rights of a location to a pool's memory.
    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: CUmemoryPool, location: In<CUmemLocation>) |driver| {
        flags.required()?;
        let location = location.get()?;
        if location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver.device(location.id)?;
        let mut state = driver.memory.lock();
        let pool = find(&mut state, pool)?;
        let own = if location.id == pool.device { READ_WRITE } else { 0 };
        flags.set(pool.access.get(&location.id).copied().unwrap_or(own))
    }
}
