//! Entry points of contexts.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use crate::engine::context::{Current, current, top, with_stack};
use crate::engine::driver::{self, Driver};
use crate::engine::lifetime::{
    end, find, find_part, given_or_current, make, release_primary, retain_primary, synchronize,
};
use crate::util::ffi::{Answer, In, Out};
use crate::util::sync::lock;

/// API version that contexts report: the one since CUDA 3.2.
const API_VERSION: c_uint = 3020;
/// Flag bits of a context: scheduling, host mapping, local memory, core dumps, sync memops.
const FLAG_MASK: c_uint = 0xff;
/// `CU_CTX_SCHED_MASK`.
const SCHEDULING: c_uint = 0x07;

fn create(driver: &'static Driver, out: Out<CUcontext>, flags: c_uint, device: CUdevice) -> Answer {
    out.required()?;
    if flags & !FLAG_MASK != 0 || (flags & SCHEDULING).count_ones() > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let context = make(driver, device, flags, false)?;
    out.set(context.handle)?;
    with_stack(|stack| stack.push(Current { context, green: None })).ok_or(CUDA_ERROR_INVALID_CONTEXT)
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
            if stack.last().is_some_and(|top| Arc::ptr_eq(&top.context, &context)) {
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
        let context = find_part(driver, context)?;
        with_stack(|stack| stack.push(context)).ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Takes the current context off the stack.
    fn cuCtxPopCurrent_v2(out: Out<CUcontext>) |_| {
        let context = with_stack(|stack| stack.pop()).flatten().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        out.set_if_wanted(context.handle());
        Ok(())
    }

    /// Replaces the current context; null takes it off.
    fn cuCtxSetCurrent(context: CUcontext) |driver| {
        let context = if context.is_null() { None } else { Some(find_part(driver, context)?) };
        with_stack(|stack| {
            stack.pop();
            stack.extend(context);
        });
        Ok(())
    }

    /// The current context; null if there is none.
    fn cuCtxGetCurrent(out: Out<CUcontext>) |_| {
        out.set(top().map_or(CUcontext::NULL, |c| c.handle()))
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
        if !driver::can_access(driver, context.device, peer.device)? {
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

entry_points! {
    /// Takes a reference to a device's primary context, which is made if it does not exist.
    fn cuDevicePrimaryCtxRetain(out: Out<CUcontext>, ordinal: CUdevice) |driver| {
        out.required()?;
        let context = retain_primary(driver, ordinal)?;
        out.set(context.handle)
    }

    /// Gives a reference back; with the last one the context ends.
    fn cuDevicePrimaryCtxRelease_v2(ordinal: CUdevice) |driver| {
        release_primary(driver, ordinal)
    }

    /// Ends the primary context even where references to it are left; they stay counted.
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
