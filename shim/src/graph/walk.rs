//! Reads a graph's kernel nodes from the driver, child graphs included.

use core::ptr::NonNull;

use radrm_cuda_abi::*;

use super::params::KernelParams;
use super::plan::Node;
use crate::arena;
use crate::cx::Cx;
use crate::telemetry::Bypass;

/// Child graphs in child graphs that are followed.
const DEPTH: u32 = 16;
/// Entries that a list has room for at first.
const FIRST: usize = 64;

/// A list in the arena.
pub(super) struct List<T: Copy> {
    at: Option<NonNull<T>>,
    len: usize,
    room: usize,
}

impl<T: Copy> List<T> {
    /// An empty list.
    pub(super) const fn new() -> Self {
        Self { at: None, len: 0, room: 0 }
    }

    /// A list of `len` copies of `value`.
    fn filled(value: T, len: usize) -> Option<Self> {
        let mut list = Self::new();
        list.reserve(len)?;
        for _ in 0..len {
            list.push(value)?;
        }
        Some(list)
    }

    fn reserve(&mut self, room: usize) -> Option<()> {
        if room <= self.room {
            return Some(());
        }
        let fresh = arena::alloc(room.checked_mul(size_of::<T>())?)?.cast::<T>();
        // SAFETY: the new block is ours and larger than what is copied.
        unsafe { fresh.as_ptr().copy_from_nonoverlapping(self.as_slice().as_ptr(), self.len) };
        self.give_back();
        self.at = Some(fresh);
        self.room = room;
        Some(())
    }

    /// Appends; `None` where there is no memory.
    pub(super) fn push(&mut self, value: T) -> Option<()> {
        if self.len == self.room {
            self.reserve((self.room * 2).max(FIRST))?;
        }
        // SAFETY: `len` is below `room`.
        unsafe { self.at?.as_ptr().add(self.len).write(value) };
        self.len += 1;
        Some(())
    }

    /// The entries.
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `len` entries have been written.
        self.at.map_or(&[], |at| unsafe { core::slice::from_raw_parts(at.as_ptr(), self.len) })
    }

    /// The entries, to change.
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and the list is borrowed mutably.
        self.at.map_or(&mut [], |at| unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), self.len) })
    }

    fn give_back(&mut self) {
        if let Some(at) = self.at.take() {
            // SAFETY: the block came from `reserve` with that many bytes.
            unsafe { arena::free(at.cast(), self.room * size_of::<T>()) };
        }
    }
}

impl<T: Copy> Drop for List<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Kernel nodes of `graph` in the driver's order; `None` where the driver or memory fails.
pub(super) fn kernel_nodes(cx: &Cx<'_>, graph: CUgraph) -> Option<List<Node>> {
    let mut nodes = List::new();
    crate::errno::keep(|| cx.relaxed_capture(|| append(cx, graph, &mut nodes, 0)))?;
    Some(nodes)
}

/// Calls `work` with every node of a graph and its sort, until one gives `None`.
fn each_node(
    cx: &Cx<'_>,
    graph: CUgraph,
    mut work: impl FnMut(CUgraphNode, CUgraphNodeType) -> Option<()>,
) -> Option<()> {
    let driver = cx.driver();
    let (get_nodes, get_type) = (driver.graph_get_nodes()?, driver.graph_node_get_type()?);
    let mut count = 0usize;
    // SAFETY: without an array the driver only reports the number.
    if !unsafe { get_nodes(graph, core::ptr::null_mut(), &raw mut count) }.is_ok() {
        return None;
    }
    if count == 0 {
        return Some(());
    }
    let mut handles = List::filled(CUgraphNode::NULL, count)?;
    // SAFETY: the array has room for `count` handles.
    if !unsafe { get_nodes(graph, handles.as_mut_slice().as_mut_ptr(), &raw mut count) }.is_ok() {
        return None;
    }
    handles.as_slice().iter().take(count).try_for_each(|node| {
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the out-parameter lives over the call.
        let is_known = unsafe { get_type(*node, &raw mut kind) }.is_ok();
        if is_known { work(*node, kind) } else { None }
    })
}

fn child_of(cx: &Cx<'_>, node: CUgraphNode) -> Option<CUgraph> {
    let mut child = CUgraph::NULL;
    // SAFETY: the out-parameter lives over the call.
    unsafe { cx.driver().graph_child_graph()?(node, &raw mut child) }.is_ok().then_some(child)
}

/// Memory that the allocation nodes of `graph` ask for, child graphs included: the device of the first of them,
/// and bytes. `None`: it has none.
pub(super) fn allocations(cx: &Cx<'_>, graph: CUgraph) -> Option<(CUdevice, u64)> {
    let mut found = None;
    crate::errno::keep(|| cx.relaxed_capture(|| add_allocations(cx, graph, &mut found, 0)))?;
    found
}

fn add_allocations(
    cx: &Cx<'_>,
    graph: CUgraph,
    found: &mut Option<(CUdevice, u64)>,
    depth: u32,
) -> Option<()> {
    if depth > DEPTH {
        return None;
    }
    each_node(cx, graph, |node, kind| {
        if kind == CU_GRAPH_NODE_TYPE_GRAPH {
            add_allocations(cx, child_of(cx, node)?, found, depth + 1)?;
        } else if kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            let mut params = core::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::zeroed();
            // SAFETY: the out-parameter lives over the call.
            if !unsafe { cx.driver().graph_alloc_params()?(node, params.as_mut_ptr()) }.is_ok() {
                return None;
            }
            // SAFETY: integers and pointers, zeroed before the driver filled them.
            let params = unsafe { params.assume_init_ref() };
            let (device, bytes) = found.unwrap_or((params.poolProps.location.id, 0));
            *found = Some((device, bytes.saturating_add(params.bytesize as u64)));
        }
        Some(())
    })
}

fn append(cx: &Cx<'_>, graph: CUgraph, out: &mut List<Node>, depth: u32) -> Option<()> {
    if depth > DEPTH {
        return None;
    }
    each_node(cx, graph, |node, kind| {
        match kind {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                let work = params_of(cx, node)?.work(cx);
                out.push(Node { handle: node.addr(), work, span: 0, disabled: false })?;
            }
            CU_GRAPH_NODE_TYPE_GRAPH => push_group(cx, node, child_of(cx, node)?, out, depth)?,
            // The bodies of a conditional node run as often as the device decides, which no call
            // tells.
            CU_GRAPH_NODE_TYPE_CONDITIONAL => cx.bypass(Bypass::GraphUnknown),
            _ => {}
        }
        Some(())
    })
}

/// Appends a child graph's group: its head, then its nodes.
fn push_group(
    cx: &Cx<'_>,
    node: CUgraphNode,
    child: CUgraph,
    out: &mut List<Node>,
    depth: u32,
) -> Option<()> {
    let head = out.as_slice().len();
    out.push(Node { handle: node.addr(), ..Node::default() })?;
    append(cx, child, out, depth + 1)?;
    let span = out.as_slice().len().checked_sub(head + 1)?;
    out.as_mut_slice().get_mut(head)?.span = u32::try_from(span).ok()?;
    Some(())
}

fn params_of(cx: &Cx<'_>, node: CUgraphNode) -> Option<KernelParams> {
    let driver = cx.driver();
    if let Some(ask) = driver.graph_kernel_params() {
        let mut params = core::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: the out-parameter lives over the call.
        if unsafe { ask(node, params.as_mut_ptr()) }.is_ok() {
            // SAFETY: integers and pointers, zeroed before the driver filled them.
            return Some(KernelParams::from(unsafe { params.assume_init_ref() }));
        }
    }
    let mut params = core::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS_v1>::zeroed();
    // SAFETY: as above.
    if !unsafe { driver.graph_kernel_params_v1()?(node, params.as_mut_ptr()) }.is_ok() {
        return None;
    }
    // SAFETY: as above.
    Some(KernelParams::from(unsafe { params.assume_init_ref() }))
}
