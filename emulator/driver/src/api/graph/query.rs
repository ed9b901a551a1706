//! Entry points that make, ask, copy and destroy graphs.

use std::ffi::{c_char, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::{Edge, EdgeData, NodeKind};
use crate::engine::graph::state::Condition;
use crate::engine::lifetime;
use crate::util::ffi::{Answer, In, Out, Text};

/// A node's handle as C programs know it.
pub fn node_handle(node: u64) -> CUgraphNode {
    CUgraphNode(node as usize as *mut c_void)
}

/// A graph's handle as C programs know it.
pub fn graph_handle(graph: u64) -> CUgraph {
    CUgraph(graph as usize as *mut c_void)
}

/// The two-step protocol of lists: without a list only the number is written; with one as many as fit are
/// written, what is left over is filled with null, and then how many these were.
fn fill<T: Copy>(list: Out<T>, count: Out<usize>, found: &[T], null: T) -> Answer {
    count.required()?;
    if list.is_null() {
        return count.set(found.len());
    }
    let room = count.get()?;
    for index in 0..room {
        list.set_at(index, found.get(index).copied().unwrap_or(null))?;
    }
    count.set(found.len().min(room))
}

fn edges(
    driver: &'static Driver,
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Option<Out<EdgeData>>,
    count: Out<usize>,
) -> Answer {
    count.required()?;
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let found = driver.sched().graphs.edges(graph.addr())?;
    let asked_data = data.filter(|d| !d.is_null());
    // The older form has no place for the data of edges.
    if asked_data.is_none() && !from.is_null() && found.iter().any(|(_, _, d)| *d != EdgeData::default()) {
        return Err(CUDA_ERROR_LOSSY_QUERY);
    }
    let room = if from.is_null() { 0 } else { count.get()? };
    for index in 0..room {
        let edge = found.get(index);
        from.set_at(index, edge.map_or(CUgraphNode::NULL, |e| node_handle(e.0)))?;
        to.set_at(index, edge.map_or(CUgraphNode::NULL, |e| node_handle(e.1)))?;
        if let Some(data) = asked_data {
            data.set_at(index, edge.map_or(EdgeData::default(), |e| e.2))?;
        }
    }
    count.set(if from.is_null() { found.len() } else { found.len().min(room) })
}

fn neighbours(
    found: &[(u64, EdgeData)],
    list: Out<CUgraphNode>,
    data: Option<Out<EdgeData>>,
    count: Out<usize>,
) -> Answer {
    let nodes: Vec<CUgraphNode> = found.iter().map(|(n, _)| node_handle(*n)).collect();
    let asked_data = data.filter(|d| !d.is_null());
    if asked_data.is_none() && !list.is_null() && found.iter().any(|(_, d)| *d != EdgeData::default()) {
        return Err(CUDA_ERROR_LOSSY_QUERY);
    }
    if let Some(data) = asked_data
        && !list.is_null()
    {
        let room = count.get()?;
        for index in 0..room {
            data.set_at(index, found.get(index).map_or(EdgeData::default(), |(_, d)| *d))?;
        }
    }
    fill(list, count, &nodes, CUgraphNode::NULL)
}

fn before(driver: &'static Driver, node: CUgraphNode) -> Answer<Vec<(u64, EdgeData)>> {
    Ok(driver.sched().graphs.node(node.addr())?.before.iter().map(|e: &Edge| (e.from, e.data)).collect())
}

/// Reads edges as three lists.
fn read_edges(
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    data: Option<In<EdgeData>>,
    count: usize,
) -> Answer<Vec<(u64, u64, EdgeData)>> {
    let (from, to) = (from.list(count)?, to.list(count)?);
    let data = match data.filter(|d| !d.is_null()) {
        Some(data) => data.list(count)?,
        None => vec![EdgeData::default(); count],
    };
    Ok(from.iter().zip(to).zip(data).map(|((f, t), d)| (f.addr(), t.addr(), d)).collect())
}

fn dot(driver: &'static Driver, graph: u64) -> Answer<String> {
    use std::fmt::Write as _;
    let state = driver.sched();
    let mut text = String::from("digraph dot {\n");
    for node in &state.graphs.graph(graph)?.nodes {
        let node = state.graphs.node(*node)?;
        let label = match &node.kind {
            NodeKind::Kernel(kernel) => kernel.info.name.replace('"', "'"),
            other => format!("{:?}", other.number().0),
        };
        let _ = writeln!(text, "  n{} [label=\"{label}\"];", node.local_id);
        for edge in &node.before {
            let _ = writeln!(text, "  n{} -> n{};", state.graphs.node(edge.from)?.local_id, node.local_id);
        }
    }
    text.push_str("}\n");
    Ok(text)
}

entry_points! {
    /// Makes an empty graph.
    fn cuGraphCreate(graph: Out<CUgraph>, flags: c_uint) |driver| {
        graph.required()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graph.set(graph_handle(driver.sched().graphs.create()))
    }

    /// Destroys a graph with its nodes.
    fn cuGraphDestroy(graph: CUgraph) |driver| {
        let mut state = driver.sched();
        if state.graphs.graph(graph.addr())?.parent.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.graphs.destroy(&driver.memory, graph.addr());
        state.bury_objects(driver);
        Ok(())
    }

    /// Copies a graph.
    fn cuGraphClone(copy: Out<CUgraph>, graph: CUgraph) |driver| {
        copy.required()?;
        let made = driver.sched().graphs.clone_graph(graph.addr())?;
        copy.set(graph_handle(made))
    }

    /// The node of a clone that stands for a node of the original.
    fn cuGraphNodeFindInClone(node: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) |driver| {
        node.required()?;
        let state = driver.sched();
        let graph = state.graphs.graph(clone.addr())?;
        let is_it = |n: &&u64| state.graphs.node(**n).is_ok_and(|n| n.original == Some(original.addr()));
        node.set(node_handle(*graph.nodes.iter().find(is_it).ok_or(CUDA_ERROR_INVALID_VALUE)?))
    }

    /// A graph's number.
    fn cuGraphGetId(graph: CUgraph, id: Out<c_uint>) |driver| {
        id.set(driver.sched().graphs.graph(graph.addr())?.id)
    }

    /// Nodes of a graph.
    fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) |driver| {
        let found: Vec<CUgraphNode> =
            driver.sched().graphs.graph(graph.addr())?.nodes.iter().map(|n| node_handle(*n)).collect();
        fill(nodes, count, &found, CUgraphNode::NULL)
    }

    /// Nodes of a graph that depend on none.
    fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) |driver| {
        let state = driver.sched();
        let is_root = |n: &&u64| state.graphs.node(**n).is_ok_and(|n| n.before.is_empty());
        let found: Vec<CUgraphNode> =
            state.graphs.graph(graph.addr())?.nodes.iter().filter(is_root).map(|n| node_handle(*n)).collect();
        fill(nodes, count, &found, CUgraphNode::NULL)
    }

    /// Edges of a graph.
    fn cuGraphGetEdges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>) |driver| {
        edges(driver, graph, from, to, None, count)
    }

    /// Edges of a graph with their data.
    fn cuGraphGetEdges_v2(
        graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, data: Out<EdgeData>, count: Out<usize>,
    ) |driver| {
        edges(driver, graph, from, to, Some(data), count)
    }

    /// Nodes that a node depends on.
    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) |driver| {
        neighbours(&before(driver, node)?, nodes, None, count)
    }

    /// Nodes that a node depends on, with the edges' data.
    fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, data: Out<EdgeData>, count: Out<usize>,
    ) |driver| {
        neighbours(&before(driver, node)?, nodes, Some(data), count)
    }

    /// Nodes that depend on a node.
    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) |driver| {
        let found = driver.sched().graphs.after(node.addr())?;
        neighbours(&found, nodes, None, count)
    }

    /// Nodes that depend on a node, with the edges' data.
    fn cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode, nodes: Out<CUgraphNode>, data: Out<EdgeData>, count: Out<usize>,
    ) |driver| {
        let found = driver.sched().graphs.after(node.addr())?;
        neighbours(&found, nodes, Some(data), count)
    }

    /// Adds edges.
    fn cuGraphAddDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) |driver| {
        let list = read_edges(from, to, None, count)?;
        driver.sched().graphs.connect(graph.addr(), &list)
    }

    /// Adds edges with data.
    fn cuGraphAddDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<EdgeData>, count: usize,
    ) |driver| {
        let list = read_edges(from, to, Some(data), count)?;
        driver.sched().graphs.connect(graph.addr(), &list)
    }

    /// Takes edges away.
    fn cuGraphRemoveDependencies(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) |driver| {
        let list = read_edges(from, to, None, count)?;
        driver.sched().graphs.disconnect(graph.addr(), &list)
    }

    /// Takes edges with data away.
    fn cuGraphRemoveDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<EdgeData>, count: usize,
    ) |driver| {
        let list = read_edges(from, to, Some(data), count)?;
        driver.sched().graphs.disconnect(graph.addr(), &list)
    }

    /// Kind of a node.
    fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<CUgraphNodeType>) |driver| {
        kind.set(driver.sched().graphs.node(node.addr())?.kind.number())
    }

    /// Graph that a node is in.
    fn cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: Out<CUgraph>) |driver| {
        graph.set(graph_handle(driver.sched().graphs.node(node.addr())?.graph))
    }

    /// A node's number in its graph.
    fn cuGraphNodeGetLocalId(node: CUgraphNode, id: Out<c_uint>) |driver| {
        id.set(driver.sched().graphs.node(node.addr())?.local_id)
    }

    /// A number that tells a node from all others: graph and node.
    fn cuGraphNodeGetToolsId(node: CUgraphNode, id: Out<u64>) |driver| {
        let state = driver.sched();
        let node = state.graphs.node(node.addr())?;
        let graph = state.graphs.graph(node.graph)?.id;
        id.set(u64::from(graph) << 32 | u64::from(node.local_id))
    }

    /// Takes a node out of its graph.
    fn cuGraphDestroyNode(node: CUgraphNode) |driver| {
        driver.sched().graphs.destroy_node(&driver.memory, node.addr())
    }

    /// Writes a graph in the DOT language: names of kernels, numbers of other kinds, edges.
    fn cuGraphDebugDotPrint(graph: CUgraph, path: Text, _flags: c_uint) |driver| {
        let text = dot(driver, graph.addr())?;
        std::fs::write(path.get()?, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Makes a condition for a node of the graph.
    fn cuGraphConditionalHandleCreate(
        handle: Out<u64>, graph: CUgraph, context: CUcontext, default: c_uint, flags: c_uint,
    ) |driver| {
        handle.required()?;
        const ASSIGN_DEFAULT: c_uint = 1;
        if flags > ASSIGN_DEFAULT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = lifetime::given_or_current(driver, context)?.handle.addr();
        let graphs = &mut driver.sched().graphs;
        graphs.graph(graph.addr())?;
        let made = driver.handles.next();
        let default = (flags == ASSIGN_DEFAULT).then_some(default);
        graphs.conditions.insert(made, Condition { graph: graph.addr(), context, default });
        handle.set(made)
    }
}

/// Cuts a text to the caller's buffer; no text where there is no buffer.
pub fn set_log(buffer: Out<c_char>, size: usize) {
    if size > 0 {
        buffer.set_if_wanted(0);
    }
}
