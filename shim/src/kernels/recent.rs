//! A process-wide map from handles to words that forgets: its size is fixed, whatever is put in.
//!
//! A handle lives in the one bucket that its hash names. Where that is full it takes the place of another,
//! of one that is of no use any more if there is one. A thread that misses a handle learns again what was known of it.
//!
//! Without locks and without waiting: a pair's first word is made from handle and value, so a pair of which one half
//! is another thread's matches no handle.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::arena;

/// Pairs of a bucket: one cache line.
const PAIRS: usize = 4;
/// Buckets: 16,384 handles in 256 KiB. Programs that launch more than some thousand functions are rare.
const BUCKETS: usize = 4096;

#[repr(C)]
struct Pair {
    /// [`seal`] of handle and word; 0: free.
    seal: AtomicU64,
    word: AtomicU64,
}

#[repr(C, align(64))]
struct Bucket([Pair; PAIRS]);

/// See the module's description. All zeros is empty.
pub(crate) struct Recent {
    buckets: AtomicPtr<Bucket>,
    /// Counter that selects the pair of a full bucket that goes next.
    next: AtomicUsize,
}

/// A number that looks random (the finaliser of splitmix64).
fn mixed(word: u64) -> u64 {
    let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Seal by which a pair of handle and word is known; never 0.
fn seal(key: u64, word: u64) -> u64 {
    mixed(key.wrapping_add(mixed(word.wrapping_add(0x9e37_79b9_7f4a_7c15)))).max(1)
}

impl Recent {
    /// The empty map.
    pub(crate) const fn new() -> Self {
        Self { buckets: AtomicPtr::new(core::ptr::null_mut()), next: AtomicUsize::new(0) }
    }

    /// The word of a handle, if it is still known.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        // Acquire pairs with the exchange in `map_once`.
        let buckets = self.buckets.load(Ordering::Acquire);
        if buckets.is_null() {
            return None;
        }
        bucket(buckets, key).0.iter().find_map(|pair| pair.word_of(key))
    }

    /// Sets the word of a handle. `is_useless` says of other handles' words whether they may go first.
    pub(crate) fn insert(&self, key: u64, word: u64, is_useless: impl Fn(u64) -> bool) {
        let Some(buckets) = arena::map_once(&self.buckets, BUCKETS * size_of::<Bucket>()) else { return };
        let pairs = &bucket(buckets, key).0;
        let own = pairs.iter().find(|pair| pair.word_of(key).is_some());
        let free = || {
            pairs.iter().find(|pair| {
                pair.seal.load(Ordering::Relaxed) == 0 || is_useless(pair.word.load(Ordering::Relaxed))
            })
        };
        let other = || pairs.get(self.next.fetch_add(1, Ordering::Relaxed) % PAIRS);
        if let Some(pair) = own.or_else(free).or_else(other) {
            // Release pairs with the Acquire in `word_of`: a word can be the address of a record.
            pair.word.store(word, Ordering::Release);
            pair.seal.store(seal(key, word), Ordering::Relaxed);
        }
    }
}

impl Pair {
    fn word_of(&self, key: u64) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (self.seal.load(Ordering::Relaxed) == seal(key, word)).then_some(word)
    }
}

fn bucket<'b>(buckets: *mut Bucket, key: u64) -> &'b Bucket {
    let number = mixed(key) as usize % BUCKETS;
    // SAFETY: an array of `BUCKETS` zeroed buckets that is never unmapped.
    unsafe { &*buckets.wrapping_add(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> u64 {
        0x7f00_0000_0000 + n * 16
    }

    fn never(_: u64) -> bool {
        false
    }

    #[test]
    fn what_was_put_in_last_is_there_and_never_another_word() {
        let map = Recent::new();
        assert_eq!(map.get(key(1)), None);
        for n in 0..100_000 {
            map.insert(key(n), n, never);
            assert_eq!(map.get(key(n)), Some(n));
        }
        let known = (0..100_000).filter(|n| map.get(key(*n)).is_some_and(|word| word == *n)).count();
        let wrong = (0..100_000).filter(|n| map.get(key(*n)).is_some_and(|word| word != *n)).count();
        assert_eq!(wrong, 0);
        assert!((BUCKETS * PAIRS * 9 / 10..=BUCKETS * PAIRS).contains(&known), "{known}");
    }

    #[test]
    fn a_second_insert_replaces_the_word() {
        let map = Recent::new();
        map.insert(64, 1, never);
        map.insert(64, 2, never);
        assert_eq!(map.get(64), Some(2));
        map.insert(64, 0, never);
        assert_eq!(map.get(64), Some(0));
    }

    #[test]
    fn useless_words_go_first() {
        let map = Recent::new();
        // Half of what there is room for is of use.
        for n in 0..(BUCKETS * PAIRS / 2) as u64 {
            map.insert(key(n), 1, never);
        }
        let useful: Vec<u64> =
            (0..(BUCKETS * PAIRS / 2) as u64).filter(|n| map.get(key(*n)).is_some()).collect();
        for n in 1_000_000..1_200_000 {
            map.insert(key(n), 0, |word| word == 0);
        }
        // Only in buckets that were full of useful ones does a useful one go.
        let left = useful.iter().filter(|n| map.get(key(**n)).is_some()).count();
        assert!(left * 100 > useful.len() * 75, "{left} of {}", useful.len());
    }

    #[test]
    fn threads_never_find_the_word_of_another_handle() {
        let map = std::sync::Arc::new(Recent::new());
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let map = map.clone();
                std::thread::spawn(move || {
                    // Few handles in few buckets, with words that say whose they are.
                    for n in 0..200_000u64 {
                        let handle = (n * 7 + t) % 64;
                        map.insert(handle + 2, (handle + 2) << 32 | n, never);
                        let other = (n * 13 + t) % 64 + 2;
                        if let Some(word) = map.get(other) {
                            assert_eq!(word >> 32, other);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread found a foreign word");
        }
    }
}
