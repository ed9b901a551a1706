//! Entry points of green contexts and of the resources that they are made of.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::green::{Descriptor, Green, connections};
use crate::engine::lifetime::{end_green, given_or_current_part, make_green};
use crate::engine::stream::state::{NON_BLOCKING, Sort};
use crate::models::resource::{
    Group, QUEUE, QUEUE_CONFIG, Resource, Rules, SM, Split, by_count, by_groups, together,
};
use crate::util::ffi::{Answer, In, Out};
use crate::util::sync::lock;

/// `CU_GREEN_CTX_DEFAULT_STREAM`.
const DEFAULT_STREAM: c_uint = 1;
/// From this version on a green context may do without default stream.
const WITHOUT_DEFAULT_STREAM: u32 = 13000;

/// Resource of a device, of the given kind.
///
/// # Errors
/// CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_RESOURCE_TYPE.
pub fn of_device(driver: &Driver, device: CUdevice, kind: u32) -> Answer<Resource> {
    let own = driver.device(device)?;
    let spec = driver.gpu_spec(own);
    match kind {
        SM => Ok(Resource::multiprocessors(
            device,
            0,
            driver.multiprocessors(own),
            Rules::of(spec.capability().0),
            0,
        )),
        QUEUE_CONFIG => Ok(Resource::queue_config(device, connections())),
        _ => Err(CUDA_ERROR_INVALID_RESOURCE_TYPE),
    }
}

fn find(driver: &Driver, handle: CUgreenCtx) -> Answer<Arc<Green>> {
    driver.greens.by_handle.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Major number of the architecture of a resource's device.
fn major(driver: &Driver, input: &Resource) -> Answer<u32> {
    let device = driver.device(input.as_multiprocessors()?.device)?;
    Ok(driver.gpu_spec(device).capability().0)
}

fn hand_out(split: &Split, results: Out<Resource>, rest: Out<Resource>) -> Answer {
    if !results.is_null() {
        split.groups.iter().enumerate().try_for_each(|(at, group)| results.set_at(at, *group))?;
    }
    rest.set_if_wanted(split.rest);
    Ok(())
}

entry_points! {
    /// Resource of a device, of the given kind.
    fn cuDeviceGetDevResource(device: CUdevice, resource: Out<Resource>, kind: c_uint) |driver| {
        resource.required()?;
        resource.set(of_device(driver, device, kind)?)
    }

    /// Resource of a context, of the given kind.
    fn cuCtxGetDevResource(context: CUcontext, resource: Out<Resource>, kind: c_uint) |driver| {
        resource.required()?;
        let part = given_or_current_part(driver, context)?;
        let own = &part.context;
        resource.set(match &part.green {
            Some(green) => green.resource(kind)?,
            None if kind == QUEUE => Resource::queue(own.device, own.id),
            None => of_device(driver, own.device, kind)?,
        })
    }

    /// Resource of a green context, of the given kind.
    fn cuGreenCtxGetDevResource(green: CUgreenCtx, resource: Out<Resource>, kind: c_uint) |driver| {
        resource.required()?;
        resource.set(find(driver, green)?.resource(kind)?)
    }

    /// Splits multiprocessors into equal sets.
    fn cuDevSmResourceSplitByCount(
        results: Out<Resource>, count: Out<c_uint>, input: In<Resource>, rest: Out<Resource>, flags: c_uint,
        least: c_uint,
    ) |driver| {
        let (given, input) = (count.get()?, input.get()?);
        let wanted = if results.is_null() { c_uint::MAX } else { given };
        let number = driver.greens.new_split();
        let split = by_count(&input, major(driver, &input)?, wanted, flags, least, number)?;
        count.set(split.groups.len() as c_uint)?;
        hand_out(&split, results, rest)
    }

    /// Splits multiprocessors into groups of various sizes.
    fn cuDevSmResourceSplit(
        results: Out<Resource>, count: c_uint, input: In<Resource>, rest: Out<Resource>, flags: c_uint,
        params: Out<Group>,
    ) |driver| {
        if flags != 0 || count == 0 || params.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let input = input.get()?;
        let mut groups = In::from_raw(params.raw().cast_const()).list(count as usize)?;
        let number = driver.greens.new_split();
        let major = major(driver, &input)?;
        let split = by_groups(&input, major, &mut groups, !results.is_null(), number)?;
        groups.iter().enumerate().try_for_each(|(at, group)| params.set_at(at, *group))?;
        hand_out(&split, results, rest)
    }

    /// Joins resources into a descriptor.
    fn cuDevResourceGenerateDesc(out: Out<CUdevResourceDesc>, resources: In<Resource>, count: c_uint) |driver| {
        out.required()?;
        let resources = resources.list(count as usize)?;
        let (device, _) = together(&resources)?;
        let handle = driver.handles.next();
        lock(&driver.greens.descriptors).insert(handle, Descriptor { device, resources });
        out.set(CUdevResourceDesc(handle as *mut c_void))
    }

    /// Makes a green context of a descriptor. It is not made current.
    fn cuGreenCtxCreate(out: Out<CUgreenCtx>, of: CUdevResourceDesc, device: CUdevice, flags: c_uint) |driver| {
        out.required()?;
        let without = flags & DEFAULT_STREAM == 0;
        if flags & !DEFAULT_STREAM != 0 || (without && driver.version() < WITHOUT_DEFAULT_STREAM) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let descriptor = lock(&driver.greens.descriptors).get(&of.addr()).cloned();
        let descriptor = descriptor.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        driver.device(device)?;
        if descriptor.device != device {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        out.set(make_green(driver, &descriptor)?.handle)
    }

    /// Ends a green context.
    fn cuGreenCtxDestroy(green: CUgreenCtx) |driver| {
        end_green(driver, &*find(driver, green)?)
    }

    /// The handle that stands for a green context where a context is asked for.
    fn cuCtxFromGreenCtx(out: Out<CUcontext>, green: CUgreenCtx) |driver| {
        out.required()?;
        out.set(find(driver, green)?.view)
    }

    /// A green context's number; null means the current one.
    fn cuGreenCtxGetId(green: CUgreenCtx, out: Out<u64>) |driver| {
        out.required()?;
        let found = match green.is_null() {
            true => driver.current_part()?.1.ok_or(CUDA_ERROR_INVALID_CONTEXT)?,
            false => find(driver, green)?,
        };
        out.set(found.id)
    }

    /// Makes a stream in a green context.
    fn cuGreenCtxStreamCreate(out: Out<CUstream>, green: CUgreenCtx, flags: c_uint, priority: c_int) |driver| {
        out.required()?;
        let green = find(driver, green)?;
        if flags != NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = driver.contexts.get(green.context).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        context.check()?;
        let priority = priority.clamp(-5, 0);
        let key = driver.sched().add_stream((&context, Some(green)), Sort::Created, flags, priority);
        out.set(CUstream(key as usize as *mut c_void))
    }

    /// Lets an event stand for all work that a green context has now.
    fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) |driver| {
        let green = find(driver, green)?;
        let mut state = driver.sched();
        let streams = state.streams_of_view(green.view);
        state.record_all(driver, event, green.context, &streams)
    }

    /// Makes the later work of a green context wait for an event.
    fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) |driver| {
        let green = find(driver, green)?;
        let mut state = driver.sched();
        let streams = state.streams_of_view(green.view);
        state.wait_all(driver, event, green.view, &streams)
    }

    /// Lets an event stand for all work that a context has now; of a primary one also that of its green contexts.
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) |driver| {
        let part = given_or_current_part(driver, context)?;
        let mut state = driver.sched();
        let of = part.context.handle.addr();
        let streams = match &part.green {
            Some(green) => state.streams_of_view(green.view),
            None => state.streams_of(of),
        };
        state.record_all(driver, event, of, &streams)
    }

    /// Makes the later work of a context wait for an event; of a primary one also that of its green contexts.
    fn cuCtxWaitEvent(context: CUcontext, event: CUevent) |driver| {
        let part = given_or_current_part(driver, context)?;
        let mut state = driver.sched();
        let streams = match &part.green {
            Some(green) => state.streams_of_view(green.view),
            None => state.streams_of(part.context.handle.addr()),
        };
        state.wait_all(driver, event, part.handle(), &streams)
    }
}
