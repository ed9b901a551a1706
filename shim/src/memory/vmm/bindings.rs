//! Bindings of physical memory: the part of an object that keeps it alive, for multicast objects, logical
//! endpoints and sparse arrays.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bindings that are kept; one more is not followed.
const ROOM: usize = 4096;
/// Owner of a place that is being filled.
const BUSY: u64 = 1;

/// One binding: a part of an owner to a handle of physical memory. Free where `owner` is 0.
struct Binding {
    owner: AtomicU64,
    part: AtomicU64,
    memory: AtomicU64,
}

/// The bindings of a process. All zeros is empty.
pub(super) struct Bindings {
    /// Places from here on were never used.
    used: AtomicUsize,
    places: [Binding; ROOM],
}

impl Bindings {
    /// Notes that a part of `owner` holds `memory`. False: no room.
    pub(super) fn bind(&self, owner: u64, part: u64, memory: u64) -> bool {
        if owner <= BUSY {
            return false;
        }
        for (at, place) in self.places.iter().enumerate() {
            // Relaxed on failure: a taken place is not read.
            if place.owner.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                place.part.store(part, Ordering::Relaxed);
                place.memory.store(memory, Ordering::Relaxed);
                // Release pairs with the Acquire in `take`: part and memory are there with the owner.
                place.owner.store(owner, Ordering::Release);
                self.used.fetch_max(at + 1, Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Takes out the binding of one part and gives the memory it held.
    pub(super) fn unbind(&self, owner: u64, part: u64) -> Option<u64> {
        self.take(owner, |p| p == part)
    }

    /// Takes out any binding of an owner.
    pub(super) fn unbind_any(&self, owner: u64) -> Option<u64> {
        self.take(owner, |_| true)
    }

    fn take(&self, owner: u64, is_wanted: impl Fn(u64) -> bool) -> Option<u64> {
        if owner <= BUSY {
            return None;
        }
        // Acquire pairs with the `fetch_max` in `bind`.
        let used = self.used.load(Ordering::Acquire);
        self.places.iter().take(used).find_map(|place| {
            // Acquire pairs with the Release in `bind`.
            if place.owner.load(Ordering::Acquire) != owner || !is_wanted(place.part.load(Ordering::Relaxed))
            {
                return None;
            }
            let memory = place.memory.load(Ordering::Relaxed);
            let taken = place.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok().then_some(memory)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Bindings> {
        let free =
            || Binding { owner: AtomicU64::new(0), part: AtomicU64::new(0), memory: AtomicU64::new(0) };
        Box::new(Bindings { used: AtomicUsize::new(0), places: core::array::from_fn(|_| free()) })
    }

    #[test]
    fn parts_of_one_owner_are_kept_apart() {
        let bindings = empty();
        assert!(bindings.bind(10, 0, 100));
        assert!(bindings.bind(10, 1, 200));
        assert!(bindings.bind(20, 1, 300));
        assert_eq!(bindings.unbind(10, 1), Some(200));
        assert_eq!(bindings.unbind(10, 1), None);
        assert_eq!(bindings.unbind_any(20), Some(300));
        assert_eq!(bindings.unbind_any(10), Some(100));
        assert_eq!(bindings.unbind_any(10), None);
    }

    #[test]
    fn a_full_table_says_so() {
        let bindings = empty();
        for part in 0..ROOM as u64 {
            assert!(bindings.bind(10, part, 1000 + part));
        }
        assert!(!bindings.bind(10, 0, 1));
        assert_eq!(bindings.unbind(10, 7), Some(1007));
        assert!(bindings.bind(11, 0, 1));
    }
}
