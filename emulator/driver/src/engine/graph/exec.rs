//! Executable graphs: instantiation, launch, update.

use std::collections::{BTreeMap, HashMap};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::{Edge, NodeKind};
use crate::engine::graph::state::{Exec, ExecNode, Graphs, Held, Node};
use crate::engine::launch;
use crate::engine::memory::state::Memory;
use crate::engine::stream::op::Op;
use crate::engine::stream::state::Sched;
use crate::models::launch::Shape;
use crate::models::placement::Phase;
use crate::models::timing::{self, TransferKind};
use crate::util::ffi::Answer;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
pub const AUTO_FREE: u64 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
pub const DEVICE_LAUNCH: u64 = 4;
/// All flags.
pub const ALL_FLAGS: u64 = 15;

/// Outcome of an update: `CUgraphExecUpdateResult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Done.
    Done,
    /// The graphs differ in their edges or number of nodes.
    Topology,
    /// A node does something of another kind.
    NodeType(u64),
    /// A kernel belongs to another context.
    Function(u64),
    /// A parameter changed that must not.
    Parameters(u64),
}

impl Update {
    /// Number in the interface, and the node at fault.
    pub fn code(self) -> (u32, u64) {
        match self {
            Self::Done => (0, 0),
            Self::Topology => (2, 0),
            Self::NodeType(node) => (3, node),
            Self::Function(node) => (4, node),
            Self::Parameters(node) => (5, node),
        }
    }
}

impl Graphs {
    /// Nodes of a graph and the graphs inside of it in order.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn flatten(&self, graph: u64) -> Answer<Vec<ExecNode>> {
        let mut nodes = Vec::new();
        self.flatten_into(graph, &[], None, &mut nodes)?;
        Ok(nodes)
    }

    /// Adds a graph's nodes behind `entry`; gives the places of its last nodes.
    fn flatten_into(
        &self,
        graph: u64,
        entry: &[usize],
        within: Option<(usize, usize)>,
        nodes: &mut Vec<ExecNode>,
    ) -> Answer<Vec<usize>> {
        let order = self.ordered(graph)?;
        // Where each node ends: one place, or several for a child graph.
        let mut ends: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut leaves: Vec<u64> = Vec::new();
        for handle in order {
            let node = self.node(handle)?;
            let mut before: Vec<usize> =
                node.before.iter().flat_map(|e| ends.get(&e.from).cloned().unwrap_or_default()).collect();
            if node.before.is_empty() {
                before.extend(entry);
            }
            leaves.retain(|leaf| !node.before.iter().any(|e| e.from == *leaf));
            leaves.push(handle);
            let mut own = before.clone();
            if !matches!(node.kind, NodeKind::Child(_)) {
                let kind = node.kind.clone();
                nodes.push(ExecNode { source: handle, kind, enabled: true, before, within });
                own = vec![nodes.len() - 1];
            }
            match &node.kind {
                NodeKind::Child(child) => {
                    let ends = self.flatten_into(*child, &own, within, nodes)?;
                    own = if ends.is_empty() { own } else { ends };
                }
                NodeKind::Conditional(node) => {
                    let place = nodes.len() - 1;
                    for (number, body) in node.bodies.iter().enumerate() {
                        own.extend(self.flatten_into(*body, &[place], Some((place, number)), nodes)?);
                    }
                }
                _ => {}
            }
            ends.insert(handle, own);
        }
        Ok(leaves.iter().flat_map(|leaf| ends.get(leaf).cloned().unwrap_or_default()).collect())
    }

    /// Makes an executable graph.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE, also for a graph of a conditional node that holds what it must not;
    /// CUDA_ERROR_NOT_SUPPORTED for a second one of a graph that exists once only, and for one to be launched from the
    /// device that holds what it must not.
    pub fn instantiate(&mut self, graph: u64, flags: u64) -> Answer<u64> {
        if flags & !ALL_FLAGS != 0 || flags & (AUTO_FREE | DEVICE_LAUNCH) == AUTO_FREE | DEVICE_LAUNCH {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let source = self.graph(graph)?;
        if source.parent.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let executables = source.executables;
        let nodes = self.flatten(graph)?;
        if self.has_unused_condition(graph) || !nodes.iter().all(|node| fits_its_body(node, &nodes)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if nodes.iter().any(|n| n.kind.is_single()) && executables > 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let on_device = |kind: &NodeKind| {
            matches!(
                kind,
                NodeKind::Kernel(_) | NodeKind::Copy { .. } | NodeKind::Set { .. } | NodeKind::Empty
            )
        };
        if flags & DEVICE_LAUNCH != 0 && (nodes.is_empty() || !nodes.iter().all(|n| on_device(&n.kind))) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        for node in &nodes {
            if let NodeKind::Alloc { address, .. } = &node.kind
                && let Some(allocation) = self.allocations.get_mut(address)
            {
                allocation.holders += 1;
            }
        }
        let objects = self.objects_of(graph, &[]);
        self.retain(&objects);
        if let Some(source) = self.graphs.get_mut(&graph) {
            source.executables += 1;
        }
        let handle = self.handles.next();
        let id = self.next_id();
        self.execs.insert(handle, Exec { nodes, flags, graph, id, objects, mapped: BTreeMap::new() });
        Ok(handle)
    }

    /// Returns true if a condition of a graph, or of one inside of it, has no node.
    pub fn has_unused_condition(&self, graph: u64) -> bool {
        let family = self.family(graph);
        self.conditions
            .iter()
            .any(|(handle, of)| family.contains(&of.graph) && self.node_of_condition(*handle).is_none())
    }

    /// The node that a condition decides.
    pub fn node_of_condition(&self, handle: u64) -> Option<u64> {
        let decides = |node: &Node| matches!(&node.kind, NodeKind::Conditional(own) if own.handle == handle);
        self.nodes.iter().find(|(_, node)| decides(node)).map(|(node, _)| *node)
    }

    /// An executable graph by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn exec(&self, handle: u64) -> Answer<&Exec> {
        self.execs.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A node of an executable graph, by the node that it was made from.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn exec_node(&mut self, exec: u64, source: u64) -> Answer<&mut ExecNode> {
        let exec = self.execs.get_mut(&exec).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        exec.nodes.iter_mut().find(|n| n.source == source).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Takes an executable graph away. Memory that it allocated stays until it is freed.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn destroy_exec(&mut self, memory: &Memory, handle: u64) -> Answer {
        let exec = self.execs.remove(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for node in &exec.nodes {
            if let NodeKind::Alloc { address, .. } = node.kind {
                self.let_go(memory, address);
            }
        }
        if let Some(source) = self.graphs.get_mut(&exec.graph) {
            source.executables = source.executables.saturating_sub(1);
        }
        self.release(&exec.objects);
        Ok(())
    }

    /// A graph and the graphs inside of it, in order.
    fn family(&self, graph: u64) -> Vec<u64> {
        let Some(found) = self.graphs.get(&graph) else { return vec![graph] };
        let mut all = vec![graph];
        for node in found.nodes.iter().filter_map(|node| self.nodes.get(node)) {
            all.extend(node.kind.graphs().iter().flat_map(|inner| self.family(*inner)));
        }
        all
    }

    /// User objects of a graph and the graphs inside of it, under the names of another family of the same shape.
    fn objects_of(&self, graph: u64, names: &[u64]) -> Vec<Held> {
        let mut held = Vec::new();
        for (at, member) in self.family(graph).into_iter().enumerate() {
            let objects = self.graphs.get(&member).into_iter().flat_map(|graph| &graph.objects);
            let name = names.get(at).or(names.first()).copied().unwrap_or(member);
            held.extend(objects.map(|(object, count)| (name, *object, *count)));
        }
        held
    }

    fn retain(&mut self, held: &[Held]) {
        held.iter().for_each(|(_, object, count)| self.objects.retain(*object, *count));
    }

    fn release(&mut self, held: &[Held]) {
        for (_, object, count) in held {
            self.objects.release(*object, *count);
        }
    }

    /// Puts the user objects of `new` in the place of those that an executable graph has from `old`, or of all.
    fn replace_objects(&mut self, exec: u64, old: u64, new: u64, all: bool) {
        let names = self.family(old);
        let taken = self.objects_of(new, &names);
        self.retain(&taken);
        let Some(exec) = self.execs.get_mut(&exec) else { return };
        let goes = |held: &Held| all || names.contains(&held.0);
        let (gone, mut kept): (Vec<Held>, Vec<Held>) = exec.objects.drain(..).partition(goes);
        kept.extend(taken);
        exec.objects = kept;
        self.release(&gone);
    }

    /// Replaces what the nodes inside of a child graph of an executable graph do, and its user objects, by those of a
    /// graph of the same shape.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn update_child(&mut self, exec: u64, node: u64, graph: u64) -> Answer {
        let NodeKind::Child(child) = self.node(node)?.kind else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let (old, new) = (self.flatten(child)?, self.flatten(graph)?);
        let same = |(a, b): (&ExecNode, &ExecNode)| {
            a.kind.number() == b.kind.number() && a.before == b.before && a.within == b.within
        };
        if old.len() != new.len() || !old.iter().zip(&new).all(same) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (old, new) in old.iter().zip(new) {
            self.exec_node(exec, old.source)?.kind = new.kind;
        }
        self.replace_objects(exec, child, graph, false);
        Ok(())
    }

    /// Replaces what the nodes of an executable graph do, and its user objects, by those of a graph of the same shape.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE for an unknown handle.
    pub fn update(&mut self, handle: u64, graph: u64) -> Answer<Update> {
        let new = self.flatten(graph)?;
        let old = &self.exec(handle)?.nodes;
        if new.len() != old.len() {
            return Ok(Update::Topology);
        }
        for (old, new) in old.iter().zip(&new) {
            if old.kind.number() != new.kind.number() {
                return Ok(Update::NodeType(new.source));
            }
            if old.before != new.before || old.within != new.within {
                return Ok(Update::Topology);
            }
            match (&old.kind, &new.kind) {
                (NodeKind::Kernel(a), NodeKind::Kernel(b)) if a.context != b.context => {
                    return Ok(Update::Function(new.source));
                }
                (NodeKind::Copy { copy: a, .. }, NodeKind::Copy { copy: b, .. })
                    if (a.srcMemoryType, a.dstMemoryType) != (b.srcMemoryType, b.dstMemoryType) =>
                {
                    return Ok(Update::Parameters(new.source));
                }
                (NodeKind::Alloc { bytes: a, .. }, NodeKind::Alloc { bytes: b, .. }) if a != b => {
                    return Ok(Update::Parameters(new.source));
                }
                (NodeKind::Conditional(a), NodeKind::Conditional(b))
                    if (a.how, a.context, a.bodies.len()) != (b.how, b.context, b.bodies.len()) =>
                {
                    return Ok(Update::Parameters(new.source));
                }
                _ => {}
            }
        }
        if let Some(exec) = self.execs.get_mut(&handle) {
            for (old, new) in exec.nodes.iter_mut().zip(new) {
                if !old.kind.is_memory() {
                    old.kind = new.kind;
                }
            }
        }
        let source = self.exec(handle)?.graph;
        self.replace_objects(handle, source, graph, true);
        Ok(Update::Done)
    }

    /// Makes a graph that holds what an executable graph does, for a launch that is captured.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_SUPPORTED if it allocates, frees or has conditional nodes.
    fn graph_from(&mut self, exec: u64) -> Answer<u64> {
        let nodes = self.exec(exec)?.nodes.clone();
        if nodes.iter().any(|n| n.kind.is_single()) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let graph = self.create();
        let mut made: Vec<u64> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut before: Vec<Edge> = Vec::new();
            for place in &node.before {
                let edge = Edge::plain(made[*place]);
                if !before.contains(&edge) {
                    before.push(edge);
                }
            }
            let kind = if node.enabled { node.kind } else { NodeKind::Empty };
            made.push(self.add(graph, &before, kind)?);
        }
        Ok(graph)
    }
}

impl Sched {
    /// Launches an executable graph into a stream.
    ///
    /// Nodes that do not depend on each other overlap fully; the stream is busy for as long as the
    /// longest chain takes.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, those of captures, and those of a kernel's
    /// launch.
    pub fn launch_graph(&mut self, driver: &'static Driver, handle: u64, key: u64) -> Answer {
        self.graphs.exec(handle)?;
        if let Some(capture) = self.admit(key)? {
            let child = self.graphs.graph_from(handle)?;
            return self.record(capture, key, NodeKind::Child(child)).map(drop);
        }
        let exec = self.graphs.exec(handle)?;
        let free_first = exec.flags & AUTO_FREE != 0;
        let nodes = exec.nodes.clone();
        let runs = running(&nodes);
        let order: Vec<&NodeKind> =
            nodes.iter().zip(&runs).filter(|(_, runs)| **runs).map(|(n, _)| &n.kind).collect();
        let mapped = self.graphs.launch_memory(driver, &order, free_first)?;
        if let Some(exec) = self.graphs.execs.get_mut(&handle) {
            for (device, bytes) in mapped {
                let most = exec.mapped.entry(device).or_default();
                *most = bytes.max(*most);
            }
        }

        let stream = self.stream(key)?;
        let (device, context) = (stream.device, stream.context);
        let most = stream.multiprocessors();
        let context = self.context(driver, context)?;
        let gpu = driver.gpu_spec(driver.device(device)?);
        let mut ends: Vec<u64> = Vec::with_capacity(nodes.len());
        // How much of the graph's time the stream has been given so far.
        let mut given = 0;
        // What its kernels have at work, counted from the graph's beginning, and not handed to the stream yet.
        let mut phases = Vec::new();
        for (node, runs) in nodes.iter().zip(&runs) {
            let start = node.before.iter().map(|place| ends[*place]).max().unwrap_or(0);
            let ns = match &node.kind {
                _ if !runs => 0,
                NodeKind::Kernel(kernel) => {
                    let (grid, block, shared) = (kernel.grid, kernel.block, kernel.shared);
                    let shape = Shape { info: &kernel.info, grid, block, shared };
                    let (ns, own) = launch::account(driver, &context, most, &shape)?;
                    phases.extend(own.into_iter().map(|phase| phase.later(start as i64)));
                    ns
                }
                NodeKind::Copy { copy, .. } => {
                    let kind = match copy.host_ends() {
                        (true, true) => TransferKind::HostToHost,
                        (true, false) => TransferKind::HostToDevice,
                        (false, true) => TransferKind::DeviceToHost,
                        (false, false) => TransferKind::DeviceToDevice,
                    };
                    timing::transfer(gpu, kind, copy.bytes())
                }
                NodeKind::Set { set, .. } => timing::transfer(gpu, TransferKind::Memset, set.bytes()),
                _ => 0,
            };
            ends.push(start + ns);
            if !runs {
                continue;
            }
            if matches!(node.kind, NodeKind::Copy { .. } | NodeKind::Set { .. }) {
                driver.process.copied(context.gpu, ns);
            }
            let ops = self.ops_of(&node.kind);
            if !ops.is_empty() && start > given {
                self.enqueue(driver, key, Op::Busy(start - given, from(&mut phases, given)));
                given = start;
            }
            for op in ops {
                match op {
                    NodeOp::Op(op) => self.enqueue(driver, key, op),
                    NodeOp::Record(event) => self.record_event(driver, event, key)?,
                    NodeOp::Wait(event) => self.wait_event(driver, key, event)?,
                }
            }
        }
        let total = ends.into_iter().max().unwrap_or(0);
        self.enqueue(driver, key, Op::Busy(total - given, from(&mut phases, given)));
        Ok(())
    }

    /// Operations of a node besides taking time.
    fn ops_of(&self, kind: &NodeKind) -> Vec<NodeOp> {
        let event = |handle: u64| CUevent(handle as usize as *mut std::ffi::c_void);
        match kind {
            NodeKind::Host(call) => vec![NodeOp::Op(Op::Host(*call))],
            NodeKind::RecordEvent { event: handle } => vec![NodeOp::Record(event(*handle))],
            NodeKind::WaitEvent { event: handle } => vec![NodeOp::Wait(event(*handle))],
            NodeKind::MemoryOps { ops, .. } => ops.iter().map(|op| NodeOp::Op(Op::Memory(*op))).collect(),
            NodeKind::Copy { copy, .. } => vec![NodeOp::Op(Op::Copy(Box::new(*copy)))],
            NodeKind::Set { set, .. } => vec![NodeOp::Op(Op::Set(*set))],
            _ => Vec::new(),
        }
    }
}

/// For each node, true if it runs at a launch.
/// It runs if it is enabled, and if all conditional nodes around it run and take the graph that it is in.
fn running(nodes: &[ExecNode]) -> Vec<bool> {
    let mut runs: Vec<bool> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let taken = node.within.is_none_or(|(place, number)| {
            runs[place]
                && matches!(&nodes[place].kind, NodeKind::Conditional(outer) if outer.taken() == number)
        });
        runs.push(taken && node.enabled);
    }
    runs
}

/// Returns true if a node may be in its graph.
/// The graph of a conditional node may hold only some kinds of nodes, and kernels only of its own context.
fn fits_its_body(node: &ExecNode, nodes: &[ExecNode]) -> bool {
    let Some((place, _)) = node.within else { return true };
    let NodeKind::Conditional(outer) = &nodes[place].kind else { return false };
    node.kind.is_for_bodies()
        && match &node.kind {
            NodeKind::Kernel(kernel) => kernel.context == outer.context,
            NodeKind::Conditional(inner) => inner.context == outer.context,
            _ => true,
        }
}

/// Takes phases that are counted from a graph's beginning, counted from `given` ns later.
fn from(phases: &mut Vec<Phase>, given: u64) -> Vec<Phase> {
    phases.drain(..).map(|phase| phase.later(-(given as i64))).collect()
}

enum NodeOp {
    Op(Op),
    Record(CUevent),
    Wait(CUevent),
}
