//! Entry points of launches.

use std::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::code::state::Launchable;
use crate::engine::driver::Driver;
use crate::engine::graph::node::{KernelNode, NodeKind};
use crate::engine::launch::account;
use crate::engine::stream::op::{HostCall, Op, Recording, not_in_callback};
use crate::engine::stream::state::Sched;
use crate::models::launch::{self, Attribute, Shape, check, check_cluster, read_attributes};
use crate::util::ffi::{Answer, In};

/// A launch as it was asked for.
pub struct Request<'a> {
    /// Function or kernel.
    pub function: CUfunction,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
    /// Stream.
    pub stream: CUstream,
    /// Pointers to the parameters.
    pub params: *const *mut c_void,
    /// The other way to hand over parameters.
    pub extra: *const *mut c_void,
    /// True if all blocks have to run at the same time (cooperative launch).
    pub cooperative: bool,
    /// Attributes.
    pub attributes: &'a [Attribute],
}

/// Launches a kernel, or makes it a node if its stream captures.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE, those of [`check`], of captures and of [`account`].
pub fn launch(driver: &'static Driver, request: &Request<'_>) -> Answer {
    not_in_callback()?;
    let what = driver.code.launchable(request.function)?;
    let mut state = driver.sched();
    let key = state.find(driver, request.stream)?;
    let context = state.stream(key)?.context;
    if what.context().is_some_and(|own| own != context) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let context = state.context(driver, context)?;
    let gpu = driver.gpu_spec(driver.device(context.device)?);
    let info = what.info();
    let shape = Shape { info, grid: request.grid, block: request.block, shared: request.shared };
    check(what.settings(), &shape, request.cooperative, gpu)?;
    check_cluster(request.attributes, request.grid, what.settings(), gpu)?;
    let wants_params = info.params.as_ref().is_some_and(|p| !p.is_empty());
    if (!request.params.is_null() && !request.extra.is_null())
        || (wants_params && request.params.is_null() && request.extra.is_null())
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match state.admit(key)? {
        None => {
            if request.attributes.iter().any(|a| a.id == launch::attribute::DEVICE_UPDATABLE) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let most = state.stream(key)?.multiprocessors();
            let (ns, phases) = account(driver, &context, most, &shape)?;
            state.enqueue(driver, key, Op::Busy(ns, phases));
        }
        Some(capture) => {
            let handles = match &what {
                Launchable::Function(f) => (f.handle, 0, context.handle.addr()),
                Launchable::Kernel(k) => (0, k.handle, context.handle.addr()),
            };
            // SAFETY: the caller promises a pointer for each parameter.
            let mut node = unsafe {
                KernelNode::new(
                    handles,
                    info.clone(),
                    request.grid,
                    request.block,
                    request.shared,
                    request.params,
                )
            };
            node.cooperative = request.cooperative;
            for a in request.attributes {
                node.attributes.insert(a.id, value_bytes(&a.value));
            }
            state.record(capture, key, NodeKind::Kernel(Box::new(node)))?;
        }
    }
    record_events(driver, &mut state, request.attributes, key)
}

fn value_bytes(value: &[u32; 16]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(value) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Events that a launch was asked to record: at its end, which is when they are complete at the latest.
fn record_events(driver: &'static Driver, state: &mut Sched, attributes: &[Attribute], key: u64) -> Answer {
    for a in attributes {
        if matches!(a.id, launch::attribute::PROGRAMMATIC_EVENT | launch::attribute::COMPLETION_EVENT) {
            let handle = u64::from(a.value[0]) | u64::from(a.value[1]) << 32;
            let event = CUevent(handle as usize as *mut c_void);
            match state.admit(key)? {
                None => state.record_event(driver, event, key)?,
                Some(capture) => {
                    let nodes = state.stream(key)?.frontier.clone();
                    state.event(event)?.recording = Recording::Captured { capture, nodes };
                }
            }
        }
    }
    Ok(())
}

fn host(driver: &'static Driver, stream: CUstream, call: HostCall) -> Answer {
    not_in_callback()?;
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    match state.admit(key)? {
        None => {
            state.enqueue(driver, key, Op::Host(call));
            Ok(())
        }
        Some(capture) => state.record(capture, key, NodeKind::Host(call)).map(drop),
    }
}

type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

type StreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;

fn function(function: HostFunction, data: *mut c_void) -> Answer<HostCall> {
    Ok(HostCall::Function { function: function.ok_or(CUDA_ERROR_INVALID_VALUE)?, data })
}

entry_points! {
    /// Launches a kernel.
    fn cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(driver, &Request {
            function, grid, block, shared, stream, params, extra, cooperative: false, attributes: &[],
        })
    }

    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx(
        config: In<CUlaunchConfig>, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) |driver| {
        let config = config.get()?;
        let attributes = read_attributes(&config)?;
        let cooperative = attributes.iter().any(|a| a.id == launch::attribute::COOPERATIVE && a.value[0] != 0);
        launch(driver, &Request {
            function,
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
            stream: config.hStream,
            params,
            extra,
            cooperative,
            attributes: &attributes,
        })
    }

    /// Launches a kernel whose blocks all run at the same time.
    fn cuLaunchCooperativeKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void,
    ) |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let extra = std::ptr::null();
        launch(driver, &Request {
            function, grid, block, shared, stream, params, extra, cooperative: true, attributes: &[],
        })
    }

    /// Launches a kernel on several devices.
    fn cuLaunchCooperativeKernelMultiDevice(list: In<CUDA_LAUNCH_PARAMS>, count: c_uint, flags: c_uint) |driver| {
        const KNOWN: c_uint = 3;
        let list = list.list(count as usize)?;
        if list.is_empty() || flags & !KNOWN != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut devices = Vec::new();
        for one in &list {
            let mut state = driver.sched();
            let key = state.find(driver, one.hStream)?;
            let device = state.stream(key)?.device;
            let default = matches!(one.hStream, CUstream::NULL | CU_STREAM_LEGACY | CU_STREAM_PER_THREAD);
            if default || devices.contains(&device) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            devices.push(device);
        }
        for one in &list {
            launch(driver, &Request {
                function: one.function,
                grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
                block: [one.blockDimX, one.blockDimY, one.blockDimZ],
                shared: one.sharedMemBytes,
                stream: one.hStream,
                params: one.kernelParams,
                extra: std::ptr::null(),
                cooperative: true,
                attributes: &[],
            })?;
        }
        Ok(())
    }

    /// Calls a function of the program in stream order, from a thread of the driver.
    fn cuLaunchHostFunc(stream: CUstream, call: HostFunction, data: *mut c_void) |driver| {
        host(driver, stream, function(call, data)?)
    }

    /// As `cuLaunchHostFunc`; how the GPU waits for it is not modelled.
    fn cuLaunchHostFunc_v2(stream: CUstream, call: HostFunction, data: *mut c_void, mode: c_uint) |driver| {
        if mode > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        host(driver, stream, function(call, data)?)
    }

    /// The older form of host functions: it cannot be captured.
    fn cuStreamAddCallback(stream: CUstream, callback: StreamCallback, data: *mut c_void, flags: c_uint) |driver| {
        not_in_callback()?;
        let function = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        state.not_capturing(key)?;
        state.enqueue(driver, key, Op::Host(HostCall::Callback { function, stream, data }));
        Ok(())
    }
}
