//! Work that one launch of an executable graph starts.
//!
//! A plan is one block of our own memory: a header, an entry per kernel node (and per group of nodes
//! that belong to a child graph), and totals per kernel, which a launch adds to the thread's counters.
//! Entries stand in the order of the walk; a child graph's group is followed by its nodes, so that it
//! can be replaced as a range.
//!
//! The driver wants one thread at a time to change an executable graph. A launch may still read a
//! plan that another thread has just freed (the launched work can finish, and the graph be destroyed,
//! before the launch call has come back); the block stays readable, and its serial number tells.

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arena;

/// Timing of one executable graph. All zeros is none yet.
#[repr(C)]
pub(super) struct Timer {
    /// Launches that are not reported to the strata yet.
    pub(super) unreported: AtomicU64,
    /// Launches until the one to be timed, as of the last report.
    pub(super) until: AtomicU64,
    /// Launches since the last timing, as of the last report.
    pub(super) weight: AtomicU64,
    /// Timings begun.
    pub(super) begun: AtomicU64,
    /// The latest time, ns.
    pub(super) latest: AtomicU64,
}

/// One kernel node, or the head of a child graph's group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Node {
    /// Handle of the node in the graph that was instantiated.
    pub(super) handle: u64,
    /// Work of the node when launched.
    pub(super) work: Work,
    /// Entries after this one that belong to its child graph.
    pub(super) span: u32,
    /// True if the node has been disabled.
    pub(super) disabled: bool,
}

/// Kernel launch of a node; all zeros for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// Kernel id; unused where `launches` is 0.
    pub(super) kernel: u16,
    /// 1 for a kernel node, 0 for a group.
    pub(super) launches: u64,
    /// Blocks of the grid.
    pub(super) blocks: u64,
    /// Threads of a block; in totals those of all grids.
    pub(super) threads: u64,
    /// Dynamic shared memory per block, in bytes.
    pub(super) shared: u64,
}

#[repr(C)]
struct Header {
    /// The arena links free blocks through this word.
    link: AtomicU64,
    /// Number of this plan among all that were ever made; 0 once freed.
    serial: AtomicU64,
    bytes: AtomicU64,
    nodes: AtomicU64,
    totals: AtomicU64,
    /// Position at which the next change is likely: programs go through a graph's nodes in order.
    hint: AtomicU64,
    timer: Timer,
}

#[repr(C)]
struct NodeWords {
    handle: AtomicU64,
    /// kernel | is a kernel << 16 | disabled << 17 | span << 32
    meta: AtomicU64,
    blocks: AtomicU64,
    /// threads | shared << 32
    shape: AtomicU64,
}

#[repr(C)]
struct TotalWords {
    kernel: AtomicU64,
    launches: AtomicU64,
    blocks: AtomicU64,
    threads: AtomicU64,
    shared: AtomicU64,
}

const KERNEL_BIT: u64 = 1 << 16;
const DISABLED_BIT: u64 = 1 << 17;

static SERIALS: AtomicU64 = AtomicU64::new(0);

/// A plan in the arena. All words are atomics with relaxed accesses, which are plain moves: a late
/// reader gets numbers, never undefined behaviour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan(NonNull<Header>);

impl Plan {
    /// A plan of these nodes.
    pub(super) fn new(nodes: &[Node]) -> Option<Self> {
        // One total per kernel node at most, and one more for the moment of a change.
        let totals = nodes.iter().filter(|n| n.work.launches != 0).count() + 1;
        let bytes = size_of::<Header>()
            + size_of::<NodeWords>().checked_mul(nodes.len())?
            + size_of::<TotalWords>().checked_mul(totals)?;
        let plan = Self(arena::alloc(bytes)?.cast());
        let header = plan.header();
        header.bytes.store(bytes as u64, Ordering::Relaxed);
        header.nodes.store(nodes.len() as u64, Ordering::Relaxed);
        header.totals.store(totals as u64, Ordering::Relaxed);
        for (words, node) in plan.node_words().iter().zip(nodes) {
            words.set(node);
            if !node.disabled {
                plan.add(&node.work);
            }
        }
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed) + 1;
        // Release pairs with the Acquire in `serial`.
        header.serial.store(serial, Ordering::Release);
        Some(plan)
    }

    /// The plan behind a word of the map.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        NonNull::new(word as *mut Header).map(Self)
    }

    /// The plan as a word of the map.
    pub(super) fn word(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// The plan's number, by which a late reader notices that it was freed.
    pub(super) fn serial(self) -> u64 {
        self.header().serial.load(Ordering::Acquire)
    }

    /// Timing of its launches.
    pub(super) fn timer(&self) -> &Timer {
        &self.header().timer
    }

    /// Gives the memory back.
    pub(super) fn free(self) {
        let bytes = self.header().bytes.load(Ordering::Relaxed) as usize;
        self.header().serial.store(0, Ordering::Release);
        // SAFETY: the block came from `new` with that many bytes; the map does not hold it any more.
        unsafe { arena::free(self.0.cast(), bytes) };
    }

    fn header(&self) -> &Header {
        // SAFETY: plans lie in memory that is never unmapped and has room for a header.
        unsafe { self.0.as_ref() }
    }

    fn room(&self) -> usize {
        (self.header().bytes.load(Ordering::Relaxed) as usize).saturating_sub(size_of::<Header>())
    }

    fn node_words(&self) -> &[NodeWords] {
        let most = self.room() / size_of::<NodeWords>();
        let count = (self.header().nodes.load(Ordering::Relaxed) as usize).min(most);
        // SAFETY: the block has room for the header and that many nodes, all atomics.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().add(1).cast::<NodeWords>(), count) }
    }

    fn total_words(&self) -> &[TotalWords] {
        let nodes = self.node_words();
        let most = (self.room() - size_of_val(nodes)) / size_of::<TotalWords>();
        let count = (self.header().totals.load(Ordering::Relaxed) as usize).min(most);
        // SAFETY: the totals follow the nodes within the block.
        unsafe { core::slice::from_raw_parts(nodes.as_ptr().add(nodes.len()).cast::<TotalWords>(), count) }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.node_words().len()
    }

    /// Copies the entries out.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> {
        self.node_words().iter().map(NodeWords::get)
    }

    /// Work that a launch starts, per kernel.
    pub(super) fn totals(&self) -> impl Iterator<Item = Work> {
        self.total_words()
            .iter()
            .map(|t| Work {
                kernel: t.kernel.load(Ordering::Relaxed) as u16,
                launches: t.launches.load(Ordering::Relaxed),
                blocks: t.blocks.load(Ordering::Relaxed),
                threads: t.threads.load(Ordering::Relaxed),
                shared: t.shared.load(Ordering::Relaxed),
            })
            .filter(|work| work.launches != 0)
    }

    /// Position of a node.
    pub(super) fn find(&self, handle: u64) -> Option<usize> {
        let words = self.node_words();
        let hint = self.header().hint.load(Ordering::Relaxed) as usize;
        let at = (hint..words.len())
            .chain(0..hint.min(words.len()))
            .find(|n| words.get(*n).is_some_and(|w| w.handle.load(Ordering::Relaxed) == handle))?;
        self.header().hint.store(at as u64 + 1, Ordering::Relaxed);
        Some(at)
    }

    /// Gives the entry at a position other work.
    pub(super) fn set_work(&self, at: usize, work: Work) {
        self.change(at, |node| node.work = work);
    }

    /// Enables or disables the entry at a position.
    pub(super) fn set_disabled(&self, at: usize, disabled: bool) {
        self.change(at, |node| node.disabled = disabled);
    }

    fn change(&self, at: usize, how: impl FnOnce(&mut Node)) {
        let Some(words) = self.node_words().get(at) else { return };
        let mut node = words.get();
        if !node.disabled {
            self.subtract(&node.work);
        }
        how(&mut node);
        if !node.disabled {
            self.add(&node.work);
        }
        words.set(&node);
    }

    fn add(&self, work: &Work) {
        if work.launches == 0 {
            return;
        }
        let totals = self.total_words();
        let kernel = u64::from(work.kernel);
        let of_kernel = |t: &&TotalWords| {
            t.launches.load(Ordering::Relaxed) != 0 && t.kernel.load(Ordering::Relaxed) == kernel
        };
        let free = |t: &&TotalWords| t.launches.load(Ordering::Relaxed) == 0;
        if let Some(total) = totals.iter().find(of_kernel).or_else(|| totals.iter().find(free)) {
            total.kernel.store(kernel, Ordering::Relaxed);
            total.shift(work, u64::wrapping_add);
        }
    }

    fn subtract(&self, work: &Work) {
        let kernel = u64::from(work.kernel);
        let total = self
            .total_words()
            .iter()
            .find(|t| t.launches.load(Ordering::Relaxed) != 0 && t.kernel.load(Ordering::Relaxed) == kernel);
        if let Some(total) = total.filter(|_| work.launches != 0) {
            total.shift(work, u64::wrapping_sub);
        }
    }
}

impl TotalWords {
    fn shift(&self, work: &Work, by: fn(u64, u64) -> u64) {
        let pairs = [
            (&self.launches, work.launches),
            (&self.blocks, work.blocks),
            (&self.threads, work.blocks.wrapping_mul(work.threads)),
            (&self.shared, work.shared),
        ];
        for (word, amount) in pairs {
            word.store(by(word.load(Ordering::Relaxed), amount), Ordering::Relaxed);
        }
    }
}

impl NodeWords {
    fn set(&self, node: &Node) {
        let mut meta = u64::from(node.work.kernel) | u64::from(node.span) << 32;
        if node.work.launches != 0 {
            meta |= KERNEL_BIT;
        }
        if node.disabled {
            meta |= DISABLED_BIT;
        }
        self.handle.store(node.handle, Ordering::Relaxed);
        self.meta.store(meta, Ordering::Relaxed);
        self.blocks.store(node.work.blocks, Ordering::Relaxed);
        let shape = node.work.threads & u64::from(u32::MAX) | node.work.shared << 32;
        self.shape.store(shape, Ordering::Relaxed);
    }

    fn get(&self) -> Node {
        let meta = self.meta.load(Ordering::Relaxed);
        let shape = self.shape.load(Ordering::Relaxed);
        Node {
            handle: self.handle.load(Ordering::Relaxed),
            work: Work {
                kernel: meta as u16,
                launches: u64::from(meta & KERNEL_BIT != 0),
                blocks: self.blocks.load(Ordering::Relaxed),
                threads: shape & u64::from(u32::MAX),
                shared: shape >> 32,
            },
            span: (meta >> 32) as u32,
            disabled: meta & DISABLED_BIT != 0,
        }
    }
}

const _: () = assert!(offset_of!(Header, link) == 0 && size_of::<Header>() == 88);

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(handle: u64, kernel: u16, blocks: u64) -> Node {
        let work = Work { kernel, launches: 1, blocks, threads: 128, shared: 64 };
        Node { handle, work, span: 0, disabled: false }
    }

    fn totals(plan: &Plan) -> Vec<(u16, u64, u64)> {
        let mut all: Vec<_> = plan.totals().map(|t| (t.kernel, t.launches, t.blocks)).collect();
        all.sort();
        all
    }

    #[test]
    fn totals_follow_every_change_of_a_node() {
        let plan = Plan::new(&[kernel(10, 1, 5), kernel(11, 2, 7), kernel(12, 1, 1)]).expect("memory");
        assert_eq!(totals(&plan), [(1, 2, 6), (2, 1, 7)]);
        let at = plan.find(11).expect("there");
        plan.set_work(at, Work { kernel: 3, launches: 1, blocks: 9, threads: 1, shared: 0 });
        assert_eq!(totals(&plan), [(1, 2, 6), (3, 1, 9)]);
        plan.set_disabled(0, true);
        assert_eq!(totals(&plan), [(1, 1, 1), (3, 1, 9)]);
        plan.set_disabled(0, true);
        plan.set_work(0, Work { kernel: 4, launches: 1, blocks: 2, threads: 1, shared: 0 });
        assert_eq!(totals(&plan), [(1, 1, 1), (3, 1, 9)]);
        plan.set_disabled(0, false);
        assert_eq!(totals(&plan), [(1, 1, 1), (3, 1, 9), (4, 1, 2)]);
        assert_eq!(plan.find(99), None);
        plan.free();
    }

    #[test]
    fn nodes_come_back_as_they_were_put_in() {
        let group = Node { handle: 7, span: 1, ..Node::default() };
        let all = [group, kernel(8, 65_535, u64::MAX), Node { disabled: true, ..kernel(9, 0, 1) }];
        let plan = Plan::new(&all).expect("memory");
        assert_eq!(plan.nodes().collect::<Vec<_>>(), all);
        assert_eq!(plan.len(), 3);
        plan.free();
    }

    #[test]
    fn a_freed_plan_has_another_serial() {
        let plan = Plan::new(&[kernel(1, 1, 1)]).expect("memory");
        let serial = plan.serial();
        plan.free();
        assert_ne!(plan.serial(), serial);
        let next = Plan::new(&[kernel(1, 1, 1)]).expect("memory");
        assert_ne!(next.serial(), serial);
        next.free();
    }

    #[test]
    fn a_million_plans_use_the_same_memory() {
        let mut seen = std::collections::HashSet::new();
        for n in 0..1_000_000u64 {
            let plan = Plan::new(&[kernel(n, 1, n), kernel(n + 1, 2, n)]).expect("memory");
            seen.insert(plan.word());
            plan.free();
        }
        assert!(seen.len() < 64, "{} different blocks", seen.len());
    }
}
