//! Entry points that read and change what nodes do.

use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::api::graph::params::{self, AnyParams, HostParams, MemoryOpsParams};
use crate::api::graph::query::graph_handle;
use crate::engine::driver::Driver;
use crate::engine::graph::node::{KernelNode, NodeKind};
use crate::engine::stream::state::Sched;
use crate::models::copy::{CopyNode, SetNode};
use crate::util::ffi::{Answer, In, Out};

/// Replaces what a node does by something of the same kind; a kernel keeps its attributes.
fn replace(state: &mut Sched, node: CUgraphNode, kind: NodeKind) -> Answer {
    let node = state.graphs.node_mut(node.addr())?;
    if node.kind.number() != kind.number() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let kind = match &node.kind {
        NodeKind::Kernel(old) => params::with_attributes(kind, &old.attributes),
        _ => kind,
    };
    node.kind = kind;
    Ok(())
}

fn with_kernel<T>(
    driver: &'static Driver,
    node: CUgraphNode,
    work: impl FnOnce(&mut KernelNode) -> Answer<T>,
) -> Answer<T> {
    match &mut driver.sched().graphs.node_mut(node.addr())?.kind {
        NodeKind::Kernel(kernel) => work(kernel),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn set_any(driver: &'static Driver, node: CUgraphNode, params: In<AnyParams>) -> Answer {
    let mut params = params.get()?;
    let mut state = driver.sched();
    let known = &state.graphs.node(node.addr())?.kind;
    if known.is_memory() || known.number() != params.kind {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let kind = params::any(driver, &mut state, None, &mut params)?;
    replace(&mut state, node, kind)
}

/// An attribute that kernel nodes have.
fn is_kernel_attribute(attribute: u32) -> bool {
    matches!(attribute, 1 | 2 | 4 | 5 | 8 | 9 | 10 | 11 | 13 | 14)
}

entry_points! {
    /// Parameters of a kernel. Pointers in it live as long as the node is not changed.
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, out: Out<CUDA_KERNEL_NODE_PARAMS_v1>) |driver| {
        let p = with_kernel(driver, node, |kernel| Ok(params::of_kernel(kernel)))?;
        out.set(CUDA_KERNEL_NODE_PARAMS_v1 {
            func: if p.func.is_null() { CUfunction(p.kern.0) } else { p.func },
            gridDimX: p.gridDimX,
            gridDimY: p.gridDimY,
            gridDimZ: p.gridDimZ,
            blockDimX: p.blockDimX,
            blockDimY: p.blockDimY,
            blockDimZ: p.blockDimZ,
            sharedMemBytes: p.sharedMemBytes,
            kernelParams: p.kernelParams,
            extra: p.extra,
        })
    }

    /// Parameters of a kernel. Pointers in it live as long as the node is not changed.
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, out: Out<CUDA_KERNEL_NODE_PARAMS>) |driver| {
        out.set(with_kernel(driver, node, |kernel| Ok(params::of_kernel(kernel)))?)
    }

    /// Changes a kernel.
    fn cuGraphKernelNodeSetParams(node: CUgraphNode, given: In<CUDA_KERNEL_NODE_PARAMS_v1>) |driver| {
        let kind = params::kernel(driver, &params::from_v1(&given.get()?))?;
        replace(&mut driver.sched(), node, kind)
    }

    /// Changes a kernel.
    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, given: In<CUDA_KERNEL_NODE_PARAMS>) |driver| {
        let kind = params::kernel(driver, &given.get()?)?;
        replace(&mut driver.sched(), node, kind)
    }

    /// An attribute of a kernel; zeros if it was not set.
    fn cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: u32, value: Out<[u8; 64]>) |driver| {
        if !is_kernel_attribute(attribute) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        value.set(with_kernel(driver, node, |k| Ok(k.attributes.get(&attribute).copied().unwrap_or([0; 64])))?)
    }

    /// Sets an attribute of a kernel.
    fn cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: u32, value: In<[u8; 64]>) |driver| {
        if !is_kernel_attribute(attribute) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let value = value.get()?;
        with_kernel(driver, node, |kernel| {
            kernel.attributes.insert(attribute, value);
            Ok(())
        })
    }

    /// Copies all attributes from one kernel to another.
    fn cuGraphKernelNodeCopyAttributes(target: CUgraphNode, source: CUgraphNode) |driver| {
        let attributes = with_kernel(driver, source, |kernel| Ok(kernel.attributes.clone()))?;
        with_kernel(driver, target, |kernel| {
            kernel.attributes = attributes;
            Ok(())
        })
    }

    /// Parameters of a copy.
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, out: Out<CopyNode>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Copy { copy, .. } => out.set(*copy),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes a copy.
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: In<CopyNode>) |driver| {
        let kind = params::copy(driver, copy.get()?, CUcontext::NULL)?;
        replace(&mut driver.sched(), node, kind)
    }

    /// Parameters of a memset.
    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, out: Out<SetNode>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Set { set, .. } => out.set(*set),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes a memset.
    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, set: In<SetNode>) |driver| {
        let kind = params::set(driver, set.get()?, CUcontext::NULL)?;
        replace(&mut driver.sched(), node, kind)
    }

    /// Parameters of a call.
    fn cuGraphHostNodeGetParams(node: CUgraphNode, out: Out<HostParams>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Host(call) => out.set(params::of_host(call)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes a call.
    fn cuGraphHostNodeSetParams(node: CUgraphNode, host: In<HostParams>) |driver| {
        let kind = params::host(&host.get()?)?;
        replace(&mut driver.sched(), node, kind)
    }

    /// The graph inside of a node.
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: Out<CUgraph>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Child(child) => graph.set(graph_handle(*child)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The event that a node records.
    fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::RecordEvent { event: handle } => event.set(CUevent(*handle as usize as *mut c_void)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes the event that a node records.
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) |driver| {
        let mut state = driver.sched();
        state.event(event)?;
        replace(&mut state, node, NodeKind::RecordEvent { event: event.addr() })
    }

    /// The event that a node waits for.
    fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::WaitEvent { event: handle } => event.set(CUevent(*handle as usize as *mut c_void)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes the event that a node waits for.
    fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) |driver| {
        let mut state = driver.sched();
        state.event(event)?;
        replace(&mut state, node, NodeKind::WaitEvent { event: event.addr() })
    }

    /// Parameters of an allocation.
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Alloc { device, bytes, address } => out.set(params::of_alloc(*device, *bytes, *address)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Address that a node frees.
    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, out: Out<CUdeviceptr>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::Free { address } => out.set(*address),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Memory operations of a node that the program made. The list lives as long as the node.
    fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, out: Out<[u64; 4]>) |driver| {
        match &driver.sched().graphs.node(node.addr())?.kind {
            NodeKind::MemoryOps { context, raw: Some(raw), .. } => {
                out.set([*context, raw.len() as u64, raw.as_ptr() as usize as u64, 0])
            }
            NodeKind::MemoryOps { .. } => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes memory operations.
    fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, ops: In<MemoryOpsParams>) |driver| {
        let kind = params::memory_ops(&ops.get()?)?;
        replace(&mut driver.sched(), node, kind)
    }

    /// Parameters of a node of any kind.
    fn cuGraphNodeGetParams(node: CUgraphNode, out: Out<AnyParams>) |driver| {
        let params = params::of_any(&driver.sched().graphs.node(node.addr())?.kind)?;
        out.set(params)
    }

    /// Changes a node of any kind.
    fn cuGraphNodeSetParams(node: CUgraphNode, params: In<AnyParams>) |driver| {
        set_any(driver, node, params)
    }
}
