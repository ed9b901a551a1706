//! Graphs, as far as they differ from the driver's: kernels are host functions here, and the context is
//! always the thread's.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use super::code::{host_function, kernel};
use super::copy::{Copy3D, box_of, row_of};
use super::dim3::Dim3;
use super::runtime;
use radrm_cuda_client as driver;

/// `cudaKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    function: *mut c_void,
    grid: Dim3,
    block: Dim3,
    shared: c_uint,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// Kind, then the parameters of that kind: `cudaGraphNodeParams`, which differs from the driver's form in
/// kernels alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyParams {
    kind: u32,
    reserved: [u32; 3],
    body: [u64; 29],
    end: u64,
}

fn of_driver(params: &KernelParams) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction::NULL,
        gridDimX: params.grid.x,
        gridDimY: params.grid.y,
        gridDimZ: params.grid.z,
        blockDimX: params.block.x,
        blockDimY: params.block.y,
        blockDimZ: params.block.z,
        sharedMemBytes: params.shared,
        kernelParams: params.params,
        extra: params.extra,
        kern: kernel(params.function)?,
        ctx: CUcontext::NULL,
    })
}

fn thread_context() -> Answer<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxGetCurrent(&raw mut context)? };
    Ok(context)
}

runtime! {
    /// Makes a graph that can be launched.
    with_context radrm_cudaGraphInstantiate(out: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphInstantiateWithFlags(out, graph, flags) }
    }

    /// Adds a kernel.
    with_context radrm_cudaGraphAddKernelNode(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, params: In<KernelParams>,
    ) {
        let params = of_driver(&params.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphAddKernelNode_v2(node, graph, before, count, &raw const params) }
    }

    /// Parameters of a kernel node.
    with_context radrm_cudaGraphKernelNodeGetParams(node: CUgraphNode, out: Out<KernelParams>) {
        out.required()?;
        let mut own = core::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: a place for the parameters; all zeros is a value of that structure.
        let own = unsafe {
            driver::cuGraphKernelNodeGetParams_v2(node, own.as_mut_ptr())?;
            own.assume_init()
        };
        let handle = if own.kern.is_null() { own.func.addr() } else { own.kern.addr() };
        out.set(KernelParams {
            function: host_function(handle),
            grid: Dim3 { x: own.gridDimX, y: own.gridDimY, z: own.gridDimZ },
            block: Dim3 { x: own.blockDimX, y: own.blockDimY, z: own.blockDimZ },
            shared: own.sharedMemBytes,
            params: own.kernelParams,
            extra: own.extra,
        })
    }

    /// Changes a kernel node.
    with_context radrm_cudaGraphKernelNodeSetParams(node: CUgraphNode, params: In<KernelParams>) {
        let params = of_driver(&params.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphKernelNodeSetParams_v2(node, &raw const params) }
    }

    /// Changes a kernel of a graph that can be launched.
    with_context radrm_cudaGraphExecKernelNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: In<KernelParams>,
    ) {
        let params = of_driver(&params.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params) }
    }

    /// Adds a copy of a box.
    with_context radrm_cudaGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, copy: In<Copy3D>,
    ) {
        let copy = box_of(&copy.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphAddMemcpyNode(node, graph, before, count, &raw const copy, thread_context()?) }
    }

    /// Adds a copy of a row.
    with_context radrm_cudaGraphAddMemcpyNode1D(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, target: u64, source: u64,
        bytes: usize, _kind: c_uint,
    ) {
        let copy = row_of(target, source, bytes);
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphAddMemcpyNode(node, graph, before, count, &raw const copy, thread_context()?) }
    }

    /// Changes a copy.
    with_context radrm_cudaGraphMemcpyNodeSetParams1D(
        node: CUgraphNode, target: u64, source: u64, bytes: usize, _kind: c_uint,
    ) {
        let copy = row_of(target, source, bytes);
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphMemcpyNodeSetParams(node, &raw const copy) }
    }

    /// Changes a copy of a graph that can be launched.
    with_context radrm_cudaGraphExecMemcpyNodeSetParams1D(
        exec: CUgraphExec, node: CUgraphNode, target: u64, source: u64, bytes: usize, _kind: c_uint,
    ) {
        let copy = row_of(target, source, bytes);
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphExecMemcpyNodeSetParams(exec, node, &raw const copy, thread_context()?) }
    }

    /// Adds a memset.
    with_context radrm_cudaGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, params: *const c_void,
    ) {
        // SAFETY: as the caller promises; the structure is the driver's.
        unsafe { driver::cuGraphAddMemsetNode(node, graph, before, count, params, thread_context()?) }
    }

    /// Changes a memset of a graph that can be launched.
    with_context radrm_cudaGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const c_void,
    ) {
        // SAFETY: as the caller promises; the structure is the driver's.
        unsafe { driver::cuGraphExecMemsetNodeSetParams(exec, node, params, thread_context()?) }
    }

    /// Adds a node of any kind.
    with_context radrm_cudaGraphAddNode(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, edges: *const c_void, count: usize,
        params: Out<AnyParams>,
    ) {
        add_any(node, graph, before, edges, count, params)
    }

    /// Adds a node of any kind, in the form of CUDA 12.
    with_context radrm_12_cudaGraphAddNode(
        node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize, params: Out<AnyParams>,
    ) {
        add_any(node, graph, before, core::ptr::null(), count, params)
    }

    /// Makes a handle that decides about a conditional node.
    with_context radrm_cudaGraphConditionalHandleCreate(
        out: *mut u64, graph: CUgraph, value: c_uint, flags: c_uint,
    ) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuGraphConditionalHandleCreate(out.cast(), graph, thread_context()?, value, flags) }
    }
}

fn add_any(
    node: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    params: Out<AnyParams>,
) -> Answer {
    let mut own = params.get()?;
    let is_kernel = own.kind == CU_GRAPH_NODE_TYPE_KERNEL.0;
    if is_kernel {
        // The driver has the kernel in a member of its own; function and kernel are words 0 and 7.
        let handle = kernel(own.body[0] as *const c_void)?;
        own.body[0] = 0;
        own.body[7] = handle.addr();
        own.body[8] = 0;
    }
    // SAFETY: as the caller promises.
    unsafe { driver::cuGraphAddNode_v2(node, graph, before, edges, count, (&raw mut own).cast())? };
    if !is_kernel {
        // The node's memory or bodies come back in the parameters.
        params.set(own)?;
    }
    Ok(())
}
