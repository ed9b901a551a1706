//! A process-wide map from handles to words, without locks.
//!
//! Levels of growing size, each an array of buckets of eight pairs. A key lives in the bucket that its
//! hash names, in any level; a look-up therefore reads one cache line per level. A removed pair leaves
//! a free place, no tombstone. All zeros is the empty map.
//!
//! The driver gives a handle to one caller at a time, so a key is inserted and removed by one thread
//! at a time; look-ups may run beside both, and changes of its word by any threads beside each other.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::arena;

/// Pairs per bucket: the keys fill one cache line.
const PAIRS: usize = 8;
/// Buckets of the first level; each further level has four times as many.
const FIRST: usize = 64;
/// 64 * 4^9 buckets in the last level: more handles than a process can hold.
const LEVELS: usize = 10;
/// Key of a place that is being filled, by the hash that names its bucket: a value whose own hash names another
/// bucket at every level. So no look-up, whatever handle a program passes, takes such a place for its own.
const fn busy(hash: usize) -> u64 {
    if hash & 1 == 0 { 1 } else { 2 }
}

const _: () = assert!(hash(1) & 1 == 1 && hash(2) & 1 == 0 && FIRST.is_power_of_two());

/// Handles are addresses: the product's upper bits depend on all of theirs.
const fn hash(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as usize
}

#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; PAIRS],
    values: [AtomicU64; PAIRS],
}

impl Place<'_> {
    /// Frees the place. False: another thread was faster.
    fn clear(&self, key: u64) -> bool {
        self.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// See the module's description.
pub(crate) struct HandleMap {
    levels: [AtomicPtr<Bucket>; LEVELS],
}

struct Place<'m> {
    key: &'m AtomicU64,
    value: &'m AtomicU64,
}

impl HandleMap {
    /// The empty map.
    pub(crate) const fn new() -> Self {
        Self { levels: [const { AtomicPtr::new(core::ptr::null_mut()) }; LEVELS] }
    }

    /// The word of a handle.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let place = self.find(key)?;
        let value = place.value.load(Ordering::Acquire);
        // The pair may have been replaced between the two loads.
        (place.key.load(Ordering::Acquire) == key).then_some(value)
    }

    /// Sets the word of a handle. False: no memory, or null, which is not a handle.
    pub(crate) fn insert(&self, key: u64, value: u64) -> bool {
        if key == 0 {
            return false;
        }
        if let Some(place) = self.find(key) {
            place.value.store(value, Ordering::Release);
            return true;
        }
        loop {
            let depth = self.depth();
            let free = (0..depth).rev().find_map(|level| self.claim(self.bucket(level, key)?, key));
            if let Some(place) = free {
                place.value.store(value, Ordering::Relaxed);
                // Release pairs with the Acquire in `find`: the value is there with the key.
                place.key.store(key, Ordering::Release);
                return true;
            }
            if !self.grow(depth) {
                return false;
            }
        }
    }

    /// Takes a handle out and gives the word it had.
    pub(crate) fn remove(&self, key: u64) -> Option<u64> {
        let place = self.find(key)?;
        let value = place.value.load(Ordering::Acquire);
        place.clear(key).then_some(value)
    }

    /// Changes the word of a handle and gives what it was. `None`: the handle is not there, or `change` wants no change.
    #[inline]
    pub(crate) fn update(&self, key: u64, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        self.update_to_end(key, change, |_| false)
    }

    /// As [`HandleMap::update`]; a handle whose new word is its `end` is taken out.
    #[inline]
    pub(crate) fn update_to_end(
        &self,
        key: u64,
        change: impl Fn(u64) -> Option<u64>,
        end: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let place = self.find(key)?;
        let mut seen = place.value.load(Ordering::Acquire);
        loop {
            let next = change(seen)?;
            // AcqRel: the thread that takes a handle out comes after all that changed its word.
            match place.value.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let is_ours =
                        if end(next) { place.clear(key) } else { place.key.load(Ordering::Acquire) == key };
                    if is_ours {
                        return Some(seen);
                    }
                    // The place has gone to another handle meanwhile, whose word this was.
                    let _ = place.value.compare_exchange(next, seen, Ordering::AcqRel, Ordering::Relaxed);
                    return None;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Number of levels in use.
    fn depth(&self) -> usize {
        self.levels.iter().take_while(|l| !l.load(Ordering::Acquire).is_null()).count()
    }

    #[inline]
    fn find(&self, key: u64) -> Option<Place<'_>> {
        if key == 0 {
            return None;
        }
        for level in 0..LEVELS {
            let bucket = self.bucket(level, key)?;
            for (at, value) in bucket.keys.iter().zip(&bucket.values) {
                // Acquire pairs with the Release in `insert`.
                if at.load(Ordering::Acquire) == key {
                    return Some(Place { key: at, value });
                }
            }
        }
        None
    }

    /// Makes a free place of a bucket the caller's.
    fn claim<'m>(&self, bucket: &'m Bucket, key: u64) -> Option<Place<'m>> {
        let busy = busy(hash(key));
        bucket.keys.iter().zip(&bucket.values).map(|(key, value)| Place { key, value }).find(|place| {
            // Relaxed on failure: a taken place is not read.
            place.key.load(Ordering::Relaxed) == 0
                && place.key.compare_exchange(0, busy, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// The bucket in which a key may stand at one level; `None` where the level does not exist.
    #[inline]
    fn bucket(&self, level: usize, key: u64) -> Option<&Bucket> {
        let buckets = FIRST << (2 * level);
        // Acquire pairs with the release in `grow`.
        let first = self.levels.get(level)?.load(Ordering::Acquire);
        // SAFETY: a level is an array of `buckets` zeroed buckets that is never unmapped.
        (!first.is_null()).then(|| unsafe { &*first.wrapping_add(hash(key) & (buckets - 1)) })
    }

    fn grow(&self, level: usize) -> bool {
        let Some(slot) = self.levels.get(level) else { return false };
        let bytes = (FIRST << (2 * level)) * size_of::<Bucket>();
        let Some(fresh) = arena::map_private(bytes).map(|p| p.cast::<Bucket>()) else { return false };
        // Release: a thread that loads the pointer sees the zeroed level.
        if slot.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: mapped just above and not published.
            let _ = unsafe { rustix::mm::munmap(fresh.cast(), bytes) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_removed() {
        let map = HandleMap::new();
        let key = |n: u64| 0x7f00_0000_0000 + n * 16;
        for n in 0..20_000 {
            assert!(map.insert(key(n), n));
        }
        for n in 0..20_000 {
            assert_eq!(map.get(key(n)), Some(n));
        }
        for n in (0..20_000).step_by(2) {
            assert_eq!(map.remove(key(n)), Some(n));
        }
        for n in 0..20_000 {
            assert_eq!(map.get(key(n)), (n % 2 == 1).then_some(n));
        }
        assert_eq!(map.remove(key(0)), None);
    }

    #[test]
    fn a_million_short_lives_take_no_more_than_the_first_levels() {
        let map = HandleMap::new();
        for n in 2..1_000_002u64 {
            assert!(map.insert(n, n));
            assert_eq!(map.remove(n), Some(n));
        }
        assert_eq!(map.depth(), 1);
    }

    #[test]
    fn a_second_insert_replaces_the_word() {
        let map = HandleMap::new();
        assert!(map.insert(64, 1));
        assert!(map.insert(64, 2));
        assert_eq!(map.remove(64), Some(2));
        assert_eq!(map.get(64), None);
    }

    #[test]
    fn null_is_no_handle() {
        let map = HandleMap::new();
        assert!(!map.insert(0, 7));
        assert_eq!(map.get(0), None);
        assert_eq!(map.remove(0), None);
    }

    #[test]
    fn values_of_busy_places_are_handles_like_others() {
        let map = HandleMap::new();
        for key in [1, 2, u64::MAX] {
            assert_eq!(map.get(key), None);
            assert!(map.insert(key, key ^ 6));
            assert_eq!(map.get(key), Some(key ^ 6));
            assert_eq!(map.remove(key), Some(key ^ 6));
            assert_eq!(map.get(key), None);
        }
        // A place that is being filled, in every bucket of the first level.
        assert!(map.insert(64, 0));
        let level = map.levels[0].load(Ordering::Acquire);
        for at in 0..FIRST {
            // SAFETY: the first level has this many buckets.
            let bucket = unsafe { &*level.wrapping_add(at) };
            bucket.keys.iter().for_each(|key| key.store(busy(at), Ordering::Relaxed));
        }
        assert_eq!((map.get(1), map.get(2)), (None, None));
    }

    #[test]
    fn threads_with_their_own_handles_do_not_lose_any() {
        let map = std::sync::Arc::new(HandleMap::new());
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let map = map.clone();
                std::thread::spawn(move || {
                    for n in 0..20_000u64 {
                        let key = (n << 8) | (t << 4) | 2;
                        assert!(map.insert(key, n));
                        assert_eq!(map.get(key), Some(n));
                        if n % 3 == 0 {
                            assert_eq!(map.remove(key), Some(n));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread lost a handle");
        }
    }
}
