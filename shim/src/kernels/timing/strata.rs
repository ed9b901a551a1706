//! A thread's strata: how often it has launched each, and when the next launch is timed.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::Timing;
use crate::arena;
use crate::kernels::cache::HASH_FACTOR;
use crate::telemetry::layout::{LANES, LaneRow, StratumCell};
use crate::telemetry::{Lane, Row, SizeClass, Stratum};

/// Entries: 16 KiB per thread.
const ENTRIES: usize = 256;
/// Launches after which a thread reports them to its stratum at the latest: what a killed program leaves
/// unreported stays small.
const MAX_UNREPORTED: u64 = 256;
/// Bits above those of an address, for the size class.
pub(crate) const CLASS_SHIFT: u32 = 56;

/// Bits of a hash that are shifted out, to leave an entry's number.
pub(crate) const HASH_SHIFT: u32 = u32::BITS - ENTRIES.trailing_zeros();
/// Bits by which that number is shifted to give the entry's distance from the first.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the assembly of x86-64 reads it"))]
pub(crate) const ENTRY_SHIFT: u32 = size_of::<Entry>().trailing_zeros();
/// Offsets of the first entry's key in a thread's strata, of its launches left, and of its counters.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the assembly of x86-64 reads it"))]
pub(crate) const KEY_AT: usize = offset_of!(StrataCache, entries) + offset_of!(Entry, key);
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the assembly of x86-64 reads it"))]
pub(crate) const LEFT_AT: usize = offset_of!(StrataCache, entries) + offset_of!(Entry, left);
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the assembly of x86-64 reads it"))]
pub(crate) const ROW_AT: usize = offset_of!(StrataCache, entries) + offset_of!(Entry, row);
const _: () = assert!(size_of::<Entry>().is_power_of_two() && ENTRIES.is_power_of_two());

/// A launch as it is counted.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Blocks of the grid.
    pub(crate) blocks: u64,
    /// Threads of the grid.
    pub(crate) threads: u64,
    /// Dynamic shared memory per block, bytes.
    pub(crate) shared: u64,
    /// True if events around the launch leave it as it is: not where it is to overlap with the one before.
    pub(crate) is_apart: bool,
}

/// One thread's strata, directly mapped by function and size class. All zeros is empty.
///
/// Atomics only because a lane may be handed on while its old owner still runs, and because all are read
/// at the process's end; relaxed accesses are plain moves.
#[repr(C, align(64))]
pub(crate) struct StrataCache {
    random: AtomicU64,
    entries: [Entry; ENTRIES],
}

/// One stratum of one thread.
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Function and size class; 0 where there is none. A handle can give 0 too: such an entry is due at once and
    /// has no stratum, so the launch is treated as one not seen yet.
    key: AtomicU64,
    row: AtomicPtr<LaneRow>,
    cell: AtomicPtr<StratumCell>,
    /// Launches until, and with, the one that is reported to the stratum.
    left: AtomicU64,
    /// The same, as of the last report.
    reported: AtomicU64,
    /// Launches until the one to be timed, as of the last report.
    until: AtomicU64,
    /// Launches since the last timing, as of the last report.
    weight: AtomicU64,
}

fn key(function: u64, class: SizeClass) -> u64 {
    function ^ (u64::from(class.number()) + 1) << CLASS_SHIFT
}

impl Entry {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            row: AtomicPtr::new(ptr::null_mut()),
            cell: AtomicPtr::new(ptr::null_mut()),
            left: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            until: AtomicU64::new(0),
            weight: AtomicU64::new(0),
        }
    }

    /// Returns true if the entry is that of a function's launches of a class.
    pub(super) fn is(&self, function: u64, class: SizeClass) -> bool {
        self.key.load(Ordering::Relaxed) == key(function, class)
    }

    /// Launches that are not reported to the stratum yet.
    fn unreported(&self) -> u64 {
        self.reported.load(Ordering::Relaxed).saturating_sub(self.left.load(Ordering::Relaxed))
    }

    /// Lets so many launches pass until the next report to the stratum.
    fn report_after(&self, launches: u64) {
        self.reported.store(launches, Ordering::Relaxed);
        self.left.store(launches, Ordering::Relaxed);
    }

    /// Returns true if the next launch is reported to the stratum.
    pub(super) fn is_due(&self) -> bool {
        self.left.load(Ordering::Relaxed) <= 1
    }

    /// Ends the entry: due at once, without a stratum.
    fn vacate(&self) {
        self.key.store(0, Ordering::Relaxed);
        self.cell.store(ptr::null_mut(), Ordering::Relaxed);
        self.report_after(0);
    }

    /// Returns true if the launch that is due is one to be timed.
    pub(super) fn is_to_be_timed(&self) -> bool {
        self.unreported() + 1 >= self.until.load(Ordering::Relaxed)
    }

    /// Counts a launch.
    pub(super) fn launched(&self, shape: Shape) {
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        // SAFETY: an entry with a key has been given a row.
        if let Some(row) = unsafe { Row::from_ptr(self.row.load(Ordering::Relaxed)) } {
            row.launch(shape.blocks, shape.threads, shape.shared);
        }
    }

    /// The stratum.
    pub(super) fn stratum(&self) -> Option<Stratum> {
        // SAFETY: null, or the stratum that the entry has been given.
        unsafe { Stratum::from_ptr(self.cell.load(Ordering::Relaxed)) }
    }

    /// Reports the launches to the stratum; returns those since the last timing.
    pub(super) fn settle(&self) -> u64 {
        let unreported = self.unreported();
        if let Some(stratum) = self.stratum().filter(|_| unreported > 0) {
            stratum.launched(unreported);
        }
        let until = self.until.load(Ordering::Relaxed).saturating_sub(unreported);
        let weight = self.weight.load(Ordering::Relaxed).saturating_add(unreported);
        self.until.store(until, Ordering::Relaxed);
        self.weight.store(weight, Ordering::Relaxed);
        self.report_after(until.min(MAX_UNREPORTED));
        weight
    }

    /// The launch was timed: those before it are stood for.
    pub(super) fn timed(&self) {
        self.weight.store(0, Ordering::Relaxed);
    }

    /// Returns true if the launch to be timed has come and gone.
    pub(super) fn is_spent(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    /// Lets so many launches pass until the next one to be timed.
    pub(super) fn wait(&self, launches: u64) {
        self.until.store(launches, Ordering::Relaxed);
        self.report_after(launches.min(MAX_UNREPORTED));
    }
}

impl StrataCache {
    /// The entry in which a function's launches of a class stand, or something else does.
    pub(super) fn entry(&self, function: u64, class: SizeClass) -> &Entry {
        let mixed = (function as u32 ^ u32::from(class.number())).wrapping_mul(HASH_FACTOR.cast_unsigned());
        let number = (mixed >> HASH_SHIFT) as usize;
        // SAFETY: what is left after the shift is below the number of entries.
        unsafe { self.entries.get_unchecked(number) }
    }

    /// Keeps a stratum in place of what stood there. `weight`: launches made that no timing stands for;
    /// `gap`: launches until the one to be timed.
    pub(super) fn put(
        &self,
        function: u64,
        class: SizeClass,
        row: Row,
        stratum: Stratum,
        weight: u64,
        gap: u64,
    ) {
        let entry = self.entry(function, class);
        entry.settle();
        entry.vacate();
        entry.row.store(row.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.cell.store(stratum.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.weight.store(weight, Ordering::Relaxed);
        entry.wait(gap);
        entry.key.store(key(function, class), Ordering::Relaxed);
    }

    /// Reports to all strata.
    pub(super) fn settle(&self) {
        for entry in self.entries.iter().filter(|entry| entry.stratum().is_some()) {
            entry.settle();
        }
    }

    /// Reports to all strata, then forgets all.
    pub(super) fn clear(&self) {
        self.settle();
        self.entries.iter().for_each(Entry::vacate);
    }

    /// A pseudo-random number (splitmix64).
    pub(super) fn draw(&self) -> u64 {
        // The address makes threads differ from each other, and mostly runs too.
        let state = match self.random.load(Ordering::Relaxed) {
            0 => ptr::from_ref(self).addr() as u64,
            state => state.wrapping_add(0x9e37_79b9_7f4a_7c15),
        };
        self.random.store(state, Ordering::Relaxed);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The strata of threads that have none: stay empty.
pub(crate) static NONE: StrataCache =
    StrataCache { random: AtomicU64::new(0), entries: [const { Entry::new() }; ENTRIES] };

impl Timing {
    /// The strata of the thread that owns a lane; `None` on the shared lane and without memory.
    pub(super) fn cache(&self, lane: &Lane) -> Option<&StrataCache> {
        let number = lane.number() as usize;
        self.cache_if_any(number).or_else(|| self.make(number))
    }

    /// The strata of a lane, if any thread has strata yet.
    pub(super) fn cache_if_any(&self, lane: usize) -> Option<&StrataCache> {
        // Acquire pairs with the exchange in `map_once`.
        let caches = self.caches.load(Ordering::Acquire);
        if caches.is_null() || lane >= LANES {
            return None;
        }
        // SAFETY: an array of LANES zeroed caches that is never unmapped.
        Some(unsafe { &*caches.wrapping_add(lane) })
    }

    #[cold]
    fn make(&self, lane: usize) -> Option<&StrataCache> {
        if lane >= LANES {
            return None;
        }
        arena::map_once(&self.caches, LANES * size_of::<StrataCache>())?;
        self.cache_if_any(lane)
    }
}
