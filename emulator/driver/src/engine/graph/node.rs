//! Nodes of graphs: their kinds and parameters.

use std::collections::BTreeMap;
use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::engine::stream::op::HostCall;
use crate::models::copy::{CopyNode, SetNode};
use crate::models::image::KernelInfo;
use crate::models::memop::MemoryOp;

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeData {
    /// Outgoing port.
    pub from_port: u8,
    /// Incoming port.
    pub to_port: u8,
    /// Kind of dependency.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// An edge into a node: where it comes from, and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that comes first.
    pub from: u64,
    /// Data of the edge.
    pub data: EdgeData,
}

impl Edge {
    /// A full dependency.
    pub fn plain(from: u64) -> Self {
        Self { from, data: EdgeData::default() }
    }
}

/// A kernel in a graph, with its own copy of the parameters.
#[derive(Debug)]
pub struct KernelNode {
    /// Function, 0 if a kernel was given.
    pub function: u64,
    /// Kernel, 0 if a function was given.
    pub kernel: u64,
    /// Handle of the context.
    pub context: u64,
    /// Description of the kernel in its image.
    pub info: KernelInfo,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
    /// True if all blocks run at the same time (cooperative launch).
    pub cooperative: bool,
    /// Values of the parameters.
    pub(crate) values: Vec<Box<[u64]>>,
    /// Pointers to the values, as the program hands them over.
    pub(crate) pointers: Vec<*mut c_void>,
    /// Attributes by number.
    pub attributes: BTreeMap<u32, [u8; 64]>,
}

// SAFETY: the pointers point into `values`, which are never changed.
unsafe impl Send for KernelNode {}

// SAFETY: as above.
unsafe impl Sync for KernelNode {}

impl KernelNode {
    /// Copies a launch. Values of parameters are kept if the image tells their sizes.
    ///
    /// # Safety
    /// `params` is null or points to as many pointers to values as the kernel has parameters.
    pub unsafe fn new(
        handles: (u64, u64, u64),
        info: KernelInfo,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        params: *const *mut c_void,
    ) -> Self {
        let mut values = Vec::new();
        if !params.is_null() {
            for (index, (_, size)) in info.params.iter().flatten().enumerate() {
                let mut copy = vec![0_u64; size.div_ceil(8)].into_boxed_slice();
                // SAFETY: the caller promises a pointer to a value for each parameter.
                unsafe {
                    let from = *params.add(index);
                    if !from.is_null() {
                        std::ptr::copy_nonoverlapping(
                            from.cast::<u8>(),
                            copy.as_mut_ptr().cast::<u8>(),
                            *size,
                        );
                    }
                }
                values.push(copy);
            }
        }
        let pointers = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        let (function, kernel, context) = handles;
        Self {
            function,
            kernel,
            context,
            info,
            grid,
            block,
            shared,
            cooperative: false,
            values,
            pointers,
            attributes: BTreeMap::new(),
        }
    }

    /// Pointers to the parameters, null if they are not known. They live as long as the node.
    pub fn params(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() { std::ptr::null_mut() } else { self.pointers.as_ptr().cast_mut() }
    }
}

impl Clone for KernelNode {
    fn clone(&self) -> Self {
        let mut values = self.values.clone();
        let pointers = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        Self { values, pointers, info: self.info.clone(), attributes: self.attributes.clone(), ..*self }
    }
}

/// Condition and graphs of a conditional node.
#[derive(Clone, Debug)]
pub struct Conditional {
    /// Handle of the condition.
    pub handle: u64,
    /// If, while or switch: `CUgraphConditionalNodeType`.
    pub how: u32,
    /// Handle of the context.
    pub context: u64,
    /// The condition's value at each launch; `None` if a launch does not set it.
    pub default: Option<u32>,
    /// The graphs. The program is handed this list, which lives as long as the node.
    pub bodies: Box<[u64]>,
}

/// `CU_GRAPH_COND_TYPE_IF`.
pub const IF: u32 = 0;
/// `CU_GRAPH_COND_TYPE_WHILE`.
pub const WHILE: u32 = 1;
/// `CU_GRAPH_COND_TYPE_SWITCH`.
pub const SWITCH: u32 = 2;

impl Conditional {
    /// Number of its graph that runs at a launch; there may be none of that number.
    /// Kernels set conditions, and no kernel runs here: a condition keeps its default, and one without a default is
    /// taken to hold. The graph of a loop runs once, because nothing would end the loop.
    pub fn taken(&self) -> usize {
        match (self.how, self.default) {
            (SWITCH, value) => value.unwrap_or(0) as usize,
            (_, Some(0)) => 1,
            _ => 0,
        }
    }
}

/// Kind of a node, with its parameters.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Runs a kernel.
    Kernel(Box<KernelNode>),
    /// Copies.
    Copy {
        /// Parameters of the copy.
        copy: CopyNode,
        /// Handle of the context.
        context: u64,
    },
    /// Sets memory.
    Set {
        /// Parameters of the memset.
        set: SetNode,
        /// Handle of the context.
        context: u64,
    },
    /// Calls the program.
    Host(HostCall),
    /// Runs another graph; it belongs to the node.
    Child(u64),
    /// Does nothing.
    Empty,
    /// Waits for an event.
    WaitEvent {
        /// Its handle.
        event: u64,
    },
    /// Records an event.
    RecordEvent {
        /// Its handle.
        event: u64,
    },
    /// Allocates memory.
    Alloc {
        /// Device.
        device: CUdevice,
        /// Bytes that were asked for.
        bytes: u64,
        /// Address of the memory while it is allocated.
        address: CUdeviceptr,
    },
    /// Frees memory.
    Free {
        /// Its address.
        address: CUdeviceptr,
    },
    /// Runs one of its graphs, or none.
    Conditional(Conditional),
    /// Memory operations of streams.
    MemoryOps {
        /// Handle of the context.
        context: u64,
        /// The operations.
        ops: Vec<MemoryOp>,
        /// The operations as the program laid them out, if it made the node.
        raw: Option<Box<[[u64; 6]]>>,
    },
}

impl NodeKind {
    /// An allocation node.
    pub fn alloc(device: CUdevice, bytes: u64, address: CUdeviceptr) -> Self {
        Self::Alloc { device, bytes, address }
    }

    /// Number of the kind in the interface.
    pub fn number(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy { .. } => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Set { .. } => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::WaitEvent { .. } => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::RecordEvent { .. } => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Alloc { .. } => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free { .. } => CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::MemoryOps { .. } => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// Graphs inside of it, which belong to it.
    pub fn graphs(&self) -> &[u64] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(node) => &node.bodies,
            _ => &[],
        }
    }

    /// Returns true if the node allocates or frees.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Alloc { .. } | Self::Free { .. })
    }

    /// Returns true if a graph with the node exists only once.
    /// Such a graph is neither cloned nor a child, and has one executable graph.
    pub fn is_single(&self) -> bool {
        self.is_memory() || matches!(self, Self::Conditional(_))
    }

    /// Returns true if the graphs of a conditional node may hold the node.
    pub fn is_for_bodies(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_) | Self::Empty | Self::Copy { .. } | Self::Set { .. } | Self::Conditional(_)
        )
    }
}
