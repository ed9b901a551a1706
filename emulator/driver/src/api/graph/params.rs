//! Parameters of nodes as C programs hand them over, and back.

use std::collections::BTreeMap;
use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::engine::code::state::Launchable;
use crate::engine::driver::Driver;
use crate::engine::graph::memory;
use crate::engine::graph::node::{self, Conditional, KernelNode, NodeKind};
use crate::engine::lifetime;
use crate::engine::stream::op::HostCall;
use crate::engine::stream::state::Sched;
use crate::models::copy::{CopyNode, SetNode};
use crate::models::launch::{Shape, check};
use crate::models::memop;
use crate::util::ffi::{Answer, In};

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostParams {
    /// Function.
    pub function: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Its argument.
    pub data: *mut c_void,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryOpsParams {
    /// Context.
    pub context: CUcontext,
    /// Number of operations.
    pub count: u32,
    /// The operations.
    pub ops: In<[u64; 6]>,
    /// Zero.
    pub flags: u32,
}

/// `CUgraphNodeParams`: kind, and a union of 232 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnyParams {
    /// Kind.
    pub kind: CUgraphNodeType,
    /// Zero.
    pub reserved0: [u32; 3],
    /// The kind's own parameters.
    pub body: [u64; 29],
    /// Zero.
    pub reserved2: u64,
}

const _: () = assert!(size_of::<AnyParams>() == 256);

impl AnyParams {
    /// Reads the body as one of the kinds' structures.
    ///
    /// # Safety
    /// `T` must be valid for any bit pattern that a C program may have written for it.
    pub unsafe fn body<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= 232 && align_of::<T>() <= 8) };
        // SAFETY: `T` fits, and the caller vouches for the bits.
        unsafe { self.body.as_ptr().cast::<T>().read() }
    }

    /// Writes a structure into the body.
    pub fn set_body<T: Copy>(&mut self, value: T) {
        const { assert!(size_of::<T>() <= 232 && align_of::<T>() <= 8) };
        // SAFETY: `T` fits and the body is words that any bits may stand in.
        unsafe { self.body.as_mut_ptr().cast::<T>().write(value) };
    }
}

/// Checks the parameters of a kernel node and copies them.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE, those of [`check`].
pub fn kernel(driver: &'static Driver, params: &CUDA_KERNEL_NODE_PARAMS) -> Answer<NodeKind> {
    let handle = match (params.func.is_null(), params.kern.is_null()) {
        (false, true) => params.func,
        (true, false) => CUfunction(params.kern.0),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let what = driver.code.launchable(handle)?;
    let context = match (what.context(), params.ctx.is_null()) {
        (Some(own), _) => own,
        (None, false) => params.ctx.addr(),
        (None, true) => driver.current()?.handle.addr(),
    };
    let device = driver.contexts.get(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?.device;
    let gpu = driver.gpu_spec(driver.device(device)?);
    let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
    let shared = params.sharedMemBytes;
    check(what.settings(), &Shape { info: what.info(), grid, block, shared }, false, gpu)?;
    if !params.kernelParams.is_null() && !params.extra.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handles = match &what {
        Launchable::Function(f) => (f.handle, 0, context),
        Launchable::Kernel(k) => (0, k.handle, context),
    };
    // SAFETY: C callers promise a pointer for each parameter.
    let node =
        unsafe { KernelNode::new(handles, what.info().clone(), grid, block, shared, params.kernelParams) };
    Ok(NodeKind::Kernel(Box::new(node)))
}

/// The newer form of the older structure.
pub fn from_v1(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

fn pointer(handle: u64) -> *mut c_void {
    handle as usize as *mut c_void
}

/// A kernel node's parameters as C programs read them.
pub fn of_kernel(node: &KernelNode) -> CUDA_KERNEL_NODE_PARAMS {
    let ([x, y, z], [bx, by, bz]) = (node.grid, node.block);
    CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction(pointer(node.function)),
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: node.shared,
        kernelParams: node.params(),
        extra: std::ptr::null_mut(),
        kern: CUkernel(pointer(node.kernel)),
        ctx: CUcontext(pointer(node.context)),
    }
}

/// A copy node.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT.
pub fn copy(driver: &'static Driver, copy: CopyNode, context: CUcontext) -> Answer<NodeKind> {
    let context = lifetime::given_or_current(driver, context)?.handle.addr();
    if copy.is_valid() { Ok(NodeKind::Copy { copy, context }) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// A memset node.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT.
pub fn set(driver: &'static Driver, set: SetNode, context: CUcontext) -> Answer<NodeKind> {
    let context = lifetime::given_or_current(driver, context)?.handle.addr();
    if set.is_valid() { Ok(NodeKind::Set { set, context }) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// A host node.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn host(params: &HostParams) -> Answer<NodeKind> {
    let function = params.function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(NodeKind::Host(HostCall::Function { function, data: params.data }))
}

/// A node of memory operations.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn memory_ops(params: &MemoryOpsParams) -> Answer<NodeKind> {
    let raw = params.ops.list(params.count as usize)?;
    let ops = raw.iter().map(memop::parse).collect::<Answer<Vec<_>>>()?;
    Ok(NodeKind::MemoryOps { context: params.context.addr(), ops, raw: Some(raw.into_boxed_slice()) })
}

/// Device of an allocation node: pinned memory on a device is all that exists.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE.
pub fn alloc_device(driver: &'static Driver, params: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer<CUdevice> {
    let props = &params.poolProps;
    if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || props.location.kind != CU_MEM_LOCATION_TYPE_DEVICE
        || props.handleTypes != 0
        || params.bytesize == 0
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(driver.device(props.location.id)?.ordinal)
}

/// Operation of a node of any kind, by its parameters.
/// The node is new in a graph, or is there already and keeps its inner graphs. An allocation node's address and a
/// conditional node's graphs are written back.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED for kinds without semantics here.
pub fn any(
    driver: &'static Driver,
    state: &mut Sched,
    graph: Option<u64>,
    params: &mut AnyParams,
) -> Answer<NodeKind> {
    if params.reserved0 != [0; 3] || params.reserved2 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: each structure holds numbers, handles and pointers only, so any bits are valid; function
    // pointers are optional, and programs promise what is behind a pointer.
    unsafe {
        match params.kind {
            CU_GRAPH_NODE_TYPE_KERNEL => kernel(driver, &params.body()),
            CU_GRAPH_NODE_TYPE_MEMCPY => {
                let (_, context, body): (u64, CUcontext, CopyNode) = {
                    let raw: CopyBody = params.body();
                    (raw.flags, raw.context, raw.copy)
                };
                copy(driver, body, context)
            }
            CU_GRAPH_NODE_TYPE_MEMSET => {
                let raw: SetBody = params.body();
                set(driver, raw.set, raw.context)
            }
            CU_GRAPH_NODE_TYPE_HOST => host(&params.body()),
            CU_GRAPH_NODE_TYPE_GRAPH => {
                let raw: ChildBody = params.body();
                child(state, graph.ok_or(CUDA_ERROR_INVALID_VALUE)?, raw.graph, raw.ownership)
            }
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(NodeKind::Empty),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
                let event: CUevent = params.body();
                state.event(event)?;
                Ok(NodeKind::WaitEvent { event: event.addr() })
            }
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                let event: CUevent = params.body();
                state.event(event)?;
                Ok(NodeKind::RecordEvent { event: event.addr() })
            }
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let mut raw: CUDA_MEM_ALLOC_NODE_PARAMS = params.body();
                let kind = alloc(driver, state, &mut raw)?;
                params.set_body(raw);
                Ok(kind)
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => free(state, params.body()),
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => memory_ops(&params.body()),
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                let raw: ConditionalBody = params.body();
                let node = conditional(state, graph.ok_or(CUDA_ERROR_INVALID_VALUE)?, &raw)?;
                params.set_body(of_conditional(&node));
                Ok(NodeKind::Conditional(node))
            }
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                Err(CUDA_ERROR_NOT_SUPPORTED)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyBody {
    flags: u64,
    context: CUcontext,
    copy: CopyNode,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SetBody {
    set: SetNode,
    context: CUcontext,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ChildBody {
    graph: CUgraph,
    ownership: i32,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConditionalBody {
    handle: u64,
    how: u32,
    size: u32,
    graphs: *const u64,
    context: CUcontext,
}

/// A conditional node with empty graphs.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if the condition is unknown, decides another node, was made for another graph or context, or
/// there is no such kind with that number of graphs.
fn conditional(state: &mut Sched, graph: u64, given: &ConditionalBody) -> Answer<Conditional> {
    let fits = match given.how {
        node::IF => (1..=2).contains(&given.size),
        node::WHILE => given.size == 1,
        node::SWITCH => given.size > 0,
        _ => false,
    };
    let graphs = &mut state.graphs;
    let of = *graphs.conditions.get(&given.handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let is_free = graphs.node_of_condition(given.handle).is_none();
    let in_context = given.context.is_null() || given.context.addr() == of.context;
    if !(fits && is_free && in_context && graphs.is_within(graph, of.graph)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (how, context, default) = (given.how, of.context, of.default);
    let bodies = (0..given.size).map(|_| graphs.create()).collect();
    Ok(Conditional { handle: given.handle, how, context, default, bodies })
}

/// Parameters of a conditional node as C programs read them.
fn of_conditional(node: &Conditional) -> ConditionalBody {
    ConditionalBody {
        handle: node.handle,
        how: node.how,
        size: node.bodies.len() as u32,
        graphs: node.bodies.as_ptr(),
        context: CUcontext(pointer(node.context)),
    }
}

/// A child graph: a copy of a graph, or the graph itself if the caller gives it away.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE, also for a graph that the node would be inside of; CUDA_ERROR_NOT_SUPPORTED for a graph with
/// conditional nodes, and for a copy of one that allocates.
pub fn child(state: &mut Sched, graph: u64, child: CUgraph, ownership: i32) -> Answer<NodeKind> {
    const CLONE: i32 = 0;
    const MOVE: i32 = 1;
    let graphs = &mut state.graphs;
    match ownership {
        CLONE => graphs.clone_graph(child.addr()).map(NodeKind::Child),
        MOVE if graphs.graph(child.addr())?.parent.is_some() || graphs.is_within(graph, child.addr()) => {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
        MOVE if graphs.has(child.addr(), |kind| matches!(kind, NodeKind::Conditional(_))) => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        MOVE => Ok(NodeKind::Child(child.addr())),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// An allocation node; the address is written into the parameters.
///
/// # Errors
/// As [`alloc_device`].
pub fn alloc(
    driver: &'static Driver,
    state: &mut Sched,
    params: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer<NodeKind> {
    let device = alloc_device(driver, params)?;
    let bytes = params.bytesize as u64;
    let address = memory::reserve(state, driver, device, bytes)?;
    params.dptr = address;
    Ok(NodeKind::alloc(device, bytes, address))
}

/// A free node.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if the address is not one of an allocation node.
pub fn free(state: &Sched, address: CUdeviceptr) -> Answer<NodeKind> {
    if state.graphs.is_allocation(address) {
        Ok(NodeKind::Free { address })
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Parameters of an allocation node as C programs read them.
pub fn of_alloc(device: CUdevice, bytes: u64, address: CUdeviceptr) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: 0,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        },
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: bytes as usize,
        dptr: address,
    }
}

/// Parameters of a node of any kind as C programs read them.
///
/// # Errors
/// CUDA_ERROR_NOT_SUPPORTED for memory operations that were captured.
pub fn of_any(kind: &NodeKind) -> Answer<AnyParams> {
    let mut params = AnyParams { kind: kind.number(), reserved0: [0; 3], body: [0; 29], reserved2: 0 };
    match kind {
        NodeKind::Kernel(node) => params.set_body(of_kernel(node)),
        NodeKind::Copy { copy, context } => {
            params.set_body(CopyBody { flags: 0, context: CUcontext(pointer(*context)), copy: *copy });
        }
        NodeKind::Set { set, context } => {
            params.set_body(SetBody { set: *set, context: CUcontext(pointer(*context)) })
        }
        NodeKind::Host(call) => params.set_body(of_host(call)),
        NodeKind::Child(graph) => params.set_body(CUgraph(pointer(*graph))),
        NodeKind::Empty => {}
        NodeKind::WaitEvent { event } | NodeKind::RecordEvent { event } => {
            params.set_body(CUevent(pointer(*event)))
        }
        NodeKind::Alloc { device, bytes, address } => params.set_body(of_alloc(*device, *bytes, *address)),
        NodeKind::Free { address } => params.set_body(*address),
        NodeKind::Conditional(node) => params.set_body(of_conditional(node)),
        NodeKind::MemoryOps { .. } => return Err(CUDA_ERROR_NOT_SUPPORTED),
    }
    Ok(params)
}

/// Parameters of a host node as C programs read them. What `cuStreamAddCallback` left is not a host node.
pub fn of_host(call: &HostCall) -> HostParams {
    match *call {
        HostCall::Function { function, data } => HostParams { function: Some(function), data },
        HostCall::Callback { data, .. } => HostParams { function: None, data },
    }
}

/// Keeps the attributes of a kernel node when its parameters are replaced.
pub fn with_attributes(kind: NodeKind, attributes: &BTreeMap<u32, [u8; 64]>) -> NodeKind {
    match kind {
        NodeKind::Kernel(mut node) => {
            node.attributes.clone_from(attributes);
            NodeKind::Kernel(node)
        }
        other => other,
    }
}
