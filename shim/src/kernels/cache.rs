//! The counters of the kernels that a thread has launched lately, directly mapped by function handle.
//!
//! A cache belongs to a lane of the segment and so to one thread at a time; threads that share the
//! overflow lane have none. That bounds the memory however many threads come and go.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::arena;
use crate::kernels::Kernels;
use crate::telemetry::{LANES, LaneRow, Row};
use crate::tls::Tls;

/// Entries; 256 of 16 bytes fill one page.
const ENTRIES: usize = 256;

/// Offsets of the entries.
pub(crate) const OFFSET_MASK: usize = (ENTRIES - 1) * size_of::<Entry>();
/// Offset of the counters in an entry.
pub(crate) const ROW_OFFSET: usize = core::mem::offset_of!(Entry, row);
const _: () = assert!(size_of::<Entry>() == 16 && core::mem::offset_of!(Entry, function) == 0);

/// Function of an entry that has none. Not 0, which a program may hand over: an entry that matches a
/// function has counters.
const NOTHING: u64 = 1;

/// One thread's cache. It is cleared before its first use.
#[repr(C, align(4096))]
pub(crate) struct KernelCache {
    entries: [Entry; ENTRIES],
}

/// Atomics only because a lane may be handed on while its old owner still runs; relaxed accesses are
/// plain moves.
#[repr(C)]
struct Entry {
    function: AtomicU64,
    row: AtomicPtr<LaneRow>,
}

impl Entry {
    const fn empty() -> Self {
        Self { function: AtomicU64::new(NOTHING), row: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl KernelCache {
    #[inline(always)]
    fn entry(&self, function: u64) -> &Entry {
        // Handles are addresses of objects of at least 16 bytes: the bits above the lowest four, taken as
        // the offset of a 16-byte entry, need no shift.
        let offset = (function ^ (function >> 8)) as usize & OFFSET_MASK;
        // SAFETY: the offset is a multiple of an entry's size and below that of all entries.
        unsafe { &*(&raw const self.entries).cast::<Entry>().wrapping_byte_add(offset) }
    }

    /// The thread's counters of a function's kernel, if they are here.
    #[inline(always)]
    pub(crate) fn get(&self, function: u64) -> Option<Row> {
        let entry = self.entry(function);
        if entry.function.load(Ordering::Relaxed) != function {
            return None;
        }
        // SAFETY: an entry with a function has been given a row.
        unsafe { Row::from_ptr(entry.row.load(Ordering::Relaxed)) }
    }

    /// Keeps the counters of a function's kernel.
    pub(crate) fn put(&self, function: u64, row: Row) {
        if ptr::eq(self, &raw const NONE) {
            return;
        }
        let entry = self.entry(function);
        entry.function.store(NOTHING, Ordering::Relaxed);
        entry.row.store(row.as_ptr().cast_mut(), Ordering::Relaxed);
        entry.function.store(function, Ordering::Relaxed);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        if ptr::eq(self, &raw const NONE) {
            return;
        }
        for entry in &self.entries {
            entry.function.store(NOTHING, Ordering::Relaxed);
        }
    }
}

/// The cache of threads that have none: stays empty.
static NONE: KernelCache = KernelCache { entries: [const { Entry::empty() }; ENTRIES] };

/// The cache of a thread.
#[inline(always)]
pub(crate) fn of(tls: &Tls) -> &KernelCache {
    // SAFETY: a thread with a valid epoch has been given `NONE` or an element of the never unmapped
    // array below.
    unsafe { &*tls.cache.get() }
}

impl Kernels {
    /// The cache that goes with a lane; an ever empty one for the overflow lane or without memory.
    pub(crate) fn cache_of(&self, lane: usize) -> *const KernelCache {
        if lane >= LANES {
            return &raw const NONE;
        }
        // Acquire pairs with the exchange below.
        let mut caches = self.caches.load(Ordering::Acquire);
        if caches.is_null() {
            let bytes = LANES * size_of::<KernelCache>();
            let Some(fresh) = arena::map_private(bytes) else { return &raw const NONE };
            caches = match self.caches.compare_exchange(
                ptr::null_mut(),
                fresh.cast(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => fresh.cast(),
                Err(other) => {
                    // SAFETY: mapped just above and seen by nobody.
                    let _ = unsafe { rustix::mm::munmap(fresh.cast(), bytes) };
                    other
                }
            };
        }
        caches.wrapping_add(lane).cast_const()
    }
}
