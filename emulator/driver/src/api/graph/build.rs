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
    let bodies = if let NodeKind::Conditional(node) = &kind { node.bodies.to_vec() } else { Vec::new() };
    let made = state.graphs.add(graph.addr(), &edges, kind);
    if let (Err(_), Some(address)) = (&made, leftover) {
        state.graphs.let_go(&driver.memory, address);
    }
    if made.is_err() {
        bodies.into_iter().for_each(|body| state.graphs.destroy(&driver.memory, body));
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
    add(driver, out, graph, before, data, count, |state| {
        params::any(driver, state, Some(graph.addr()), &mut params)
    })?;
    given.set(params)
}

/// Writes entry points that add a node behind others: their further arguments, and the kind of the node.
macro_rules! add_nodes {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) |$driver:ident, $state:pat_param| $kind:expr;)*) => {
        entry_points! { $(
            $(#[$meta])*
            fn $name(
                out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize, $($arg: $ty),*
            ) |$driver| {
                add($driver, out, graph, before, None, count, |$state| $kind)
            }
        )* }
    };
}

fn known_event(state: &mut Sched, event: CUevent) -> Answer<u64> {
    state.event(event).map(|_| event.addr())
}

add_nodes! {
    /// Adds a kernel.
    fn cuGraphAddKernelNode(given: In<CUDA_KERNEL_NODE_PARAMS_v1>) |driver, _| {
        params::kernel(driver, &params::from_v1(&given.get()?))
    };
    /// Adds a kernel.
    fn cuGraphAddKernelNode_v2(given: In<CUDA_KERNEL_NODE_PARAMS>) |driver, _| params::kernel(driver, &given.get()?);
    /// Adds a copy.
    fn cuGraphAddMemcpyNode(copy: In<CopyNode>, context: CUcontext) |driver, _| {
        params::copy(driver, copy.get()?, context)
    };
    /// Adds a memset.
    fn cuGraphAddMemsetNode(set: In<SetNode>, context: CUcontext) |driver, _| params::set(driver, set.get()?, context);
    /// Adds a call of the program.
    fn cuGraphAddHostNode(host: In<HostParams>) |driver, _| params::host(&host.get()?);
    /// Adds a copy of a graph.
    fn cuGraphAddChildGraphNode(child: CUgraph) |driver, state| {
        state.graphs.clone_graph(child.addr()).map(NodeKind::Child)
    };
    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode() |driver, _| Ok(NodeKind::Empty);
    /// Adds the recording of an event.
    fn cuGraphAddEventRecordNode(event: CUevent) |driver, state| {
        Ok(NodeKind::RecordEvent { event: known_event(state, event)? })
    };
    /// Adds a wait for an event.
    fn cuGraphAddEventWaitNode(event: CUevent) |driver, state| {
        Ok(NodeKind::WaitEvent { event: known_event(state, event)? })
    };
    /// Adds the freeing of an allocation node's memory.
    fn cuGraphAddMemFreeNode(address: CUdeviceptr) |driver, state| params::free(state, address);
    /// Adds memory operations.
    fn cuGraphAddBatchMemOpNode(ops: In<MemoryOpsParams>) |driver, _| params::memory_ops(&ops.get()?);
    /// External semaphores do not exist here.
    fn cuGraphAddExternalSemaphoresSignalNode(_params: *const c_void) |driver, _| Err(CUDA_ERROR_NOT_SUPPORTED);
}

entry_points! {
    /// Adds an allocation; its address is written into the parameters.
    fn cuGraphAddMemAllocNode(
        out: Out<CUgraphNode>, graph: CUgraph, before: In<CUgraphNode>, count: usize,
        params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) |driver| {
        let mut given = params.get()?;
        add(driver, out, graph, before, None, count, |state| params::alloc(driver, state, &mut given))?;
        params.set(given)
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
}
