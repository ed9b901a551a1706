//! Entry points of capture.

use std::cell::RefCell;
use std::ffi::c_uint;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::EdgeData;
use crate::engine::stream::capture::exchange_mode;
use crate::engine::stream::state::Sched;
use crate::util::ffi::{Answer, In, Out};

thread_local! {
    /// Nodes and edge data that the last `cuStreamGetCaptureInfo` of this thread points to.
    static ANSWERED: RefCell<(Vec<CUgraphNode>, Vec<EdgeData>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

fn begin(
    driver: &'static Driver,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    into: Option<(u64, Vec<u64>)>,
) -> Answer {
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    state.begin_capture(driver, key, mode, into)
}

struct Info {
    status: CUstreamCaptureStatus,
    id: u64,
    graph: u64,
    nodes: Vec<u64>,
}

fn info(driver: &'static Driver, stream: CUstream) -> Answer<Info> {
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    let (status, capture) = state.capture_status(key)?;
    let (id, graph) = capture.map_or((0, 0), |c| (c.id, c.graph));
    let nodes = if status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
        state.stream(key)?.frontier.clone()
    } else {
        Vec::new()
    };
    Ok(Info { status, id, graph, nodes })
}

fn node(handle: u64) -> CUgraphNode {
    CUgraphNode(handle as usize as *mut std::ffi::c_void)
}

/// Nodes, data of their edges where asked for, and their number.
type Lists = (Out<*const CUgraphNode>, Option<Out<*const EdgeData>>, Out<usize>);

fn long_info(
    driver: &'static Driver,
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    (nodes, edges, count): Lists,
) -> Answer {
    status.required()?;
    let info = info(driver, stream)?;
    status.set(info.status)?;
    if info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    id.set_if_wanted(info.id);
    graph.set_if_wanted(CUgraph(info.graph as usize as *mut std::ffi::c_void));
    count.set_if_wanted(info.nodes.len());
    ANSWERED.with_borrow_mut(|(kept, kept_edges)| {
        *kept = info.nodes.into_iter().map(node).collect();
        *kept_edges = vec![EdgeData::default(); kept.len()];
        nodes.set_if_wanted(kept.as_ptr());
        if let Some(edges) = edges {
            edges.set_if_wanted(kept_edges.as_ptr());
        }
    });
    Ok(())
}

/// Nodes as a caller lists them, checked to be of a graph.
fn nodes_of(state: &Sched, graph: u64, list: &[CUgraphNode]) -> Answer<Vec<u64>> {
    list.iter()
        .map(|n| {
            let handle = n.addr();
            (state.graphs.graph_of(handle) == Some(graph)).then_some(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
        })
        .collect()
}

fn update(
    driver: &'static Driver,
    stream: CUstream,
    list: In<CUgraphNode>,
    count: usize,
    flags: c_uint,
) -> Answer {
    const SET: c_uint = 1;
    if flags > SET {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let list = list.list(count)?;
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    let id = state.admit(key)?.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
    let graph = state.captures.get(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?.graph;
    let nodes = nodes_of(&state, graph, &list)?;
    let frontier = &mut state.stream_mut(key)?.frontier;
    if flags == SET {
        frontier.clear();
    }
    for node in nodes {
        if !frontier.contains(&node) {
            frontier.push(node);
        }
    }
    Ok(())
}

entry_points! {
    /// Begins a capture in global mode.
    fn cuStreamBeginCapture(stream: CUstream) |driver| {
        begin(driver, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, None)
    }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) |driver| {
        begin(driver, stream, mode, None)
    }

    /// Begins a capture that adds to a graph behind given nodes.
    fn cuStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, list: In<CUgraphNode>, _edges: In<EdgeData>, count: usize,
        mode: CUstreamCaptureMode,
    ) |driver| {
        let list = list.list(count)?;
        let into = {
            let state = driver.sched();
            state.graphs.graph(graph.addr())?;
            (graph.addr(), nodes_of(&state, graph.addr(), &list)?)
        };
        begin(driver, stream, mode, Some(into))
    }

    /// Ends a capture. The graph is null if it failed.
    fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) |driver| {
        graph.required()?;
        graph.set(CUgraph::NULL)?;
        let mut state = driver.sched();
        let key = state.find(driver, stream)?;
        let made = state.end_capture(driver, key)?;
        graph.set(CUgraph(made as usize as *mut std::ffi::c_void))
    }

    /// State of a stream.
    fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) |driver| {
        status.required()?;
        status.set(info(driver, stream)?.status)
    }

    /// State of a stream and number of its capture.
    fn cuStreamGetCaptureInfo(stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>) |driver| {
        status.required()?;
        let info = info(driver, stream)?;
        status.set(info.status)?;
        if info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
            id.set_if_wanted(info.id);
        }
        Ok(())
    }

    /// As before, and the graph with the nodes that the next operation will depend on.
    fn cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, count: Out<usize>,
    ) |driver| {
        long_info(driver, stream, status, id, graph, (nodes, None, count))
    }

    /// As before, and the edges.
    fn cuStreamGetCaptureInfo_v3(
        stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>,
        nodes: Out<*const CUgraphNode>, edges: Out<*const EdgeData>, count: Out<usize>,
    ) |driver| {
        long_info(driver, stream, status, id, graph, (nodes, Some(edges), count))
    }

    /// Adds to or replaces the nodes that the next operation will depend on.
    fn cuStreamUpdateCaptureDependencies(stream: CUstream, list: In<CUgraphNode>, count: usize, flags: c_uint) |driver| {
        update(driver, stream, list, count, flags)
    }

    /// As before; edges other than the plain one are not modelled.
    fn cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream, list: In<CUgraphNode>, _edges: In<EdgeData>, count: usize, flags: c_uint,
    ) |driver| {
        update(driver, stream, list, count, flags)
    }

    /// Exchanges the mode that decides which captures the calling thread respects.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>) |_driver| {
        let wanted = mode.get()?;
        if wanted.0 > CU_STREAM_CAPTURE_MODE_RELAXED.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        mode.set(exchange_mode(wanted))
    }
}
