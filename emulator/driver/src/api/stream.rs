//! Entry points of streams.

use std::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::api::green::of_device;
use crate::engine::driver::Driver;
use crate::engine::memory::free;
use crate::engine::stream::event::only;
use crate::engine::stream::op::not_in_callback;
use crate::engine::stream::queue::wait_for;
use crate::engine::stream::state::{NON_BLOCKING, Sort, Stream};
use crate::models::resource::{Resource, SM};
use crate::util::ffi::{Answer, In, Out};

/// Most and least urgent priority.
const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

fn create(driver: &'static Driver, out: Out<CUstream>, flags: c_uint, priority: c_int) -> Answer {
    out.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (context, green) = driver.current_part()?;
    let priority = priority.clamp(*PRIORITIES.start(), *PRIORITIES.end());
    let key = driver.sched().add_stream((&context, green), Sort::Created, flags, priority);
    out.set(CUstream(key as usize as *mut c_void))
}

/// The handle of the context that a stream belongs to: of a green context its view.
fn context_of(stream: &Stream) -> CUcontext {
    let own = CUcontext(stream.context as usize as *mut c_void);
    stream.green.as_ref().map_or(own, |green| green.view)
}

/// The handle of a stream's green context; null if it has none.
fn green_of(stream: &Stream) -> CUgreenCtx {
    stream.green.as_ref().map_or(CUgreenCtx::NULL, |green| green.handle)
}

fn with<T>(
    driver: &'static Driver,
    stream: CUstream,
    out: Out<T>,
    answer: impl FnOnce(&Stream) -> T,
) -> Answer {
    out.required()?;
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    out.set(answer(state.stream(key)?))
}

entry_points! {
    /// Makes a stream in the current context.
    fn cuStreamCreate(stream: Out<CUstream>, flags: c_uint) |driver| {
        create(driver, stream, flags, 0)
    }

    /// Makes a stream; a priority out of range is brought into it.
    fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) |driver| {
        create(driver, stream, flags, priority)
    }

    /// Forgets a stream; work that it has is still done.
    fn cuStreamDestroy_v2(stream: CUstream) |driver| {
        if matches!(stream, CUstream::NULL | CU_STREAM_LEGACY | CU_STREAM_PER_THREAD) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let mut state = driver.sched();
        let key = match state.find(driver, stream) {
            Ok(key) => key,
            // Resources of a broken or destroyed context can still be given back.
            Err(CUDA_ERROR_INVALID_HANDLE) => return Err(CUDA_ERROR_INVALID_HANDLE),
            Err(_) => stream.addr(),
        };
        state.abandon(driver, key);
        state.close(key);
        Ok(())
    }

    /// Waits for a stream's work.
    fn cuStreamSynchronize(stream: CUstream) |driver| {
        not_in_callback()?;
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        state.not_capturing(key)?;
        state.unsafe_call()?;
        let (device, context) = state.stream(key).map(|s| (s.device, s.context))?;
        let context = state.context(driver, context)?;
        wait_for(driver, state, &only(key));
        free::synchronized(driver, device);
        context.check()
    }

    /// Reports whether a stream's work is done.
    fn cuStreamQuery(stream: CUstream) |driver| {
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        state.not_capturing(key)?;
        state.unsafe_call()?;
        let (idle, end) = state.stream(key).map(|s| (s.is_idle(), s.end()))?;
        if idle && state.clock.answer(end) { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    /// A stream's priority.
    fn cuStreamGetPriority(stream: CUstream, priority: Out<c_int>) |driver| {
        with(driver, stream, priority, |s| s.priority)
    }

    /// A stream's flags.
    fn cuStreamGetFlags(stream: CUstream, flags: Out<c_uint>) |driver| {
        with(driver, stream, flags, |s| s.flags)
    }

    /// A stream's number, unique in the process.
    fn cuStreamGetId(stream: CUstream, id: Out<u64>) |driver| {
        with(driver, stream, id, |s| s.id)
    }

    /// A stream's context.
    fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) |driver| {
        with(driver, stream, context, context_of)
    }

    /// A stream's context, or its green context.
    fn cuStreamGetCtx_v2(stream: CUstream, context: Out<CUcontext>, green: Out<CUgreenCtx>) |driver| {
        let own = |s: &Stream| CUcontext(s.context as usize as *mut c_void);
        with(driver, stream, context, |s| if s.green.is_some() { CUcontext::NULL } else { own(s) })?;
        if green.is_null() { Ok(()) } else { with(driver, stream, green, green_of) }
    }

    /// A stream's green context; null if it has none.
    fn cuStreamGetGreenCtx(stream: CUstream, green: Out<CUgreenCtx>) |driver| {
        with(driver, stream, green, green_of)
    }

    /// A stream's multiprocessors.
    fn cuStreamGetDevResource(stream: CUstream, resource: Out<Resource>, kind: u32) |driver| {
        resource.required()?;
        if kind != SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        let (device, green) = state.stream(key).map(|s| (s.device, s.green.clone()))?;
        resource.set(match green {
            Some(green) => green.resource(kind)?,
            None => of_device(driver, device, kind)?,
        })
    }

    /// A stream's device.
    fn cuStreamGetDevice(stream: CUstream, device: Out<CUdevice>) |driver| {
        with(driver, stream, device, |s| s.device)
    }

    /// An attribute that was set before, else zeros.
    fn cuStreamGetAttribute(stream: CUstream, attribute: u32, value: Out<[u8; 64]>) |driver| {
        if !stream_attribute(attribute) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with(driver, stream, value, |s| s.attributes.get(&attribute).copied().unwrap_or([0; 64]))
    }

    /// Keeps an attribute; none of them changes what is modelled.
    fn cuStreamSetAttribute(stream: CUstream, attribute: u32, value: In<[u8; 64]>) |driver| {
        if !stream_attribute(attribute) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let value = value.get()?;
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        state.stream_mut(key)?.attributes.insert(attribute, value);
        Ok(())
    }

    /// Copies all attributes from one stream to another.
    fn cuStreamCopyAttributes(target: CUstream, source: CUstream) |driver| {
        let mut state = driver.sched();
        let (target, source) = (state.find(driver, target)?, state.find(driver, source)?);
        let attributes = state.stream(source)?.attributes.clone();
        state.stream_mut(target)?.attributes = attributes;
        Ok(())
    }
}

/// Attributes that streams have: access policy window, synchronization policy, priority, and the two
/// of memory synchronisation domains.
fn stream_attribute(attribute: u32) -> bool {
    matches!(attribute, 1 | 3 | 8 | 9 | 10)
}
