//! Ranges that are open when the process joins: the first call of the driver often comes inside the first phase.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use super::nesting::Nesting;
use super::text::{self, KEPT, Kept};
use crate::telemetry::{RangeText, Writer, monotonic_ns};
use crate::wiped::{Wiped, Zeroable};

/// Ranges that are kept, of all threads.
const RANGES: usize = 64;

/// A range that was opened before the process joined.
struct Early {
    /// 0: free; else the thread's id above, how many ranges it was in plus 1 below.
    owner: AtomicU64,
    /// `CLOCK_MONOTONIC` at its beginning, ns.
    ns: AtomicU64,
    domain: AtomicU64,
    text: UnsafeCell<Kept>,
}

struct Ranges {
    ranges: [Early; RANGES],
    /// Number of ranges that ended before the process joined.
    missed: AtomicU64,
}

// SAFETY: a text is written and read by its owner alone.
unsafe impl Sync for Early {}
// SAFETY: zeros are free places and empty texts; nothing has a destructor.
unsafe impl Zeroable for Ranges {}

static EARLY: Wiped<Ranges> = Wiped::new();

fn owner(level: u32) -> u64 {
    let tid = crate::thread::id();
    u64::from(tid) << 32 | u64::from(level.saturating_add(1))
}

fn find(owner: u64) -> Option<&'static Early> {
    // Relaxed: only the owner itself writes its id.
    EARLY.get()?.ranges.iter().find(|range| range.owner.load(Ordering::Relaxed) == owner)
}

/// Keeps a range that is in so many others of its thread, if there is room.
#[cold]
pub(super) fn push(level: u32, domain: u64, range: RangeText<'_>) {
    crate::errno::keep(|| {
        let Some(all) = EARLY.get() else { return };
        let owner = owner(level);
        let free = all.ranges.iter().find(|range| {
            // AcqRel: what another thread wrote to the text comes before.
            range.owner.compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let Some(place) = free else { return };
        place.ns.store(monotonic_ns(), Ordering::Relaxed);
        place.domain.store(domain, Ordering::Relaxed);
        // SAFETY: the place is this thread's own from the exchange above on.
        text::keep(unsafe { &mut *place.text.get() }, range);
    });
}

/// Forgets a range.
#[cold]
pub(super) fn pop(level: u32) {
    crate::errno::keep(|| {
        if let Some(range) = find(owner(level)) {
            range.owner.store(0, Ordering::Release);
        }
        missed();
    });
}

/// Counts a range or mark that is over, or is not followed, before the process has joined.
#[cold]
pub(super) fn missed() {
    crate::errno::keep(|| {
        if let Some(all) = EARLY.get() {
            all.missed.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Enters the calling thread's ranges into the segment that the process has joined meanwhile. All or none: ends come in
/// the order of the nesting. What was opened before a fork is the parent's.
#[cold]
pub(super) fn enter(writer: &Writer, nesting: &Nesting, lane: u32) {
    crate::errno::keep(|| {
        let Some(all) = EARLY.get() else { return };
        let missed = all.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            writer.early_ranges(missed);
        }
        let open = nesting.before.get();
        if open as usize > RANGES || (0..open).any(|level| find(owner(level)).is_none()) {
            return;
        }
        for level in 0..open {
            let Some(range) = find(owner(level)) else { return };
            // SAFETY: the place is this thread's own until its owner is cleared below.
            let kept = unsafe { &*range.text.get() };
            let (name, step) = writer.range_name(text::kept(kept));
            let start = writer.at_monotonic(range.ns.load(Ordering::Relaxed));
            let domain = range.domain.load(Ordering::Relaxed);
            if nesting.lost.get() == 0
                && writer.push_range(lane, nesting.depth.get(), domain, name, step, Some(start))
            {
                nesting.depth.set(nesting.depth.get().saturating_add(1));
            } else {
                nesting.lost.set(nesting.lost.get().saturating_add(1));
            }
            nesting.before.set(nesting.before.get().saturating_sub(1));
            // Release: pairs with the exchange of the next owner.
            range.owner.store(0, Ordering::Release);
        }
    });
}

const _: () = assert!(KEPT <= 512);
