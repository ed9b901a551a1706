//! The timeline of one account: buckets that get wider as time goes on, none ever merged.
//!
//! A bucket is 2^20 ns (about 1 ms) wide for the first half second, later 1/256 to 1/512 of the time that
//! has passed. Its maximum is exact; the kinds carry the change of each kind within the bucket. Changes
//! add up in any order, so two threads cannot leave a stale value behind.
//!
//! One bucket is open: the one of the last change. The first change after its end settles it ([`AccountCell::settle`]), so
//! that a change itself writes no bucket. What is not settled yet belongs to the open bucket: a reader adds what the account's
//! bytes are ahead of all buckets, so a process that was killed lacks nothing.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::kind::TIMELINE_KINDS;
use crate::layout::{AccountCell, TIMELINE_BUCKETS, TIMELINE_CHUNK, TimelineBucket};
use crate::sync::Ordering::{AcqRel, Relaxed};

/// Shift of the finest resolution.
const FINEST: u32 = 20;
/// Buckets at the finest resolution.
const FINE_BUCKETS: u64 = 512;
/// Buckets per doubling of the time after these.
const PER_OCTAVE: u64 = 256;

/// The bucket of a time.
#[inline]
pub fn bucket_index(ns: u64) -> usize {
    let t = ns >> FINEST;
    // Doublings of the width; the sum of the buckets before needs no case for the finest ones.
    let e = u64::from((t | PER_OCTAVE).ilog2() - PER_OCTAVE.ilog2());
    ((e * PER_OCTAVE + (t >> e)) as usize).min(TIMELINE_BUCKETS - 1)
}

/// Start and width of a bucket in ns.
pub fn bucket_span(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < FINE_BUCKETS {
        return (index << FINEST, 1 << FINEST);
    }
    let e = (index - FINE_BUCKETS) / PER_OCTAVE + 1;
    let within = (index - FINE_BUCKETS) % PER_OCTAVE + PER_OCTAVE;
    (within << e << FINEST, 1 << e << FINEST)
}

/// End of a bucket, ns; the last one has none.
pub fn bucket_end(index: usize) -> u64 {
    let (start, width) = bucket_span(index);
    if index < TIMELINE_BUCKETS - 1 { start + width } else { u64::MAX }
}

/// The chunk that a bucket lies in, as a bit of the account's word.
#[inline]
pub fn chunk_of(index: usize) -> u32 {
    (index / TIMELINE_CHUNK) as u32
}

impl AccountCell {
    /// Counts what has changed since the last time in the open bucket. `bucket` gives one by its number, if there is memory for
    /// it.
    ///
    /// Any number of threads may settle at once. Each difference begins where the one before it ended, and is counted by the
    /// thread that moves `settled` over it: so all buckets together are what is settled. A thread that finds that
    /// another one was faster leaves the rest to it; without that, one that stood still in between would take back what
    /// was counted meanwhile and count it in a later bucket.
    pub fn settle<'b>(&self, bucket: impl Fn(u64) -> Option<&'b TimelineBucket>) {
        for (kind, (settled, now)) in self.settled.iter().zip(&self.now).enumerate() {
            let before = settled.load(Relaxed);
            let after = now.load(Relaxed);
            if before == after {
                continue;
            }
            let place = bucket(self.open.load(Relaxed)).and_then(|bucket| bucket.change.get(kind));
            if let Some(place) = place
                && settled.compare_exchange(before, after, AcqRel, Relaxed).is_ok()
            {
                place.fetch_add(after.wrapping_sub(before), Relaxed);
            }
        }
    }
}

impl TimelineBucket {
    /// Notes a total; `kinds` returns the bytes of a kind and is called only if the total is a new maximum.
    #[inline]
    pub fn reached(&self, total: u64, kinds: impl Fn(usize) -> u64) {
        if total > self.max_total.load(Relaxed) {
            self.raise(total, kinds);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise(&self, total: u64, kinds: impl Fn(usize) -> u64) {
        if self.max_total.fetch_max(total, Relaxed) >= total {
            return;
        }
        for (place, kind) in self.at_max.iter().zip(1..TIMELINE_KINDS) {
            place.store(kinds(kind), Relaxed);
        }
    }
}
