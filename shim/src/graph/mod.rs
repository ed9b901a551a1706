//! Executable graphs and the kernels that they launch.
//!
//! At instantiation the graph's kernel nodes are read into a [`plan`]; a launch of the executable
//! graph adds the plan's totals to the thread's counters. Changes of the executable graph change its
//! plan.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::memory;
use crate::telemetry::{Bypass, EventKind, GraphLaunches, KernelId, KernelsMode};
use crate::throttle;

mod params;
mod plan;
mod plans;
pub(crate) mod timing;
mod walk;

use params::{AnyNodeParams, KernelParams};
use plan::{Plan, Work};
pub(crate) use plans::Graphs;

/// `cuGraphLaunch`: a captured launch becomes a node and starts nothing.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn launch(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    let captured = cx.capturing(stream);
    let passed = (throttle::is_set() && !captured).then(|| {
        let kernels =
            cx.page.graphs.plan(exec).map_or(1, |plan| plan.totals().map(|total| total.launches).sum());
        throttle::hold(cx, stream, kernels)
    });
    // Found before the call: after it the work may be done and the graph destroyed by another thread.
    let plan = cx.page.graphs.plan(exec).map(|plan| (plan, plan.serial()));
    let room = match memory::graph::room(cx, exec, captured) {
        Ok(room) => room,
        Err(code) => return code,
    };
    let result = match plan {
        Some((plan, _)) if !captured && cx.page.kernels.timing.mode().is_timed() => {
            timing::launch(cx, call, plan, stream)
        }
        _ => call(),
    };
    if let Some(passed) = passed {
        passed.launched(cx, stream, result.is_ok());
    }
    room.settle(cx);
    if let Some(lane) = cx.tls().lane.get().filter(|_| result.is_ok() && !captured && counts(cx)) {
        lane.graph(cx.writer());
        match plan {
            Some((plan, serial)) if plan.serial() == serial => {
                for total in plan.totals() {
                    let kernel = KernelId::from_number(total.kernel.into());
                    let Work { launches, blocks, threads, shared: dynamic_shared, .. } = total;
                    let sum = GraphLaunches { launches, blocks, threads, dynamic_shared };
                    lane.graph_kernel(cx.writer(), kernel, sum);
                }
            }
            _ => cx.bypass(Bypass::GraphUnknown),
        }
    }
    result
}

/// Returns true if launches are counted at all.
fn counts(cx: &Cx<'_>) -> bool {
    cx.page.kernels.timing.mode() != KernelsMode::Off
}

/// After an instantiation, whatever its form.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn instantiate(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: *mut CUgraphExec,
    graph: CUgraph,
) -> CUresult {
    let result = call();
    if result.is_ok() && !exec.is_null() {
        // SAFETY: the driver has written there.
        let exec = unsafe { *exec };
        memory::graph::instantiated(cx, exec, || walk::allocations(cx, graph));
        let nodes = walk::kernel_nodes(cx, graph);
        let kernels = nodes.as_ref().map_or(0, |n| n.as_slice().len() as u64);
        if !nodes.is_some_and(|nodes| cx.page.graphs.put(exec, nodes.as_slice())) {
            cx.bypass(Bypass::GraphUnknown);
        }
        cx.event(EventKind::GraphInstantiated, None, exec.addr(), kernels);
    }
    result
}

/// Around `cuGraphExecDestroy`: forgotten before, because the driver may hand out the handle again
/// before the call is back.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn destroy(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, exec: CUgraphExec) -> CUresult {
    let word = cx.page.graphs.take(exec);
    let needs = memory::graph::forget(exec);
    let result = call();
    if let Some(word) = word {
        if !result.is_ok() {
            cx.page.graphs.put_back(exec, word);
            memory::graph::remember(exec, needs);
        } else if let Some(plan) = Plan::from_word(word) {
            plan.free();
        }
    }
    result
}

/// After `cuGraphExecUpdate`: the parameters of another graph of the same shape. Nodes keep the
/// handles by which the program knows them, and whether they are disabled.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn update(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    graph: CUgraph,
) -> CUresult {
    let result = call();
    if !result.is_ok() {
        return result;
    }
    let graphs = &cx.page.graphs;
    let known = match (walk::kernel_nodes(cx, graph), graphs.plan(exec)) {
        (Some(nodes), Some(plan)) if plan.len() == nodes.as_slice().len() => {
            for (at, node) in nodes.as_slice().iter().enumerate() {
                plan.set_work(at, node.work);
            }
            true
        }
        (Some(nodes), _) => graphs.put(exec, nodes.as_slice()),
        (None, _) => false,
    };
    if !known {
        cx.bypass(Bypass::GraphUnknown);
    }
    result
}

fn set_work(cx: &Cx<'_>, exec: CUgraphExec, node: CUgraphNode, work: Work) {
    match cx.page.graphs.plan(exec).and_then(|plan| Some((plan, plan.find(node.addr())?))) {
        Some((plan, at)) => plan.set_work(at, work),
        None => cx.bypass(Bypass::GraphUnknown),
    }
}

/// After `cuGraphExecKernelNodeSetParams`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn set_kernel<P>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const P,
) -> CUresult
where
    for<'p> KernelParams: From<&'p P>,
{
    let result = call();
    // SAFETY: null, or what the driver has just read.
    if let Some(params) = unsafe { params.as_ref() }.filter(|_| result.is_ok()) {
        set_work(cx, exec, node, KernelParams::from(params).work(cx));
    }
    result
}

/// After `cuGraphExecNodeSetParams`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn set_node(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut c_void,
) -> CUresult {
    let result = call();
    // SAFETY: null, or what the driver has just read.
    if let Some(params) = unsafe { params.cast::<AnyNodeParams>().as_ref() }.filter(|_| result.is_ok()) {
        match params.kind {
            CU_GRAPH_NODE_TYPE_KERNEL => set_work(cx, exec, node, params.kernel().work(cx)),
            CU_GRAPH_NODE_TYPE_GRAPH => replace_group(cx, exec, node, params.child()),
            _ => {}
        }
    }
    result
}

/// After `cuGraphExecChildGraphNodeSetParams`.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn set_child(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> CUresult {
    let result = call();
    if result.is_ok() {
        replace_group(cx, exec, node, child);
    }
    result
}

fn replace_group(cx: &Cx<'_>, exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
    if regrouped(cx, exec, node, child).is_none() {
        cx.bypass(Bypass::GraphUnknown);
    }
}

/// The child graph must have the shape of the one before; its nodes keep the handles that they had.
fn regrouped(cx: &Cx<'_>, exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Option<()> {
    let plan = cx.page.graphs.plan(exec)?;
    let head = plan.find(node.addr())?;
    let span = plan.nodes().nth(head)?.span as usize;
    let fresh = walk::kernel_nodes(cx, child)?;
    if fresh.as_slice().len() != span {
        return None;
    }
    for (n, node) in fresh.as_slice().iter().enumerate() {
        plan.set_work(head + 1 + n, node.work);
    }
    Some(())
}

/// After `cuGraphNodeSetEnabled`. Nodes that launch no kernel are not in the plan.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn set_enabled(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: c_uint,
) -> CUresult {
    let result = call();
    if result.is_ok()
        && let Some(plan) = cx.page.graphs.plan(exec)
        && let Some(at) = plan.find(node.addr())
    {
        plan.set_disabled(at, enabled == 0);
    }
    result
}
