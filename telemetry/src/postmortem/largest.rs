//! A list of the largest of many, in shared memory.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// The largest of many, and what the others add up to.
#[repr(C)]
#[derive(Debug)]
pub struct Largest<const N: usize, const W: usize> {
    /// Entries in use.
    pub listed: AtomicU64,
    /// Entries that found no place.
    pub more: AtomicU64,
    /// Bytes of these.
    pub more_bytes: AtomicU64,
    /// Entries; the first word is the number of bytes by which they are chosen.
    pub entries: [[AtomicU64; W]; N],
}

impl<const N: usize, const W: usize> Largest<N, W> {
    /// Empties the list.
    pub(super) fn clear(&self) {
        let counts = [&self.listed, &self.more, &self.more_bytes];
        for word in counts.into_iter().chain(self.entries.iter().flatten()) {
            word.store(0, Relaxed);
        }
    }

    /// Lists an entry if it is among the largest, and counts what is not. Gives the smallest size that is
    /// listed once the list is full, else 0.
    pub(super) fn offer(&self, words: [u64; W]) -> u64 {
        let listed = self.listed.load(Relaxed);
        let place = match self.entries.get(listed as usize) {
            Some(free) => {
                self.listed.store(listed + 1, Relaxed);
                Some(free)
            }
            None => {
                let bytes = words.first().copied().unwrap_or(0);
                let smallest = self.smallest().filter(|(_, smallest)| *smallest < bytes);
                self.left_out(smallest.map_or(bytes, |(_, smallest)| smallest));
                smallest.map(|(entry, _)| entry)
            }
        };
        for (to, word) in place.into_iter().flatten().zip(words) {
            to.store(word, Relaxed);
        }
        if self.listed.load(Relaxed) < N as u64 { 0 } else { self.smallest().map_or(0, |(_, bytes)| bytes) }
    }

    /// Counts an entry that is not among the largest.
    pub(super) fn left_out(&self, bytes: u64) {
        self.more.store(self.more.load(Relaxed).saturating_add(1), Relaxed);
        self.more_bytes.store(self.more_bytes.load(Relaxed).saturating_add(bytes), Relaxed);
    }

    fn smallest(&self) -> Option<(&[AtomicU64; W], u64)> {
        let bytes = |entry: &[AtomicU64; W]| entry.first().map_or(0, |word| word.load(Relaxed));
        self.entries.iter().map(|entry| (entry, bytes(entry))).min_by_key(|(_, bytes)| *bytes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::array::from_fn;

    fn empty<const N: usize>() -> Largest<N, 2> {
        let zero = || AtomicU64::new(0);
        Largest {
            listed: zero(),
            more: zero(),
            more_bytes: zero(),
            entries: from_fn(|_| from_fn(|_| zero())),
        }
    }

    proptest! {
        #[test]
        fn the_largest_are_listed_and_the_others_are_counted(sizes in prop::collection::vec(1u64..50, 0..40)) {
            let list = empty::<5>();
            for (number, size) in sizes.iter().enumerate() {
                list.offer([*size, number as u64]);
            }
            let listed = list.listed.load(Relaxed) as usize;
            let mut kept: Vec<u64> = list.entries[..listed].iter().map(|e| e[0].load(Relaxed)).collect();
            kept.sort();
            let mut all = sizes.clone();
            all.sort();
            let rest = all.len().saturating_sub(5);
            prop_assert_eq!(&kept, &all[rest..]);
            prop_assert_eq!(list.more.load(Relaxed), rest as u64);
            prop_assert_eq!(list.more_bytes.load(Relaxed), all[..rest].iter().sum::<u64>());
            for entry in &list.entries[..listed] {
                prop_assert_eq!(entry[0].load(Relaxed), sizes[entry[1].load(Relaxed) as usize]);
            }
        }
    }
}
