//! Stream-ordered allocation: pools hold memory of the device and hand blocks out of it.
//!
//! Two figures are kept apart. *Used* is what the program asked for, block by block. *Reserved* is what
//! a pool holds of the device; the driver is asked for it after everything that may have changed it: an
//! allocation, a synchronisation (the moment at which a pool gives back what is above its release
//! threshold), a trim, a synchronous free. Inside a capture an allocation becomes a graph's node and
//! nothing is charged.

mod hold;
mod pressure;
mod table;

use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::claim::{self, Claim};
use super::ledger::{self, Block};
use super::place::Place;
use super::{gpu, graph, place};
use crate::abi_traits::{ByteSize, DevicePtr};
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Bypass, EventKind, Kind, Namespace};
use crate::wiped::{Wiped, Zeroable};

pub(super) use pressure::{pressed, trim};

use hold::Hold;
use pressure::pressed_beside;
use table::{Class, Pool, Pools, Token, pools};

/// The pool that each device's allocations come from at present; 0: ask the driver.
struct Current {
    of_device: [AtomicU64; gpu::ORDINALS],
}

// SAFETY: zero is "ask"; atomics have no destructor.
unsafe impl Zeroable for Current {}

static CURRENT: Wiped<Current> = Wiped::new();

fn forget_current() {
    if let Some(current) = CURRENT.get() {
        for pool in &current.of_device {
            pool.store(0, Ordering::Relaxed);
        }
    }
}

fn current_pool(cx: &Cx<'_>, device: CUdevice) -> Option<u64> {
    let slot = CURRENT.get()?.of_device.get(usize::try_from(device).ok()?)?;
    match slot.load(Ordering::Relaxed) {
        0 => {
            let pool = cx.relaxed_capture(|| cx.driver().current_pool(device))?.addr();
            slot.store(pool, Ordering::Relaxed);
            Some(pool)
        }
        pool => Some(pool),
    }
}

/// `cuMemAllocAsync`.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn alloc<P: DevicePtr, S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytesize: S,
    stream: CUstream,
) -> CUresult {
    // SAFETY: passed on.
    unsafe { allocate(cx, call, dptr, bytesize.bytes(), stream, None) }
}

/// `cuMemAllocFromPoolAsync`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn alloc_from<P: DevicePtr, S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytesize: S,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: passed on.
    unsafe { allocate(cx, call, dptr, bytesize.bytes(), stream, Some(pool.addr())) }
}

/// # Safety
/// `dptr` is the out-parameter of `call`: null, or set when it succeeds.
#[inline(always)]
unsafe fn allocate<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytes: u64,
    stream: CUstream,
    pool: Option<u64>,
) -> CUresult {
    if cx.capturing(stream) {
        let result = call();
        if result.is_ok() {
            cx.bypass(Bypass::Capturing);
            graph::captured_allocation(cx, stream);
        }
        return result;
    }
    let here = place::current(cx);
    if cx.page.quota.is_on() {
        // SAFETY: passed on.
        return unsafe { allocate_limited(cx, call, dptr, bytes, stream, pool, here) };
    }
    let result = call();
    if !result.is_ok() {
        refused(cx, here, bytes, result);
    } else if !dptr.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        handed_out(cx, here, unsafe { *dptr }.addr(), bytes, stream, pool);
    }
    result
}

/// The driver refused a request.
#[cold]
fn refused(cx: &Cx<'_>, here: Option<Place>, bytes: u64, code: CUresult) {
    if let Ok(claim) = Claim::at(cx, here, Kind::PoolUsed, bytes) {
        claim.refused(cx, code);
    }
}

/// As [`allocate`] under a quota.
///
/// # Safety
/// As for [`allocate`].
#[inline(never)]
unsafe fn allocate_limited<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: *mut P,
    bytes: u64,
    stream: CUstream,
    pool: Option<u64>,
    here: Option<Place>,
) -> CUresult {
    let expected = || {
        let handle = pool.or_else(|| current_pool(cx, here?.device))?;
        pools()?.obtain(handle, || here.map(|place| (place.gpu, Class::Device)))
    };
    let hold = match Hold::take(cx, here, expected(), bytes) {
        Ok(hold) => hold,
        Err(code) => return code,
    };
    let result = call();
    if !result.is_ok() {
        if let Some(hold) = hold {
            hold.settle(cx, None);
        }
        refused(cx, here, bytes, result);
    } else if !dptr.is_null() {
        // SAFETY: the driver reported success and so has written the address.
        let address = unsafe { *dptr }.addr();
        let from = handed_out(cx, here, address, bytes, stream, pool);
        if let Some(hold) = hold {
            let gpu = hold.gpu();
            if !hold.settle(cx, from) && take_back(cx, address, stream) {
                let refusal = cx.page.quota.refusal(gpu);
                return claim::refuse(cx, gpu, Kind::PoolUsed, bytes, refusal);
            }
        }
    }
    result
}

/// Gives a block back that made its pool grow past the quota. False: the driver does not take it, and the
/// program keeps it.
#[cold]
#[inline(never)]
fn take_back(cx: &Cx<'_>, address: u64, stream: CUstream) -> bool {
    let key = BlockKey::new(Namespace::Pointer, address);
    let Some(block) = ledger::take(cx, key) else { return false };
    if !cx.relaxed_capture(|| cx.driver().free_async(address, stream)) {
        ledger::put_back(cx, key, block);
        return false;
    }
    let gpu = block.gpu;
    let _ = came_back(cx, key, block);
    trim(cx, gpu);
    true
}

/// Notes a block of a pool.
fn handed_out(
    cx: &Cx<'_>,
    here: Option<Place>,
    address: u64,
    bytes: u64,
    stream: CUstream,
    pool: Option<u64>,
) -> Option<&'static Pool> {
    let known = pools().and_then(|all| {
        let handle = pool.or_else(|| pool_of(cx, here, address, stream))?;
        Some((all, all.obtain(handle, || table::about_pointer(cx, address))?))
    });
    let known = known.and_then(|(all, pool)| Some((all, pool, pool.gpu()?)));
    let Some((all, pool, gpu)) = known else {
        cx.bypass(Bypass::PoolUnknown);
        return None;
    };
    let owner = all.token(pool).0;
    if ledger::add(
        cx,
        BlockKey::new(Namespace::Pointer, address),
        Block::new(gpu, pool.class().block_kind(), bytes, owner),
    ) {
        pool.lend(bytes);
        if pool.class().block_kind().in_quota() {
            cx.page.quota.add(gpu, bytes);
        }
    }
    pool.refresh(cx);
    pressed_beside(cx, Some(pool));
    Some(pool)
}

/// The pool that `cuMemAllocAsync` took a block from: that of the stream's device. The default
/// streams belong to the current context; of any other the driver reports the pool by the block.
fn pool_of(cx: &Cx<'_>, here: Option<Place>, address: u64, stream: CUstream) -> Option<u64> {
    let is_default = stream.is_null() || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if !is_default && let Some(pool) = cx.relaxed_capture(|| cx.driver().pool_of_pointer(address)) {
        return Some(pool.addr());
    }
    let device = match here {
        Some(place) if is_default => place.device,
        _ => cx.relaxed_capture(|| cx.driver().device_of_pointer(address))?,
    };
    current_pool(cx, device)
}

/// `cuMemFreeAsync`: of a pool's block or of a plain one. The pool keeps the memory.
///
/// # Safety
/// The arguments are the program's own of this call.
#[inline(always)]
pub(crate) unsafe fn free<P: DevicePtr>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    dptr: P,
    stream: CUstream,
) -> CUresult {
    if cx.capturing(stream) {
        cx.bypass(Bypass::Capturing);
        return call();
    }
    let key = BlockKey::new(Namespace::Pointer, dptr.addr());
    let Some(block) = ledger::take(cx, key) else {
        let result = call();
        return if dptr.addr() == 0 { result } else { ledger::unknown_free(cx, result) };
    };
    let result = call();
    if result.is_ok() {
        let _ = came_back(cx, key, block);
    } else {
        ledger::put_back(cx, key, block);
    }
    result
}

/// Ends a block: the bytes go back to its pool, where it is one's.
fn came_back(cx: &Cx<'_>, key: BlockKey, block: Block) -> Option<&'static Pool> {
    let pool = pools().and_then(|all| all.of(Token(block.owner))).filter(|_| block.kind == Kind::PoolUsed);
    let bytes = block.bytes;
    ledger::discharge_hot(cx, key, block);
    if let Some(pool) = pool {
        pool.give_back(cx, bytes);
    }
    pool
}

/// `cuMemFree` of a pool's block: it synchronises, so that the pool may give memory back.
pub(super) fn freed_at_once(cx: &Cx<'_>, key: BlockKey, block: Block) {
    if let Some(pool) = came_back(cx, key, block) {
        pool.refresh(cx);
    }
}

/// After a synchronisation: pools give back what they hold above their release threshold.
///
/// # Safety
/// None needed; hooks have this form.
pub(crate) unsafe fn synchronised(cx: &Cx<'_>, result: CUresult) {
    if result.is_ok() {
        pressed(cx);
    }
}

/// After a context was destroyed.
pub(super) fn context_destroyed(cx: &Cx<'_>) {
    forget_current();
    if let Some(all) = pools() {
        for pool in all.each() {
            pool.forget_the_dead(cx, all.token(pool));
        }
    }
}

/// `cuMemPoolCreate`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn create(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    pool: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> CUresult {
    let result = call();
    if result.is_ok() && !pool.is_null() {
        // SAFETY: the driver has read the properties and written the handle, and reported no error.
        let (handle, props) = unsafe { (*pool, props.as_ref()) };
        if let Some(props) = props {
            enter(cx, handle, props.location, Class::of(props.allocType, props.location));
            ledger::pool_event(cx, EventKind::PoolCreated, handle);
        }
    }
    result
}

fn enter(cx: &Cx<'_>, handle: CUmemoryPool, location: CUmemLocation, class: Class) {
    let about = || {
        let place = if location.kind == CU_MEM_LOCATION_TYPE_DEVICE {
            place::of_device(cx, location.id)
        } else {
            place::beside_host(cx)
        };
        place.map(|p| (p.gpu, class))
    };
    match pools().and_then(|all| all.obtain(handle.addr(), about)) {
        Some(pool) => pool.refresh(cx),
        None => cx.bypass(Bypass::PoolUnknown),
    }
}

/// `cuMemPoolDestroy`: what is still in use stays until it is freed.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn destroy(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, pool: CUmemoryPool) -> CUresult {
    let handle = pool.addr();
    // Before the call: the driver may give the handle to the next pool the moment it is free.
    let known = pools().and_then(|all: &Pools| all.find(handle)).filter(|p| p.orphan(handle));
    let result = call();
    if let Some(known) = known {
        if result.is_ok() {
            known.close_if_empty(cx);
        } else {
            known.adopt(handle);
        }
    }
    if result.is_ok() {
        forget_current();
        ledger::pool_event(cx, EventKind::PoolDestroyed, pool);
    }
    result
}

/// `cuMemPoolTrimTo`, `cuMemPoolGetAttribute`, `cuMemPoolSetAttribute`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn touched(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, pool: CUmemoryPool) -> CUresult {
    let result = call();
    if let Some(known) = pools().and_then(|all| all.find(pool.addr())) {
        known.refresh(cx);
    }
    result
}

/// `cuDeviceSetMemPool`, `cuMemSetMemPool`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn current_changed(_cx: &Cx<'_>, call: impl FnOnce() -> CUresult) -> CUresult {
    let result = call();
    // After the call: what another thread looks up meanwhile may be the old pool.
    forget_current();
    result
}

/// `cuDeviceGetDefaultMemPool`, `cuDeviceGetMemPool`: a pool of this device.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn returned(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    pool: *mut CUmemoryPool,
    device: CUdevice,
) -> CUresult {
    let result = call();
    if result.is_ok() && !pool.is_null() {
        let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        // SAFETY: the driver reported success and so has written the handle.
        enter(cx, unsafe { *pool }, location, Class::Device);
    }
    result
}

/// `cuMemGetDefaultMemPool`, `cuMemGetMemPool`: a pool of this place.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn returned_at(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> CUresult {
    let result = call();
    if result.is_ok() && !pool.is_null() {
        // SAFETY: the driver has read the location and written the handle, and reported no error.
        let (handle, location) = unsafe { (*pool, location.as_ref()) };
        if let Some(location) = location {
            enter(cx, handle, *location, Class::of(kind, *location));
        }
    }
    result
}

/// `cuMemPoolImportFromShareableHandle`: another process's pool.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn import(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    pool: *mut CUmemoryPool,
) -> CUresult {
    ledger::seen(cx);
    let result = call();
    if result.is_ok() && !pool.is_null() {
        // SAFETY: the driver reported success and so has written the handle.
        let handle = unsafe { *pool }.addr();
        let about = || place::beside_host(cx).map(|p| (p.gpu, Class::Imported));
        if pools().and_then(|all| all.obtain(handle, about)).is_none() {
            cx.bypass(Bypass::PoolUnknown);
        }
    }
    result
}
