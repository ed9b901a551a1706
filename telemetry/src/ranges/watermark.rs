//! The largest device total since a moment.
//!
//! An allocation adds to the total first and raises the watermark after; a range that begins clears the watermark first
//! and reads the total after. Of the two at least one sees the other: either the range finds the total with the allocation
//! in it, or the allocation finds the cleared watermark and raises it.

use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::store_load_barrier;

/// Stands in an allocation between its addition to the total and its look at the watermarks.
#[inline(always)]
pub fn barrier() {
    store_load_barrier();
}

/// Begins a range: gives the watermark of the range around it, and the total now.
#[inline]
pub fn begin(watermark: &AtomicU64, total: &AtomicU64) -> (u64, u64) {
    let around = watermark.swap(0, AcqRel);
    // Pairs with the one of an allocation.
    barrier();
    let entry = total.load(Relaxed);
    reached(watermark, entry);
    (around, entry)
}

/// Raises a watermark to a total.
#[inline]
pub fn reached(watermark: &AtomicU64, total: u64) {
    if total > watermark.load(Relaxed) {
        watermark.fetch_max(total, AcqRel);
    }
}

/// Ends a range: gives the largest total inside, and the total now. The watermark is then that of the range around it.
#[inline]
pub fn end(watermark: &AtomicU64, total: &AtomicU64, around: u64) -> (u64, u64) {
    // Acquire: pairs with the Release of a discharge.
    let exit = total.load(Acquire);
    // An allocation that is under way has added to the total and may not have raised the watermark yet.
    let peak = watermark.load(Acquire).max(exit);
    reached(watermark, around);
    (peak, exit)
}
