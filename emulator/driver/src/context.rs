//! Contexts: primary ones, own ones, and the stack of each thread.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::ffi::{Answer, In, Out};
use crate::state::{self, Driver, lock};
use crate::{memory, stream};

/// API version that contexts report: the one since CUDA 3.2.
const API_VERSION: c_uint = 3020;
/// Flag bits of a context: scheduling, host mapping, local memory, core dumps, sync memops.
const FLAG_MASK: c_uint = 0xff;
/// `CU_CTX_SCHED_MASK`.
const SCHEDULING: c_uint = 0x07;

/// A context.
pub struct Context {
    /// Handle.
    pub handle: CUcontext,
    /// Number that no other context of this process had.
    pub id: u64,
    /// Device ordinal.
    pub device: CUdevice,
    /// GPU on the machine.
    pub gpu: usize,
    /// Whether it is the device's primary context.
    pub primary: bool,
    flags: AtomicU32,
    destroyed: AtomicBool,
    broken: AtomicU32,
    limits: Mutex<BTreeMap<c_uint, usize>>,
    peers: Mutex<HashSet<CUdevice>>,
    configs: Mutex<(c_uint, c_uint)>,
}

impl Context {
    /// Whether it can be worked with.
    ///
    /// # Errors
    /// CUDA_ERROR_CONTEXT_IS_DESTROYED, or the error that broke it.
    pub fn check(&self) -> Answer {
        if self.destroyed.load(Relaxed) {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        match self.broken.load(Relaxed) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// Whether it was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Relaxed)
    }

    /// Breaks it: every call on it answers `code` from now on.
    pub fn break_with(&self, code: CUresult) {
        self.broken.store(code.0, Relaxed);
    }

    /// Whether memory of another device may be used from here.
    pub fn can_reach(&self, device: CUdevice) -> bool {
        device == self.device || lock(&self.peers).contains(&device)
    }

    /// Flags.
    pub fn flags(&self) -> c_uint {
        self.flags.load(Relaxed)
    }

    /// A limit's value; `None` for limits that this architecture lacks.
    pub fn limit(&self, limit: c_uint) -> Option<usize> {
        lock(&self.limits).get(&limit).copied()
    }
}

thread_local! {
    // Never dropped, and so still there when the program's own thread-local destructors call the driver.
    static STACK: RefCell<ManuallyDrop<Vec<Arc<Context>>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

fn with_stack<T>(work: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> Option<T> {
    STACK.try_with(|stack| work(&mut stack.borrow_mut())).ok()
}

/// The calling thread's context, destroyed or not; `None` where there is none.
pub fn current() -> Option<Arc<Context>> {
    with_stack(|stack| stack.last().cloned()).flatten()
}

fn find(driver: &Driver, handle: CUcontext) -> Answer<Arc<Context>> {
    driver.contexts.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The context of a handle, or the current one for the null handle.
///
/// # Errors
/// CUDA_ERROR_INVALID_CONTEXT.
pub fn given_or_current(driver: &Driver, handle: CUcontext) -> Answer<Arc<Context>> {
    if handle.is_null() { driver.current() } else { find(driver, handle) }
}

/// A device's primary context, made if there is none, without a reference being taken.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY if the device has no room for a context.
pub fn make(driver: &Driver, ordinal: CUdevice, flags: c_uint, primary: bool) -> Answer<Arc<Context>> {
    let device = driver.device(ordinal)?;
    let bytes = driver.gpu_spec(device).context_bytes();
    if driver.process.charge(device.gpu, Kind::Context, bytes, bytes).is_err() {
        driver.process.failed(device.gpu, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    driver.process.context(device.gpu, true);
    let handle = state::new_handle();
    let context = Arc::new(Context {
        handle: CUcontext(handle as *mut c_void),
        id: driver.machine.unique(),
        device: ordinal,
        gpu: device.gpu,
        primary,
        flags: AtomicU32::new(flags),
        destroyed: AtomicBool::new(false),
        broken: AtomicU32::new(0),
        limits: Mutex::new(default_limits(driver, ordinal)),
        peers: Mutex::new(HashSet::new()),
        configs: Mutex::new((0, 0)),
    });
    driver.contexts.insert(handle, context.clone());
    stream::context_created(driver, &context);
    Ok(context)
}

/// Ends a context: its streams, modules and memory go with it.
pub fn end(driver: &Driver, context: &Arc<Context>) {
    if context.destroyed.swap(true, Relaxed) {
        return;
    }
    driver.contexts.remove(context.handle.addr());
    stream::context_destroyed(driver, context);
    crate::code::context_destroyed(driver, context);
    memory::context_destroyed(driver, context);
    if let Some(spec) = driver.machine.gpu(context.gpu) {
        driver.process.discharge(context.gpu, Kind::Context, spec.context_bytes(), spec.context_bytes());
    }
    driver.process.context(context.gpu, false);
}

/// Stack, printf buffer, malloc heap, the two of dynamic parallelism, L2 fetch granularity and
/// persisting lines.
fn default_limits(driver: &Driver, ordinal: CUdevice) -> BTreeMap<c_uint, usize> {
    let (major, _) = driver.device(ordinal).map_or((9, 0), |d| driver.gpu_spec(d).capability());
    let mut limits = BTreeMap::from([(0, 1024), (1, 1 << 20), (2, 8 << 20), (3, 2), (4, 2048)]);
    if major >= 8 {
        limits.insert(5, 64);
        limits.insert(6, 0);
    }
    limits
}

fn create(driver: &Driver, out: Out<CUcontext>, flags: c_uint, device: CUdevice) -> Answer {
    out.required()?;
    if flags & !FLAG_MASK != 0 || (flags & SCHEDULING).count_ones() > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let context = make(driver, device, flags, false)?;
    out.set(context.handle)?;
    with_stack(|stack| stack.push(context)).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

entry_points! {
    /// Makes a context and makes it current.
    fn cuCtxCreate_v2(out: Out<CUcontext>, flags: c_uint, device: CUdevice) |driver| {
        create(driver, out, flags, device)
    }

    /// As `cuCtxCreate_v2`; the share of SMs that `params` may ask for is not modelled.
    fn cuCtxCreate_v3(
        out: Out<CUcontext>, params: In<u64>, count: c_int, flags: c_uint, device: CUdevice,
    ) |driver| {
        if count < 0 || (count > 0 && params.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        create(driver, out, flags, device)
    }

    /// As `cuCtxCreate_v2`; the parameters are not modelled.
    fn cuCtxCreate_v4(out: Out<CUcontext>, params: In<u64>, flags: c_uint, device: CUdevice) |driver| {
        let _ = params;
        create(driver, out, flags, device)
    }

    /// Ends a context and takes it off the calling thread's stack if it is on top.
    fn cuCtxDestroy_v2(context: CUcontext) |driver| {
        let context = find(driver, context)?;
        if context.primary {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        end(driver, &context);
        with_stack(|stack| {
            if stack.last().is_some_and(|top| Arc::ptr_eq(top, &context)) {
                stack.pop();
            }
        });
        Ok(())
    }

    /// Takes another reference to the current context, by the oldest interface.
    fn cuCtxAttach(out: Out<CUcontext>, flags: c_uint) |driver| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(driver.current()?.handle)
    }

    /// Gives a reference of `cuCtxAttach` back; contexts here end by `cuCtxDestroy` only.
    fn cuCtxDetach(context: CUcontext) |driver| {
        find(driver, context).map(drop)
    }

    /// Makes a context current, over the one that was.
    fn cuCtxPushCurrent_v2(context: CUcontext) |driver| {
        let context = find(driver, context)?;
        with_stack(|stack| stack.push(context)).ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Takes the current context off the stack.
    fn cuCtxPopCurrent_v2(out: Out<CUcontext>) |_| {
        let context = with_stack(|stack| stack.pop()).flatten().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        out.set_if_wanted(context.handle);
        Ok(())
    }

    /// Replaces the current context; null takes it off.
    fn cuCtxSetCurrent(context: CUcontext) |driver| {
        let context = if context.is_null() { None } else { Some(find(driver, context)?) };
        with_stack(|stack| {
            stack.pop();
            stack.extend(context);
        });
        Ok(())
    }

    /// The current context; null if there is none.
    fn cuCtxGetCurrent(out: Out<CUcontext>) |_| {
        out.set(current().map_or(CUcontext::NULL, |c| c.handle))
    }

    /// The current context's device.
    fn cuCtxGetDevice(out: Out<CUdevice>) |_| {
        out.required()?;
        out.set(current().ok_or(CUDA_ERROR_INVALID_CONTEXT)?.device)
    }

    /// A context's device.
    fn cuCtxGetDevice_v2(out: Out<CUdevice>, context: CUcontext) |driver| {
        out.required()?;
        out.set(given_or_current(driver, context)?.device)
    }

    /// A context's number.
    fn cuCtxGetId(context: CUcontext, out: Out<u64>) |driver| {
        out.required()?;
        out.set(given_or_current(driver, context)?.id)
    }

    /// Version of the interface that made a context.
    fn cuCtxGetApiVersion(context: CUcontext, out: Out<c_uint>) |driver| {
        out.required()?;
        given_or_current(driver, context)?;
        out.set(API_VERSION)
    }

    /// The current context's flags.
    fn cuCtxGetFlags(out: Out<c_uint>) |driver| {
        out.set(driver.current()?.flags())
    }

    /// Changes the current context's flags.
    fn cuCtxSetFlags(flags: c_uint) |driver| {
        if flags & !FLAG_MASK != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver.current()?.flags.store(flags, Relaxed);
        Ok(())
    }

    /// A limit of the current context.
    fn cuCtxGetLimit(out: Out<usize>, limit: c_uint) |driver| {
        out.required()?;
        let context = driver.current()?;
        if limit > 8 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(context.limit(limit).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?)
    }

    /// Sets a limit of the current context.
    fn cuCtxSetLimit(limit: c_uint, value: usize) |driver| {
        let context = driver.current()?;
        if limit > 8 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut limits = lock(&context.limits);
        let place = limits.get_mut(&limit).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?;
        *place = match limit {
            // Stack: a multiple of 16. Fetch granularity: 32, 64 or 128.
            0 => value.next_multiple_of(16),
            5 => value.clamp(32, 128).next_power_of_two(),
            _ => value,
        };
        Ok(())
    }

    /// Range of stream priorities: 0 to -5.
    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |driver| {
        driver.current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    /// Preferred split of L1 and shared memory.
    fn cuCtxGetCacheConfig(out: Out<c_uint>) |driver| {
        out.set(lock(&driver.current()?.configs).0)
    }

    /// Sets the preferred split of L1 and shared memory.
    fn cuCtxSetCacheConfig(config: c_uint) |driver| {
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        lock(&driver.current()?.configs).0 = config;
        Ok(())
    }

    /// Width of shared memory banks.
    fn cuCtxGetSharedMemConfig(out: Out<c_uint>) |driver| {
        out.set(lock(&driver.current()?.configs).1)
    }

    /// Sets the width of shared memory banks.
    fn cuCtxSetSharedMemConfig(config: c_uint) |driver| {
        if config > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        lock(&driver.current()?.configs).1 = config;
        Ok(())
    }

    /// Makes persisting L2 lines ordinary again: nothing to do here.
    fn cuCtxResetPersistingL2Cache() |driver| {
        driver.current().map(drop)
    }

    /// Share of the SMs that the context has: all.
    fn cuCtxGetExecAffinity(out: Out<[c_uint; 2]>, kind: c_uint) |driver| {
        let context = driver.current()?;
        if kind != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set([kind, driver.gpu_spec(driver.device(context.device)?).sms])
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize() |driver| {
        synchronize(driver, &driver.current()?)
    }

    /// Waits for all work of a context.
    fn cuCtxSynchronize_v2(context: CUcontext) |driver| {
        let context = given_or_current(driver, context)?;
        context.check()?;
        synchronize(driver, &context)
    }

    /// Lets the current context use memory of another one's device.
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) |driver| {
        let context = driver.current()?;
        let peer = find(driver, peer)?;
        if flags != 0 || Arc::ptr_eq(&peer, &context) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !crate::device::can_access(driver, context.device, peer.device)? {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if !lock(&context.peers).insert(peer.device) {
            return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        Ok(())
    }

    /// Ends what `cuCtxEnablePeerAccess` began.
    fn cuCtxDisablePeerAccess(peer: CUcontext) |driver| {
        let context = driver.current()?;
        let peer = find(driver, peer)?;
        if !lock(&context.peers).remove(&peer.device) {
            return Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        Ok(())
    }
}

fn synchronize(driver: &Driver, context: &Arc<Context>) -> Answer {
    stream::synchronize_context(driver, context)?;
    memory::synchronized(driver, context.device);
    Ok(())
}

/// The primary context of a device: how many hold it, and its flags while it does not exist.
#[derive(Default)]
pub struct Primary {
    context: Option<Arc<Context>>,
    references: u64,
    flags: c_uint,
}

/// The device's primary context, if it is active.
pub fn primary(driver: &Driver, ordinal: CUdevice) -> Option<Arc<Context>> {
    lock(&driver.device(ordinal).ok()?.primary).context.clone()
}

entry_points! {
    /// Takes a reference to a device's primary context, which is made if it does not exist.
    fn cuDevicePrimaryCtxRetain(out: Out<CUcontext>, ordinal: CUdevice) |driver| {
        out.required()?;
        let mut primary = lock(&driver.device(ordinal)?.primary);
        let context = match primary.context.clone() {
            Some(context) => context,
            None => {
                let context = make(driver, ordinal, primary.flags, true)?;
                primary.context = Some(context.clone());
                context
            }
        };
        primary.references += 1;
        out.set(context.handle)
    }

    /// Gives a reference back; with the last one the context ends.
    fn cuDevicePrimaryCtxRelease_v2(ordinal: CUdevice) |driver| {
        let ended = {
            let mut primary = lock(&driver.device(ordinal)?.primary);
            if primary.references == 0 {
                return Err(CUDA_ERROR_INVALID_CONTEXT);
            }
            primary.references -= 1;
            if primary.references == 0 { primary.context.take() } else { None }
        };
        if let Some(context) = ended {
            end(driver, &context);
        }
        Ok(())
    }

    /// Ends the primary context whoever holds it; references stay counted.
    fn cuDevicePrimaryCtxReset_v2(ordinal: CUdevice) |driver| {
        let ended = lock(&driver.device(ordinal)?.primary).context.take();
        if let Some(context) = ended {
            end(driver, &context);
        }
        Ok(())
    }

    /// Flags of the primary context, and whether it exists.
    fn cuDevicePrimaryCtxGetState(ordinal: CUdevice, flags: Out<c_uint>, active: Out<c_int>) |driver| {
        let primary = lock(&driver.device(ordinal)?.primary);
        flags.required()?;
        active.required()?;
        flags.set(primary.context.as_ref().map_or(primary.flags, |c| c.flags()))?;
        active.set(c_int::from(primary.context.is_some()))
    }

    /// Sets the flags of the primary context, now or for when it is made.
    fn cuDevicePrimaryCtxSetFlags_v2(ordinal: CUdevice, flags: c_uint) |driver| {
        if flags & !FLAG_MASK != 0 || (flags & SCHEDULING).count_ones() > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut primary = lock(&driver.device(ordinal)?.primary);
        primary.flags = flags;
        if let Some(context) = &primary.context {
            context.flags.store(flags, Relaxed);
        }
        Ok(())
    }
}
