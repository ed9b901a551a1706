//! All graphs of the process.

use std::collections::{BTreeMap, HashMap};

use radrm_cuda_abi::*;

use crate::engine::graph::node::{Edge, NodeKind};
use crate::engine::stream::op::HostCall;
use crate::util::handles::Handles;

/// A node of an executable graph. Children are dissolved into their nodes.
#[derive(Clone, Debug)]
pub struct ExecNode {
    /// The node that it was made from.
    pub source: u64,
    /// Kind of the node, with its parameters.
    pub kind: NodeKind,
    /// True if the node is enabled, that is, done at launch.
    pub enabled: bool,
    /// Places of the nodes that come before it.
    pub before: Vec<usize>,
    /// The conditional node whose graph it is in: its place, and the graph's number.
    pub within: Option<(usize, usize)>,
}

/// Condition that decides which graph of a conditional node runs.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// The graph that it was made for.
    pub graph: u64,
    /// Handle of the context.
    pub context: u64,
    /// Its value at each launch; `None` if a launch does not set it.
    pub default: Option<u32>,
}

/// An executable graph.
#[derive(Debug)]
pub struct Exec {
    /// Nodes, each behind all that it depends on.
    pub nodes: Vec<ExecNode>,
    /// Flags.
    pub flags: u64,
    /// Graph that it was made from.
    pub graph: u64,
    /// Number that no other graph of the process has.
    pub id: u32,
    /// References to user objects: the graph that they are from, object, number.
    pub objects: Vec<Held>,
    /// Memory that its launches have mapped and that was not trimmed since, by device.
    pub mapped: BTreeMap<CUdevice, u64>,
}

/// References of an executable graph: the graph that they are from, object, number.
pub type Held = (u64, u64, u32);

/// Memory of an allocation node.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Device.
    pub device: CUdevice,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Nodes and executable graphs that refer to it.
    pub holders: u32,
    /// True while memory stands behind it.
    pub live: bool,
}

pub(crate) struct Object {
    pub(crate) destroy: HostCall,
    pub(crate) references: u64,
}

/// User objects by handle.
#[derive(Default)]
pub struct Objects {
    pub(crate) objects: HashMap<u64, Object>,
    /// Objects without references, not destroyed yet.
    pub(crate) dead: Vec<HostCall>,
}

impl Objects {
    /// Takes references.
    pub fn retain(&mut self, handle: u64, count: u32) {
        if let Some(object) = self.objects.get_mut(&handle) {
            object.references += u64::from(count);
        }
    }

    /// Gives references back; false if there are fewer, or no such object.
    pub fn release(&mut self, handle: u64, count: u32) -> bool {
        let Some(object) = self.objects.get_mut(&handle) else { return false };
        let Some(left) = object.references.checked_sub(count.into()) else { return false };
        object.references = left;
        if left == 0
            && let Some(object) = self.objects.remove(&handle)
        {
            self.dead.push(object.destroy);
        }
        true
    }
}

/// Graph memory of one device in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pool {
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
}

/// Graph memory of all devices, by ordinal.
#[derive(Default, Debug)]
pub struct Pools(pub(crate) BTreeMap<CUdevice, Pool>);

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Graph that it is in.
    pub graph: u64,
    /// Number in its graph.
    pub local_id: u32,
    /// Kind of the node, with its parameters.
    pub kind: NodeKind,
    /// Edges into it.
    pub before: Vec<Edge>,
    /// The node that it was cloned from.
    pub original: Option<u64>,
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Nodes in the order of their making.
    pub nodes: Vec<u64>,
    /// Number that no other graph of the process has.
    pub id: u32,
    /// Node that it is the child of.
    pub parent: Option<u64>,
    /// Graph that it was cloned from.
    pub original: Option<u64>,
    /// Executable graphs made from it that exist.
    pub executables: u32,
    /// References to user objects: object, number.
    pub objects: Vec<(u64, u32)>,
    pub(crate) next_local: u32,
}

/// All graphs of the process.
#[derive(Default)]
pub struct Graphs {
    /// Graphs by handle.
    pub graphs: HashMap<u64, Graph>,
    /// Nodes by handle.
    pub nodes: HashMap<u64, Node>,
    /// Executable graphs by handle.
    pub execs: HashMap<u64, Exec>,
    /// Memory of allocation nodes by address.
    pub allocations: HashMap<CUdeviceptr, Allocation>,
    /// Memory that the driver keeps for allocation nodes.
    pub pools: Pools,
    /// User objects.
    pub objects: Objects,
    /// Conditions by handle.
    pub conditions: HashMap<u64, Condition>,
    pub(crate) next_id: u32,
    pub(crate) handles: Handles,
}

impl Graphs {
    /// No graphs yet.
    pub fn new(handles: Handles) -> Self {
        Self { handles, ..Self::default() }
    }
}
