//! Making, finding and ending contexts.

use core::ffi::{c_uint, c_void};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;
use radrm_emulator_machine::Charge;

use crate::engine::code::module;
use crate::engine::context::{Context, Current};
use crate::engine::driver::Driver;
use crate::engine::green::{Descriptor, Green};
use crate::engine::memory::free;
use crate::engine::stream::sync;
use crate::models::resource::SM;
use crate::util::ffi::Answer;
use crate::util::sync::lock;

pub(crate) fn find(driver: &'static Driver, handle: CUcontext) -> Answer<Arc<Context>> {
    find_part(driver, handle).map(|found| found.context)
}

/// The context of a handle; for the view of a green context the primary one with that part of it.
pub(crate) fn find_part(driver: &'static Driver, handle: CUcontext) -> Answer<Current> {
    let green = driver.greens.by_view.get(handle.addr());
    let context = driver.contexts.get(green.as_ref().map_or(handle.addr(), |green| green.context));
    Ok(Current { context: context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?, green })
}

/// As [`given_or_current`], with the part of the context that a green context is.
///
/// # Errors
/// As [`Driver::current_part`].
pub(crate) fn given_or_current_part(driver: &'static Driver, handle: CUcontext) -> Answer<Current> {
    if handle.is_null() {
        return driver.current_part().map(|(context, green)| Current { context, green });
    }
    find_part(driver, handle)
}

/// The context of a handle, or the current one for the null handle.
///
/// # Errors
/// CUDA_ERROR_INVALID_CONTEXT.
pub fn given_or_current(driver: &'static Driver, handle: CUcontext) -> Answer<Arc<Context>> {
    if handle.is_null() { driver.current() } else { find(driver, handle) }
}

/// A device's primary context, made if there is none, without a reference being taken.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY if the device has no room for a context.
pub fn make(
    driver: &'static Driver,
    ordinal: CUdevice,
    flags: c_uint,
    primary: bool,
) -> Answer<Arc<Context>> {
    let device = driver.device(ordinal)?;
    let bytes = driver.gpu_spec(device).context_bytes();
    if driver.process.charge(device.gpu, Charge::Context, bytes, bytes).is_err() {
        driver.process.failed(device.gpu, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    driver.process.context(device.gpu, true);
    let handle = driver.handles.next();
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
        core_dumps: Mutex::default(),
    });
    driver.contexts.insert(handle, context.clone());
    Ok(context)
}

/// Ends a context: its streams, modules and memory go with it.
pub fn end(driver: &'static Driver, context: &Arc<Context>) {
    if context.destroyed.swap(true, Relaxed) {
        return;
    }
    driver.contexts.remove(context.handle.addr());
    sync::context_destroyed(driver, context);
    module::context_destroyed(driver, context.handle.addr());
    free::context_destroyed(driver, context);
    lock(&driver.textures).retain(|_, object| object.context != context.id);
    if let Some(spec) = driver.machine.gpu(context.gpu) {
        driver.process.discharge(context.gpu, Charge::Context, spec.context_bytes(), spec.context_bytes());
    }
    driver.process.context(context.gpu, false);
}

/// Stack, printf buffer, malloc heap, the two of dynamic parallelism, L2 fetch granularity and
/// persisting lines.
fn default_limits(driver: &'static Driver, ordinal: CUdevice) -> BTreeMap<c_uint, usize> {
    let (major, _) = driver.device(ordinal).map_or((9, 0), |d| driver.gpu_spec(d).capability());
    let mut limits = BTreeMap::from([(0, 1024), (1, 1 << 20), (2, 8 << 20), (3, 2), (4, 2048)]);
    if major >= 8 {
        limits.insert(5, 64);
        limits.insert(6, 0);
    }
    limits
}

pub(crate) fn synchronize(driver: &'static Driver, context: &Arc<Context>) -> Answer {
    sync::synchronize_context(driver, context)?;
    free::synchronized(driver, context.device);
    Ok(())
}

/// The device's primary context, if it is active.
pub fn primary(driver: &'static Driver, ordinal: CUdevice) -> Option<Arc<Context>> {
    lock(&driver.device(ordinal).ok()?.primary).context.clone()
}

/// Takes a reference to a device's primary context, which is made if it does not exist.
///
/// # Errors
/// CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_OUT_OF_MEMORY.
pub fn retain_primary(driver: &'static Driver, ordinal: CUdevice) -> Answer<Arc<Context>> {
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
    Ok(context)
}

/// Gives a reference back; with the last one the context ends.
///
/// # Errors
/// CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_CONTEXT if there is no reference.
pub fn release_primary(driver: &'static Driver, ordinal: CUdevice) -> Answer {
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

/// Makes a green context of a descriptor, and the device's primary context if there is none.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY if the device has no room for a context.
pub fn make_green(driver: &'static Driver, descriptor: &Descriptor) -> Answer<Arc<Green>> {
    let context = retain_primary(driver, descriptor.device)?;
    let (handle, view) = (driver.handles.next(), driver.handles.next());
    let sms = descriptor.resources.iter().filter(|r| r.kind == SM).map(|r| r.own.count).sum();
    let all = driver.gpu_spec(driver.device(descriptor.device)?).sms;
    let green = Arc::new(Green {
        handle: CUgreenCtx(handle as *mut c_void),
        view: CUcontext(view as *mut c_void),
        id: driver.machine.unique(),
        device: descriptor.device,
        context: context.handle.addr(),
        sms: if sms == 0 { all } else { sms },
        resources: descriptor.resources.clone(),
        destroyed: AtomicBool::new(false),
    });
    driver.greens.by_handle.insert(handle, Arc::clone(&green));
    driver.greens.by_view.insert(view, Arc::clone(&green));
    Ok(green)
}

/// Ends a green context: captures in its streams end too, and the streams can only be destroyed from now on.
///
/// # Errors
/// CUDA_ERROR_CONTEXT_IS_DESTROYED if another thread was first.
pub fn end_green(driver: &'static Driver, green: &Green) -> Answer {
    if green.destroyed.swap(true, Relaxed) {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    driver.greens.by_handle.remove(green.handle.addr());
    driver.greens.by_view.remove(green.view.addr());
    driver.sched().detach(driver, green.view);
    release_primary(driver, green.device)
}
