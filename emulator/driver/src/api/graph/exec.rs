//! Entry points of executable graphs.

use std::ffi::{c_char, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::api::graph::params::{self, AnyParams, HostParams, MemoryOpsParams};
use crate::api::graph::query::{node_handle, set_log};
use crate::engine::driver::Driver;
use crate::engine::graph::exec::Update;
use crate::engine::graph::node::NodeKind;
use crate::engine::stream::op::not_in_callback;
use crate::engine::stream::state::Sched;
use crate::models::copy::{CopyNode, SetNode};
use crate::util::ffi::{Answer, In, Out};

fn instantiate(driver: &'static Driver, out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Answer {
    out.required()?;
    let made = driver.sched().graphs.instantiate(graph.addr(), flags)?;
    out.set(CUgraphExec(made as usize as *mut c_void))
}

/// `CUDA_GRAPH_INSTANTIATE_*`.
mod outcome {
    pub const SUCCESS: u32 = 0;
    pub const ERROR: u32 = 1;
    pub const NOT_SUPPORTED: u32 = 3;
    pub const CONDITION_UNUSED: u32 = 5;
}

/// Replaces what a node of an executable graph does by something of the same kind.
fn replace(state: &mut Sched, exec: CUgraphExec, node: CUgraphNode, kind: NodeKind) -> Answer {
    let place = state.graphs.exec_node(exec.addr(), node.addr())?;
    match (&place.kind, &kind) {
        (NodeKind::Kernel(old), NodeKind::Kernel(new)) if old.context != new.context => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        (old, new) if old.number() != new.number() || old.is_memory() => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        _ => {}
    }
    let kind = match &place.kind {
        NodeKind::Kernel(old) => params::with_attributes(kind, &old.attributes),
        _ => kind,
    };
    place.kind = kind;
    Ok(())
}

fn update(driver: &'static Driver, exec: CUgraphExec, graph: CUgraph) -> Answer<(Update, Answer)> {
    let mut state = driver.sched();
    let done = state.graphs.update(exec.addr(), graph.addr())?;
    state.bury_objects(driver);
    let answer = if done == Update::Done { Ok(()) } else { Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) };
    Ok((done, answer))
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UpdateInfo {
    /// Outcome of the update: a value of `CUgraphExecUpdateResult`.
    pub result: u32,
    /// Node at fault.
    pub node: CUgraphNode,
    /// Source node of the edge at fault.
    pub from: CUgraphNode,
}

fn launch(driver: &'static Driver, exec: CUgraphExec, stream: CUstream) -> Answer {
    not_in_callback()?;
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    state.launch_graph(driver, exec.addr(), key)
}

entry_points! {
    /// Makes an executable graph, by the oldest interface.
    fn cuGraphInstantiate(
        out: Out<CUgraphExec>, graph: CUgraph, _node: Out<CUgraphNode>, log: Out<c_char>, size: usize,
    ) |driver| {
        set_log(log, size);
        instantiate(driver, out, graph, 0)
    }

    /// As `cuGraphInstantiate`.
    fn cuGraphInstantiate_v2(
        out: Out<CUgraphExec>, graph: CUgraph, _node: Out<CUgraphNode>, log: Out<c_char>, size: usize,
    ) |driver| {
        set_log(log, size);
        instantiate(driver, out, graph, 0)
    }

    /// Makes an executable graph.
    fn cuGraphInstantiateWithFlags(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) |driver| {
        instantiate(driver, out, graph, flags)
    }

    /// Makes an executable graph and says how it went.
    fn cuGraphInstantiateWithParams(
        out: Out<CUgraphExec>, graph: CUgraph, params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
    ) |driver| {
        let mut given = params.get()?;
        let answer = instantiate(driver, out, graph, given.flags);
        given.hErrNode_out = CUgraphNode::NULL;
        given.result_out = match answer {
            Ok(()) => outcome::SUCCESS,
            Err(CUDA_ERROR_NOT_SUPPORTED) => outcome::NOT_SUPPORTED,
            Err(_) if driver.sched().graphs.has_unused_condition(graph.addr()) => outcome::CONDITION_UNUSED,
            Err(_) => outcome::ERROR,
        };
        params.set(given)?;
        answer
    }

    /// Flags that an executable graph was made with.
    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<u64>) |driver| {
        flags.set(driver.sched().graphs.exec(exec.addr())?.flags)
    }

    /// Number of an executable graph.
    fn cuGraphExecGetId(exec: CUgraphExec, id: Out<c_uint>) |driver| {
        id.set(driver.sched().graphs.exec(exec.addr())?.id)
    }

    /// Destroys an executable graph.
    fn cuGraphExecDestroy(exec: CUgraphExec) |driver| {
        let mut state = driver.sched();
        state.graphs.destroy_exec(&driver.memory, exec.addr())?;
        state.bury_objects(driver);
        Ok(())
    }

    /// Launches an executable graph.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) |driver| {
        launch(driver, exec, stream)
    }

    /// Uploading takes no time here.
    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) |driver| {
        let mut state = driver.sched();
        state.graphs.exec(exec.addr())?;
        let key = state.find(driver, stream)?;
        state.not_capturing(key)
    }

    /// Replaces what all nodes do, by the older interface.
    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, result: Out<u32>) |driver| {
        let (done, answer) = update(driver, exec, graph)?;
        let (code, at) = done.code();
        node.set_if_wanted(node_handle(at));
        result.set_if_wanted(code);
        answer
    }

    /// Replaces what all nodes do.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: Out<UpdateInfo>) |driver| {
        let (done, answer) = update(driver, exec, graph)?;
        let (code, at) = done.code();
        info.set_if_wanted(UpdateInfo { result: code, node: node_handle(at), from: CUgraphNode::NULL });
        answer
    }

    /// Changes a kernel.
    fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, given: In<CUDA_KERNEL_NODE_PARAMS_v1>,
    ) |driver| {
        let kind = params::kernel(driver, &params::from_v1(&given.get()?))?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Changes a kernel.
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, given: In<CUDA_KERNEL_NODE_PARAMS>,
    ) |driver| {
        let kind = params::kernel(driver, &given.get()?)?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Changes a copy.
    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, copy: In<CopyNode>, context: CUcontext,
    ) |driver| {
        let kind = params::copy(driver, copy.get()?, context)?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Changes a memset.
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, set: In<SetNode>, context: CUcontext,
    ) |driver| {
        let kind = params::set(driver, set.get()?, context)?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Changes a call.
    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, host: In<HostParams>) |driver| {
        let kind = params::host(&host.get()?)?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Replaces what the nodes inside of a child graph do by what those of a graph of the same shape do.
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph) |driver| {
        let mut state = driver.sched();
        state.graphs.update_child(exec.addr(), node.addr(), graph.addr())?;
        state.bury_objects(driver);
        Ok(())
    }

    /// Changes the event that a node records.
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) |driver| {
        let mut state = driver.sched();
        state.event(event)?;
        replace(&mut state, exec, node, NodeKind::RecordEvent { event: event.addr() })
    }

    /// Changes the event that a node waits for.
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) |driver| {
        let mut state = driver.sched();
        state.event(event)?;
        replace(&mut state, exec, node, NodeKind::WaitEvent { event: event.addr() })
    }

    /// Changes memory operations.
    fn cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, ops: In<MemoryOpsParams>) |driver| {
        let kind = params::memory_ops(&ops.get()?)?;
        replace(&mut driver.sched(), exec, node, kind)
    }

    /// Changes a node of any kind.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: In<AnyParams>) |driver| {
        let mut given = given.get()?;
        let mut state = driver.sched();
        if matches!(given.kind, CU_GRAPH_NODE_TYPE_MEM_ALLOC | CU_GRAPH_NODE_TYPE_MEM_FREE) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let kind = params::any(driver, &mut state, None, &mut given)?;
        replace(&mut state, exec, node, kind)
    }

    /// Reports whether a node is enabled, that is, done at launch.
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<c_uint>) |driver| {
        let on = driver.sched().graphs.exec_node(exec.addr(), node.addr())?.enabled;
        enabled.set(c_uint::from(on))
    }

    /// Sets whether a kernel, copy or memset is done at launch.
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) |driver| {
        let mut state = driver.sched();
        let place = state.graphs.exec_node(exec.addr(), node.addr())?;
        match place.kind {
            NodeKind::Kernel(_) | NodeKind::Copy { .. } | NodeKind::Set { .. } => {
                place.enabled = enabled != 0;
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
