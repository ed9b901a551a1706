//! The rule that keeps a sum of words under a limit, with any number of processes, no lock and no refund.
//!
//! A member adds to its own word, then reads all words; if the sum is over the limit it withdraws. Of two
//! members that add at the same time at least one sees the other's bytes (a full barrier lies between the
//! two steps), so whatever was granted last was granted by a process that saw everything that is still
//! granted. A member that is killed leaves a word that is too large, never one that is too small; the word is
//! cleared by the process that finds that its process is dead, and belongs to that generation of the member only.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::sum;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::store_load_barrier;

/// Bits of a word that hold bytes: 4 PiB.
const BITS: u32 = 52;
/// Mask of those bits.
const BYTES: u64 = (1 << BITS) - 1;
/// The largest limit: with it a thousand members of four threads each cannot overflow a word together.
pub const LARGEST: u64 = 1 << 40;

/// Bytes of a word.
#[inline(always)]
pub const fn bytes_of(word: u64) -> u64 {
    word & BYTES
}

/// The word of a generation that holds nothing.
pub const fn empty(generation: u32) -> u64 {
    (generation as u64 & 0xfff) << BITS
}

/// Returns true if a word is of this generation of its member.
pub const fn is_of(word: u64, generation: u32) -> bool {
    word & !BYTES == empty(generation)
}

/// The words of one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Words<'w> {
    /// One for each member.
    pub words: &'w [AtomicU64],
    /// Words from this number on were never used.
    pub high: &'w AtomicU64,
}

impl Words<'_> {
    /// Bytes that all members have reserved together.
    #[inline]
    pub fn sum(&self) -> u64 {
        // After whatever the caller did before: a member raises `high` before it first adds.
        let high = self.high.load(Acquire) as usize;
        sum::sum(self.words, high)
    }

    /// Adds to a member's word unless that would take the sum over the limit.
    ///
    /// # Errors
    ///
    /// The sum without these bytes; nothing was added then. Members that were trying at the same moment
    /// may be part of it.
    #[inline]
    pub fn reserve(&self, own: &AtomicU64, bytes: u64, limit: u64) -> Result<(), u64> {
        reserve_with(own, bytes, limit, || self.sum())
    }
}

/// The rule itself, however all words are read: adds to a member's word unless that would take the sum over the
/// limit.
///
/// # Errors
///
/// The sum without these bytes; nothing was added then.
#[inline]
pub fn reserve_with(own: &AtomicU64, bytes: u64, limit: u64, sum: impl Fn() -> u64) -> Result<(), u64> {
    if bytes > limit {
        return Err(sum());
    }
    own.fetch_add(bytes, AcqRel);
    store_load_barrier();
    let sum = sum();
    if sum <= limit {
        return Ok(());
    }
    release(own, bytes);
    Err(sum.saturating_sub(bytes))
}

/// Adds to a member's word whatever the sum.
#[inline]
pub fn add(own: &AtomicU64, bytes: u64) {
    own.fetch_add(bytes.min(LARGEST), AcqRel);
}

/// Adds to a member's word if it is of this generation still. For others than the member itself.
pub fn add_to(word: &AtomicU64, generation: u32, bytes: u64) -> bool {
    let mut seen = word.load(Relaxed);
    while is_of(seen, generation) {
        let more = empty(generation) | bytes_of(bytes_of(seen) + bytes.min(LARGEST));
        match word.compare_exchange_weak(seen, more, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Takes from a member's word, at most what is there, if it is of this generation still.
pub fn take_from(word: &AtomicU64, generation: u32, bytes: u64) {
    lower(word, bytes, |seen| is_of(seen, generation));
}

/// Makes what is charged for something the amount that it was last said to be. Any number of processes may do so
/// at a time, and each may be killed at any moment: what is reserved covers what is charged throughout.
pub fn settle(said: &AtomicU64, charged: &AtomicU64, reserved: &AtomicU64, generation: u32) {
    loop {
        let (target, seen) = (said.load(Acquire), charged.load(Acquire));
        if !is_of(target, generation) || !is_of(seen, generation) || target == seen {
            return;
        }
        let (more, less) = (
            bytes_of(target).saturating_sub(bytes_of(seen)),
            bytes_of(seen).saturating_sub(bytes_of(target)),
        );
        if more != 0 && !add_to(reserved, generation, more) {
            return;
        }
        let done = charged.compare_exchange(seen, target, AcqRel, Relaxed).is_ok();
        if more != 0 && !done {
            take_from(reserved, generation, more);
        } else if less != 0 && done {
            take_from(reserved, generation, less);
        }
    }
}

/// Takes from a member's word, at most what is there.
#[inline]
pub fn release(own: &AtomicU64, bytes: u64) {
    lower(own, bytes, |_| true);
}

/// Takes from a word, at most what is there, as long as it is the right one.
#[inline(always)]
fn lower(word: &AtomicU64, bytes: u64, is_right: impl Fn(u64) -> bool) {
    let mut seen = word.load(Relaxed);
    while is_right(seen) {
        match word.compare_exchange_weak(seen, seen - bytes.min(bytes_of(seen)), AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Makes a word the one of a new generation, whatever the one before left in it.
pub fn begin(word: &AtomicU64, generation: u32) {
    // A read-modify-write: it has its place in the order of everybody else's.
    word.swap(empty(generation), AcqRel);
}

/// Clears the word of a generation that is dead; a later generation's is left alone.
pub fn clear(word: &AtomicU64, generation: u32) {
    take_from(word, generation, u64::MAX);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(values: &[u64]) -> (Vec<AtomicU64>, AtomicU64) {
        (values.iter().map(|v| AtomicU64::new(*v)).collect(), AtomicU64::new(values.len() as u64))
    }

    #[test]
    fn a_request_that_fits_exactly_is_granted_and_one_byte_more_is_not() {
        let (all, high) = words(&[empty(3) | 40, empty(1) | 50]);
        let row = Words { words: &all, high: &high };
        assert_eq!(row.reserve(&all[0], 11, 100), Err(90));
        assert_eq!(row.reserve(&all[0], 10, 100), Ok(()));
        assert_eq!(row.sum(), 100);
        assert!(is_of(all[0].load(Relaxed), 3));
    }

    #[test]
    fn a_release_never_goes_below_zero_nor_into_the_generation() {
        let (all, _) = words(&[empty(7) | 5]);
        release(&all[0], 9);
        assert_eq!(all[0].load(Relaxed), empty(7));
    }

    #[test]
    fn only_the_dead_generation_is_cleared() {
        let (all, _) = words(&[empty(7) | 5]);
        clear(&all[0], 6);
        assert_eq!(bytes_of(all[0].load(Relaxed)), 5);
        clear(&all[0], 7);
        assert_eq!(all[0].load(Relaxed), empty(7));
    }

    #[test]
    fn the_charge_follows_the_last_amount() {
        let (all, _) = words(&[empty(4) | 100, empty(4) | 30, empty(4)]);
        settle(&all[1], &all[2], &all[0], 4);
        assert_eq!((bytes_of(all[0].load(Relaxed)), bytes_of(all[2].load(Relaxed))), (130, 30));
        all[1].store(empty(4) | 10, Relaxed);
        settle(&all[1], &all[2], &all[0], 4);
        assert_eq!((bytes_of(all[0].load(Relaxed)), bytes_of(all[2].load(Relaxed))), (110, 10));
        // Of another generation: nothing happens.
        begin(&all[0], 5);
        all[1].store(empty(4) | 90, Relaxed);
        settle(&all[1], &all[2], &all[0], 4);
        assert_eq!(all[0].load(Relaxed), empty(5));
    }

    #[test]
    fn a_request_larger_than_the_limit_adds_nothing_even_for_a_moment() {
        let (all, high) = words(&[empty(1)]);
        let row = Words { words: &all, high: &high };
        assert_eq!(row.reserve(&all[0], u64::MAX, 100), Err(0));
        assert_eq!(all[0].load(Relaxed), empty(1));
    }
}
