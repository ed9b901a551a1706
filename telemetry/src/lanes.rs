//! Lanes: counters that one thread owns, of launches and of allocations, so that counting needs no locked instruction.
//!
//! A thread claims a lane by writing its id into the lane's owner word and keeps it for life. Lanes of threads
//! that are gone are taken over with what they have counted. When all lanes are owned by living
//! threads, the others share one, with locked adds.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::gpu_index::GpuIndex;
use crate::kernels::KernelId;
use crate::layout::{
    KindCounts, LANE_BYTES, LANE_COUNTS_BYTES, LANE_GROWTH, LANES, LANES_AT, LaneCounts, LaneRow,
};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::writer::Writer;
use radrm_base::Kind;
use std::ptr::NonNull;

/// A thread's counters. Plain data for a thread-local; good for the thread that asked for it, in the process
/// that asked for it.
#[derive(Clone, Copy)]
pub struct Lane {
    pub(crate) rows: NonNull<LaneRow>,
    pub(crate) ready: NonNull<AtomicU64>,
    pub(crate) number: u32,
    pub(crate) thread: u32,
    pub(crate) shared: bool,
}

/// Finds a lane for `tid`: its own, a free one, one whose owner is gone.
#[doc(hidden)] // for the model checker
pub fn claim(owners: &[AtomicU64], tid: u64, exists: impl Fn(u64) -> bool) -> Option<usize> {
    // A thread that comes again, or a new one with the id of a thread that is gone.
    if let Some(own) = owners.iter().position(|owner| owner.load(Acquire) == tid) {
        return Some(own);
    }
    // AcqRel: pairs with itself in the claim after; the counters of a gone thread were ordered before us
    // by the kernel, which reported that it is gone.
    let free = |owner: &AtomicU64| owner.compare_exchange(0, tid, AcqRel, Relaxed).is_ok();
    if let Some(number) = owners.iter().position(|owner| owner.load(Relaxed) == 0 && free(owner)) {
        return Some(number);
    }
    owners.iter().position(|owner| {
        let seen = owner.load(Acquire);
        !exists(seen) && owner.compare_exchange(seen, tid, AcqRel, Relaxed).is_ok()
    })
}

/// Adds to a word that only this thread writes.
#[inline]
fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
}

impl Lane {
    /// Number of the lane; the shared one has number [`crate::layout::LANES`].
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if other threads count here too.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The thread that asked for the lane.
    #[inline]
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The thread's counters of allocations, to be kept with the lane; cold.
    pub fn own_counts(&self) -> OwnCounts {
        let is_own = !self.shared && self.has(KernelId::OTHER);
        // SAFETY: they lie before the rows and are allocated with the first of them.
        let counts = is_own.then(|| unsafe { self.rows.byte_sub(LANE_COUNTS_BYTES as usize) }.cast());
        OwnCounts { counts, thread: self.thread }
    }

    /// Returns true if the counters of this kernel are allocated.
    #[inline]
    fn has(&self, kernel: KernelId) -> bool {
        // SAFETY: `ready` points into the slot's head, which stays mapped as long as the process lives.
        // Acquire: pairs with the Release after the pages were allocated.
        u64::from(kernel.0) < unsafe { self.ready.as_ref() }.load(Acquire)
    }

    /// The counters of a kernel; those of "(other)" if there is no memory for its own.
    #[inline]
    fn row(&self, writer: &Writer, kernel: KernelId) -> Option<&LaneRow> {
        let kernel = if self.has(kernel) { kernel } else { self.grow(writer, kernel)? };
        // SAFETY: the row is allocated (`has`), and mapped as long as the process lives.
        Some(unsafe { self.rows.add(kernel.0 as usize).as_ref() })
    }

    #[cold]
    #[inline(never)]
    fn grow(&self, writer: &Writer, kernel: KernelId) -> Option<KernelId> {
        let rows = (kernel.0 as usize + 1).next_multiple_of(LANE_GROWTH);
        if writer.grow_lane(self, rows) {
            return Some(kernel);
        }
        writer.bypass(crate::Bypass::LaneFull);
        self.has(KernelId::OTHER).then_some(KernelId::OTHER)
    }

    /// The counters of a kernel, for this thread to keep and add to; cold. `None` on the shared lane, whose
    /// counters are not this thread's alone, and without memory.
    pub fn own_row(&self, writer: &Writer, kernel: KernelId) -> Option<Row> {
        if self.shared {
            return None;
        }
        self.row(writer, kernel).map(|row| Row(NonNull::from(row)))
    }

    /// Counts a launch: `blocks` and `threads` of the whole grid, dynamic shared memory per block.
    #[inline]
    pub fn launch(&self, writer: &Writer, kernel: KernelId, blocks: u64, threads: u64, dynamic_shared: u64) {
        let Some(row) = self.row(writer, kernel) else { return };
        if self.shared {
            row.launches.fetch_add(1, Relaxed);
            row.blocks.fetch_add(blocks, Relaxed);
            row.threads.fetch_add(threads, Relaxed);
            row.dynamic_shared.fetch_add(dynamic_shared, Relaxed);
        } else {
            add(&row.launches, 1);
            add(&row.blocks, blocks);
            add(&row.threads, threads);
            add(&row.dynamic_shared, dynamic_shared);
        }
    }

    /// Counts launches of a kernel as nodes of a graph, all in sum: dynamic shared memory per block as well.
    #[inline]
    pub fn graph_kernel(&self, writer: &Writer, kernel: KernelId, sum: GraphLaunches) {
        let GraphLaunches { launches, blocks, threads, dynamic_shared } = sum;
        let Some(row) = self.row(writer, kernel) else { return };
        if self.shared {
            row.graph_launches.fetch_add(launches, Relaxed);
            row.graph_blocks.fetch_add(blocks, Relaxed);
            row.graph_threads.fetch_add(threads, Relaxed);
            row.dynamic_shared.fetch_add(dynamic_shared, Relaxed);
        } else {
            add(&row.graph_launches, launches);
            add(&row.graph_blocks, blocks);
            add(&row.graph_threads, threads);
            add(&row.dynamic_shared, dynamic_shared);
        }
    }

    /// Counts the launch of a graph.
    #[inline]
    pub fn graph(&self, writer: &Writer) {
        let Some(row) = self.row(writer, KernelId::OTHER) else { return };
        if self.shared {
            row.graphs.fetch_add(1, Relaxed);
        } else {
            add(&row.graphs, 1);
        }
    }
}

/// Launches of one kernel by a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphLaunches {
    /// Nodes of it that are launched.
    pub launches: u64,
    /// Sum of their blocks.
    pub blocks: u64,
    /// Sum of their threads.
    pub threads: u64,
    /// Sum of their dynamic shared memory, bytes per block.
    pub dynamic_shared: u64,
}

/// Counters of one kernel that only the calling thread writes: see [`Lane::own_row`]. Plain data, good as
/// long as the lane is.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Row(NonNull<LaneRow>);

impl Row {
    /// As [`Lane::launch`]: four plain additions.
    #[inline(always)]
    pub fn launch(self, blocks: u64, threads: u64, dynamic_shared: u64) {
        // SAFETY: a row is allocated, and mapped as long as the process lives.
        let row = unsafe { self.0.as_ref() };
        add(&row.launches, 1);
        add(&row.blocks, blocks);
        add(&row.threads, threads);
        add(&row.dynamic_shared, dynamic_shared);
    }

    /// The row as an address, to be kept in a word.
    pub fn as_ptr(self) -> *const LaneRow {
        self.0.as_ptr()
    }

    /// The row behind an address from [`Row::as_ptr`]; `None` for null.
    ///
    /// # Safety
    ///
    /// The address is null or came from `as_ptr` in this thread and this process.
    #[inline(always)]
    pub unsafe fn from_ptr(row: *const LaneRow) -> Option<Self> {
        NonNull::new(row.cast_mut()).map(Self)
    }
}

/// Counters of allocations and releases that only the calling thread writes, and that thread. Plain data, good as long as the
/// lane is. All zeros is [`OwnCounts::NONE`].
#[derive(Clone, Copy, Debug)]
pub struct OwnCounts {
    counts: Option<NonNull<LaneCounts>>,
    /// 0: not known.
    thread: u32,
}

impl OwnCounts {
    /// None: what is counted goes to the account, which all threads write.
    pub const NONE: Self = Self { counts: None, thread: 0 };

    /// The thread; 0: not known.
    #[inline]
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    #[inline]
    fn of(&self, gpu: GpuIndex, kind: Kind) -> Option<&KindCounts> {
        // SAFETY: allocated, and mapped as long as the process lives; atomics only.
        let counts = unsafe { self.counts?.as_ref() };
        counts.gpus.get(usize::from(gpu.number()))?.get(kind as usize)
    }

    /// Counts an allocation. False: the account has to.
    #[inline]
    pub(crate) fn allocated(&self, gpu: GpuIndex, kind: Kind) -> bool {
        self.of(gpu, kind).map(|counts| add(&counts.allocs, 1)).is_some()
    }

    /// Counts a release. False: the account has to.
    #[inline]
    pub(crate) fn released(&self, gpu: GpuIndex, kind: Kind) -> bool {
        self.of(gpu, kind).map(|counts| add(&counts.frees, 1)).is_some()
    }
}

impl Writer {
    /// Allocations and releases of some kinds that all threads have counted. Cold.
    pub(crate) fn counted(&self, gpu: GpuIndex, kinds: impl Fn(Kind) -> bool) -> (u64, u64) {
        let mut sum = (0u64, 0u64);
        let mut add = |counts: &KindCounts| {
            let (allocs, frees) = (counts.allocs.load(Relaxed), counts.frees.load(Relaxed));
            sum = (sum.0.wrapping_add(allocs), sum.1.wrapping_add(frees));
        };
        let wanted = || Kind::ALL.into_iter().filter(|kind| kinds(*kind));
        if let Some(account) = self.account(gpu) {
            wanted().filter_map(|kind| account.counts.get(kind as usize)).for_each(&mut add);
        }
        for (number, rows) in self.base().head.lane_rows.iter().take(LANES).enumerate() {
            // Acquire: pairs with the Release after the pages were allocated.
            if rows.load(Acquire) > 0 {
                let counts = Some(self.at(LANES_AT + number as u64 * LANE_BYTES));
                let own = OwnCounts { counts, thread: 0 };
                wanted().filter_map(|kind| own.of(gpu, kind)).for_each(&mut add);
            }
        }
        sum
    }
}
