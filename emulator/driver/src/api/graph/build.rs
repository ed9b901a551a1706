//! Entry points that add nodes.

use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::api::graph::params::{self, AnyParams, HostParams, MemoryOpsParams};
use crate::api::graph::query::node_handle;
use crate::engine::driver::Driver;
use crate::engine::graph::node::{Edge, EdgeData, NodeKind};
use crate::engine::stream::state::Sched;
use crate::models::copy::{CopyNode, SetNode};
use crate::util::ffi::{Answer, In, Out};

/// Adds a node of a kind that `make` gives, behind others.
fn add(
    driver: &'static Driver,
    out: Out<CUgraphNode>,
    graph: CUgraph,
    before: In<CUgraphNode>,
    data: Option<In<EdgeData>>,
    count: usize,
    make: impl FnOnce(&mut Sched) -> Answer<NodeKind>,
) -> Answer {
    out.required()?;
    let nodes = before.list(count)?;
    let data = match data.filter(|d| !d.is_null()) {
        Some(data) => data.list(count)?,
        None => vec![EdgeData::default(); count],
    };
    let edges: Vec<Edge> = nodes.iter().zip(data).map(|(n, data)| Edge { from: n.addr(), data }).collect();
    let mut state = driver.sched();
    state.graphs.graph(graph.addr())?;
    let kind = make(&mut state)?;
    let leftover = if let NodeKind::Alloc { address, .. } = kind { Some(address) } else { None };
    let made = state.graphs.add(graph.addr(), &edges, kind);
    if let (Err(_), Some(address)) = (&made, leftover) {
        state.graphs.let_go(&driver.memory, address);
    }
    out.set(node_handle(made?))
}

fn add_any(
    driver: &'static Driver,
    out: Out<CUgraphNode>,
    graph: CUgraph,
    before: In<CUgraphNode>,
    data: Option<In<EdgeData>>,
    count: usize,
    given: Out<AnyParams>,
) -> Answer {
    let mut params = given.get()?;
    add(driver, out, graph, before, data, count, |state| params::any(driver, state, &mut params))?;
    given.set(params)
}

entry_points! {
    /// Adds a kernel.
    fn cuGraphAddKernelNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
    ) |driver| {
        let given = params::from_v1(&params.get()?);
        add(driver, out, graph, before, None, count, |_| params::kernel(driver, &given))
    }

    /// Adds a kernel.
    fn cuGraphAddKernelNode_v2(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS>,
    ) |driver| {
        let given = params.get()?;
        add(driver, out, graph, before, None, count, |_| params::kernel(driver, &given))
    }

    /// Adds a copy.
    fn cuGraphAddMemcpyNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, copy: In<CopyNode>,
        context: CUcontext,
    ) |driver| {
        let copy = copy.get()?;
        add(driver, out, graph, before, None, count, |_| params::copy(driver, copy, context))
    }

    /// Adds a memset.
    fn cuGraphAddMemsetNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, set: In<SetNode>,
        context: CUcontext,
    ) |driver| {
        let set = set.get()?;
        add(driver, out, graph, before, None, count, |_| params::set(driver, set, context))
    }

    /// Adds a call of the program.
    fn cuGraphAddHostNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, host: In<HostParams>,
    ) |driver| {
        let host = host.get()?;
        add(driver, out, graph, before, None, count, |_| params::host(&host))
    }

    /// Adds a copy of a graph.
    fn cuGraphAddChildGraphNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, child: CUgraph,
    ) |driver| {
        add(driver, out, graph, before, None, count, |state| params::child(state, child, 0))
    }

    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode(out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize) |driver| {
        add(driver, out, graph, before, None, count, |_| Ok(NodeKind::Empty))
    }

    /// Adds the recording of an event.
    fn cuGraphAddEventRecordNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, event: CUevent,
    ) |driver| {
        add(driver, out, graph, before, None, count, |state| {
            state.event(event)?;
            Ok(NodeKind::RecordEvent { event: event.addr() })
        })
    }

    /// Adds a wait for an event.
    fn cuGraphAddEventWaitNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, event: CUevent,
    ) |driver| {
        add(driver, out, graph, before, None, count, |state| {
            state.event(event)?;
            Ok(NodeKind::WaitEvent { event: event.addr() })
        })
    }

    /// Adds an allocation; its address is written into the parameters.
    fn cuGraphAddMemAllocNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize,
        params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) |driver| {
        let mut given = params.get()?;
        add(driver, out, graph, before, None, count, |state| params::alloc(driver, state, &mut given))?;
        params.set(given)
    }

    /// Adds the freeing of an allocation node's memory.
    fn cuGraphAddMemFreeNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, address: CUdeviceptr,
    ) |driver| {
        add(driver, out, graph, before, None, count, |state| params::free(state, address))
    }

    /// Adds memory operations.
    fn cuGraphAddBatchMemOpNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, ops: In<MemoryOpsParams>,
    ) |driver| {
        let ops = ops.get()?;
        add(driver, out, graph, before, None, count, |_| params::memory_ops(&ops))
    }

    /// Adds a node of any kind.
    fn cuGraphAddNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, params: Out<AnyParams>,
    ) |driver| {
        add_any(driver, out, graph, before, None, count, params)
    }

    /// Adds a node of any kind, with data of the edges.
    fn cuGraphAddNode_v2(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, data: In<EdgeData>, count: usize,
        params: Out<AnyParams>,
    ) |driver| {
        add_any(driver, out, graph, before, Some(data), count, params)
    }

    /// As `cuGraphAddNode_v2`.
    fn cuGraphAddNode_v3(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, data: In<EdgeData>, count: usize,
        params: Out<AnyParams>,
    ) |driver| {
        add_any(driver, out, graph, before, Some(data), count, params)
    }

    /// External semaphores do not exist here.
    fn cuGraphAddExternalSemaphoresSignalNode(
        _out: Out<CUgraphNode>, graph: CUgraph, _before: In<CUgraphNode>, _count: usize, _params: *const c_void,
    ) |driver| {
        driver.sched().graphs.graph(graph.addr())?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}
