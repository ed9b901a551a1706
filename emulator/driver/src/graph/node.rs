//! What nodes do.

use std::collections::BTreeMap;
use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::code::image::KernelInfo;
use crate::stream::memops::MemoryOp;
use crate::stream::queue::HostCall;

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

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_snake_case, missing_docs)]
pub struct CopyNode {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: u32,
    pub srcHost: u64,
    pub srcDevice: CUdeviceptr,
    pub srcArray: u64,
    pub reserved0: u64,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: u32,
    pub dstHost: u64,
    pub dstDevice: CUdeviceptr,
    pub dstArray: u64,
    pub reserved1: u64,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}
const _: () = assert!(size_of::<CopyNode>() == 200);

/// `CU_MEMORYTYPE_HOST` and its siblings.
mod memory_type {
    pub const HOST: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const UNIFIED: u32 = 4;
}

impl CopyNode {
    /// A copy between two addresses.
    pub fn linear(
        target: CUdeviceptr,
        target_pitch: u64,
        source: CUdeviceptr,
        source_pitch: u64,
        width: u64,
        rows: u64,
    ) -> Self {
        Self {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: memory_type::UNIFIED,
            srcHost: 0,
            srcDevice: source,
            srcArray: 0,
            reserved0: 0,
            srcPitch: source_pitch as usize,
            srcHeight: rows as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: memory_type::UNIFIED,
            dstHost: 0,
            dstDevice: target,
            dstArray: 0,
            reserved1: 0,
            dstPitch: target_pitch as usize,
            dstHeight: rows as usize,
            WidthInBytes: width as usize,
            Height: rows as usize,
            Depth: 1,
        }
    }

    /// Whether the memory types are known.
    pub fn is_valid(&self) -> bool {
        let known = |kind: u32| (memory_type::HOST..=memory_type::UNIFIED).contains(&kind);
        known(self.srcMemoryType) && known(self.dstMemoryType)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        (self.WidthInBytes as u64).saturating_mul(self.Height as u64).saturating_mul(self.Depth as u64)
    }

    /// Ends of the copy as (target, pitch, source, pitch, rows) of a plane; `None` where an array is one
    /// of them, because those have no addresses.
    pub fn planes(&self) -> Option<Vec<(u64, u64, u64, u64)>> {
        if self.srcMemoryType == memory_type::ARRAY || self.dstMemoryType == memory_type::ARRAY {
            return None;
        }
        let base = |kind: u32, host: u64, device: u64| if kind == memory_type::HOST { host } else { device };
        let source = base(self.srcMemoryType, self.srcHost, self.srcDevice);
        let target = base(self.dstMemoryType, self.dstHost, self.dstDevice);
        let pitch = |pitch: usize| if pitch == 0 { self.WidthInBytes } else { pitch } as u64;
        let (from, to) = (pitch(self.srcPitch), pitch(self.dstPitch));
        let height = |height: usize| if height == 0 { self.Height } else { height } as u64;
        let at = |base: u64, x: usize, y: u64, z: u64, pitch: u64, rows: u64| {
            base.wrapping_add(x as u64)
                .wrapping_add((z.wrapping_mul(rows).wrapping_add(y)).wrapping_mul(pitch))
        };
        let plane = |z: u64| {
            (
                at(
                    target,
                    self.dstXInBytes,
                    self.dstY as u64,
                    self.dstZ as u64 + z,
                    to,
                    height(self.dstHeight),
                ),
                to,
                at(
                    source,
                    self.srcXInBytes,
                    self.srcY as u64,
                    self.srcZ as u64 + z,
                    from,
                    height(self.srcHeight),
                ),
                from,
            )
        };
        Some((0..self.Depth as u64).map(plane).collect())
    }

    /// Whether an end of the copy is host memory by its type.
    pub fn host_ends(&self) -> (bool, bool) {
        (self.srcMemoryType == memory_type::HOST, self.dstMemoryType == memory_type::HOST)
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_snake_case, missing_docs)]
pub struct SetNode {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}
const _: () = assert!(size_of::<SetNode>() == 40);

impl SetNode {
    /// Whether the element size is one of 1, 2 and 4 and rows do not overlap.
    pub fn is_valid(&self) -> bool {
        matches!(self.elementSize, 1 | 2 | 4)
            && self.width > 0
            && self.height > 0
            && (self.height == 1 || self.pitch >= self.width.saturating_mul(self.elementSize as usize))
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        (self.width as u64).saturating_mul(u64::from(self.elementSize)).saturating_mul(self.height as u64)
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
    /// What the image says.
    pub info: KernelInfo,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
    /// Whether all blocks run at the same time.
    pub cooperative: bool,
    /// Values of the parameters.
    values: Vec<Box<[u64]>>,
    /// Pointers to the values, as the program hands them over.
    pointers: Vec<*mut c_void>,
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

/// What a node does.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Runs a kernel.
    Kernel(Box<KernelNode>),
    /// Copies.
    Copy {
        /// What is copied.
        copy: CopyNode,
        /// Handle of the context.
        context: u64,
    },
    /// Sets memory.
    Set {
        /// What is set.
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
        /// Where the memory is while it is allocated.
        address: CUdeviceptr,
    },
    /// Frees memory.
    Free {
        /// Its address.
        address: CUdeviceptr,
    },
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
        }
    }

    /// Whether it allocates or frees: graphs with such nodes exist once only.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Alloc { .. } | Self::Free { .. })
    }
}
