//! Entry points of stream-ordered memory.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::{self, Driver};
use crate::engine::free;
use crate::engine::memory::advice::Place;
use crate::engine::memory::charge::request;
use crate::engine::memory::free::free_block;
use crate::engine::memory::objects::Pool;
use crate::engine::memory::pool::{
    POSIX_FD, current_pool, default_pool, find, managed_pools, new_managed, take, take_managed, trim,
};
use crate::engine::memory::space::Use;
use crate::engine::memory::vmm::GRANULARITY;
use crate::engine::stream::offer::{self, Operation, Recorded};
use crate::engine::stream::sync;
use crate::util::ffi::{Answer, In, Out};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

/// One stream-ordered allocation, from `pool` or from the current pool of the stream's device.
fn allocate(
    driver: &'static Driver,
    out: Out<CUdeviceptr>,
    bytes: u64,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> Answer {
    out.required()?;
    let current = driver.current()?;
    sync::check(driver, &current, stream)?;
    let context = sync::context_of(driver, &current, stream)?;
    let (handle, device, gpu, managed) = {
        let mut state = driver.memory.lock();
        let handle = match pool {
            Some(pool) => pool.addr(),
            None => current_pool(driver, &mut state, context.device)?,
        };
        let pool = find(&mut state, CUmemoryPool(handle as *mut c_void))?;
        if pool.imported.is_some() {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        (handle, pool.device, pool.gpu, pool.managed.is_some())
    };
    if managed {
        // An allocation node of managed memory is not modelled.
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        if state.admit(key)?.is_some() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        drop(state);
        return out.set(take_managed(driver, &context, handle, bytes)?);
    }
    // 0 bytes are an allocation too, with an address of its own.
    match offer::offer(driver, &current, stream, Operation::Alloc { device, bytes: bytes.max(1) })? {
        Recorded::At(address) => return out.set(address),
        Recorded::Yes => return out.set(0),
        Recorded::No => {}
    }
    request(driver, gpu, bytes)?;
    out.set(take(driver, &mut driver.memory.lock(), &context, handle, bytes)?)
}

/// Location of a pool's memory, by the pool's properties or by the arguments of a call.
enum At {
    Device(CUdevice),
    /// Managed memory, since CUDA 13.0, which may prefer no location.
    Managed(Place),
}

impl At {
    /// Pools on the host are not modelled, and the device's attributes say so.
    fn of(driver: &Driver, location: CUmemLocation, kind: CUmemAllocationType) -> Answer<Self> {
        let device = match location.kind {
            CU_MEM_LOCATION_TYPE_DEVICE => {
                Some(driver.device(location.id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
            }
            _ => None,
        };
        match (kind, device) {
            (CU_MEM_ALLOCATION_TYPE_PINNED, Some(device)) => Ok(Self::Device(device.ordinal)),
            (CU_MEM_ALLOCATION_TYPE_MANAGED, _) if driver.version() >= 13000 => match location.kind {
                CU_MEM_LOCATION_TYPE_INVALID | CU_MEM_LOCATION_TYPE_HOST => {
                    Ok(Self::Managed((location.kind.0, 0)))
                }
                CU_MEM_LOCATION_TYPE_DEVICE | CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                    Ok(Self::Managed((location.kind.0, location.id)))
                }
                _ => Err(CUDA_ERROR_INVALID_VALUE),
            },
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The default pool, or the current one.
    fn pool(self, driver: &Driver, default: bool) -> Answer<CUmemoryPool> {
        let mut state = driver.memory.lock();
        let handle = match self {
            Self::Device(device) if default => default_pool(driver, &mut state, device)?,
            Self::Device(device) => current_pool(driver, &mut state, device)?,
            Self::Managed(place) => {
                let pools = managed_pools(driver, &mut state, place);
                pools.current.filter(|_| !default).or(pools.default).ok_or(CUDA_ERROR_INVALID_VALUE)?
            }
        };
        Ok(handle_of(handle))
    }

    fn set_current(self, driver: &Driver, pool: CUmemoryPool) -> Answer {
        let mut state = driver.memory.lock();
        let given = find(&mut state, pool)?;
        let (device, place) = (given.device, given.managed);
        match self {
            Self::Device(at) if place.is_none() && device == at => {
                state.device_pools[at as usize].current = Some(pool.addr())
            }
            Self::Managed(at) if place == Some(at) => {
                managed_pools(driver, &mut state, at).current = Some(pool.addr())
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

fn pool_at(driver: &Driver, out: Out<CUmemoryPool>, at: Answer<At>, default: bool) -> Answer {
    out.required()?;
    out.set(at?.pool(driver, default)?)
}

fn device(driver: &Driver, device: CUdevice) -> Answer<At> {
    driver.device(device).map(|device| At::Device(device.ordinal))
}

/// A new pool as its properties describe it. The largest size is rounded up to whole granules.
fn create(driver: &Driver, props: &CUmemPoolProps) -> Answer<Pool> {
    let max_size =
        (props.maxSize as u64).checked_next_multiple_of(GRANULARITY).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if props.handleTypes & !POSIX_FD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match At::of(driver, props.location, props.allocType)? {
        At::Device(device) => {
            let device = driver.device(device)?;
            if !driver.gpu_spec(device).memory_pools {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            Ok(Pool::new(device.ordinal, device.gpu, max_size, props.handleTypes))
        }
        // Other processes cannot open managed memory.
        At::Managed(place) if props.handleTypes == 0 => Ok(new_managed(driver, place, max_size)),
        At::Managed(_) => Err(CUDA_ERROR_INVALID_VALUE),
    }
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
        sync::check(driver, &context, stream)?;
        if address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if offer::offer(driver, &context, stream, Operation::Free { address })? != Recorded::No {
            return Ok(());
        }
        let mut guard = driver.memory.lock();
        let state = &mut *guard;
        match state.blocks.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.kind {
            Use::Special => {
                drop(guard);
                return free::free_special(driver, address);
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
    fn cuDeviceGetDefaultMemPool(out: Out<CUmemoryPool>, of: CUdevice) |driver| {
        pool_at(driver, out, device(driver, of), true)
    }

    /// A device's current pool.
    fn cuDeviceGetMemPool(out: Out<CUmemoryPool>, of: CUdevice) |driver| {
        pool_at(driver, out, device(driver, of), false)
    }

    /// Sets a device's current pool.
    fn cuDeviceSetMemPool(of: CUdevice, pool: CUmemoryPool) |driver| {
        device(driver, of)?.set_current(driver, pool)
    }

    /// The default pool of a location.
    fn cuMemGetDefaultMemPool(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: CUmemAllocationType) |driver| {
        pool_at(driver, out, At::of(driver, location.get()?, kind), true)
    }

    /// The current pool of a location.
    fn cuMemGetMemPool(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: CUmemAllocationType) |driver| {
        pool_at(driver, out, At::of(driver, location.get()?, kind), false)
    }

    /// Sets the current pool of a location.
    fn cuMemSetMemPool(location: In<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool) |driver| {
        At::of(driver, location.get()?, kind)?.set_current(driver, pool)
    }

    /// Makes a pool.
    fn cuMemPoolCreate(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) |driver| {
        out.required()?;
        let pool = create(driver, &props.get()?)?;
        let handle = driver.handles.next();
        driver.memory.lock().pools.insert(handle, pool);
        out.set(handle_of(handle))
    }

    /// Ends a pool; blocks that are still out keep their memory until they are freed.
    fn cuMemPoolDestroy(pool: CUmemoryPool) |driver| {
        let mut state = driver.memory.lock();
        let state = &mut *state;
        let handle = pool.addr();
        let places = state.device_pools.iter().chain(state.managed_pools.values());
        if places.map(|place| place.default).any(|default| default == Some(handle)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = find(state, pool)?;
        pool.destroyed = true;
        let empty = pool.blocks == 0;
        if let Some(id) = pool.offered {
            driver.process.withdraw(id);
        }
        for device in state.device_pools.iter_mut().chain(state.managed_pools.values_mut()) {
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
            if !own && !driver::can_access(driver, device, pool.device)? {
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
