//! The counters of the kernels that a thread has launched lately, directly mapped by function handle.
//!
//! A cache belongs to a lane of the segment and so to one thread at a time; threads that share the
//! overflow lane have none. That bounds the memory however many threads come and go.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::telemetry::{LaneRow, Row};

/// Entries; handles and counters of 256 fill one page.
const ENTRIES: usize = 256;

/// Multiplier whose product's upper bits depend on all bits of a handle's lower half: 2^32 divided by the
/// golden ratio, as a signed immediate.
pub(crate) const HASH_FACTOR: i32 = 0x9e37_79b9_u32 as i32;
/// Bits of that product that are shifted out, to leave an entry's number.
pub(crate) const HASH_SHIFT: u32 = 32 - ENTRIES.trailing_zeros();
/// Offset of the counters from the handles.
pub(crate) const ROWS_OFFSET: usize = core::mem::offset_of!(KernelCache, rows);
const _: () = assert!(core::mem::offset_of!(KernelCache, functions) == 0 && ENTRIES.is_power_of_two());

/// Value of an entry without a function: one whose own entry is another one. So no handle that a program passes, valid
/// or not, matches an empty entry, which has no counters.
const fn vacant(number: usize) -> u64 {
    if number == 0 { 1 } else { 0 }
}

const _: () = assert!(number_of(0) == 0 && number_of(1) != 0);

/// The number of a function's entry.
const fn number_of(function: u64) -> usize {
    ((function as u32).wrapping_mul(HASH_FACTOR.cast_unsigned()) >> HASH_SHIFT) as usize
}

/// One thread's cache. It is cleared before its first use.
///
/// Atomics only because a lane may be handed on while its old owner still runs; relaxed accesses are
/// plain moves.
#[repr(C, align(4096))]
pub(crate) struct KernelCache {
    functions: [AtomicU64; ENTRIES],
    rows: [AtomicPtr<LaneRow>; ENTRIES],
}

impl KernelCache {
    #[inline(always)]
    fn entry(&self, number: usize) -> (&AtomicU64, &AtomicPtr<LaneRow>) {
        // SAFETY: what `number_of` leaves after the shift is below the number of entries.
        unsafe { (self.functions.get_unchecked(number), self.rows.get_unchecked(number)) }
    }

    /// The thread's counters of a function's kernel, if they are here.
    #[inline(always)]
    pub(crate) fn get(&self, function: u64) -> Option<Row> {
        let (key, row) = self.entry(number_of(function));
        if key.load(Ordering::Relaxed) != function {
            return None;
        }
        // SAFETY: an entry that matches a function has been given a row.
        unsafe { Row::from_ptr(row.load(Ordering::Relaxed)) }
    }

    /// Keeps the counters of a function's kernel. From then on its launches in this thread do not come
    /// to compiled code: only where launches are counted and not timed, and are the program's own
    /// (`resolve::launches_are_direct`).
    pub(crate) fn put(&self, function: u64, row: Row) {
        if ptr::eq(self, none()) {
            return;
        }
        let number = number_of(function);
        let (key, place) = self.entry(number);
        key.store(vacant(number), Ordering::Relaxed);
        place.store(row.as_ptr().cast_mut(), Ordering::Relaxed);
        key.store(function, Ordering::Relaxed);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        if ptr::eq(self, none()) {
            return;
        }
        for (number, function) in self.functions.iter().enumerate() {
            function.store(vacant(number), Ordering::Relaxed);
        }
    }
}

/// The cache of threads that have none: stays empty. Plain words, so that it lies among what is never written: the loader
/// would copy the pages of written data beside it in every program.
#[repr(C, align(4096))]
struct Empty {
    functions: [u64; ENTRIES],
    rows: [u64; ENTRIES],
}

const _: () = assert!(
    size_of::<Empty>() == size_of::<KernelCache>()
        && core::mem::offset_of!(Empty, rows) == ROWS_OFFSET
        && size_of::<AtomicPtr<LaneRow>>() == size_of::<u64>()
);

static EMPTY: Empty = Empty {
    functions: {
        let mut all = [vacant(1); ENTRIES];
        all[0] = vacant(0);
        all
    },
    rows: [0; ENTRIES],
};

/// [`EMPTY`] as a cache: it is only read.
pub(super) fn none() -> *const KernelCache {
    (&raw const EMPTY).cast()
}
