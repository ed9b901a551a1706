//! Counts of what keeps a handle alive.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arena;
use crate::map::HandleMap;

/// Count of one handle. Lives in memory that is never unmapped, so that a reader that lost a race
/// still reads.
#[repr(C)]
struct Record {
    /// The arena's own word once the record is free.
    link: AtomicU64,
    count: AtomicU64,
    note: AtomicU64,
}

/// What a release left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The handle was never counted.
    Unknown,
    /// Something still holds it.
    Some,
    /// That was the last reference: the handle is forgotten, its note is handed back.
    Nothing(u64),
}

/// Handles with the number of their references and one word of note each. All zeros is empty.
pub(super) struct References {
    records: HandleMap,
}

impl References {
    /// Starts a handle with one reference; an entry of an earlier life of the handle is replaced.
    /// False: no memory.
    pub(super) fn start(&self, handle: u64, note: u64) -> bool {
        let Some(block) = arena::alloc(size_of::<Record>()) else { return false };
        // SAFETY: zeroed, large and aligned enough, and shared from here on through atomics only.
        let record = unsafe { block.cast::<Record>().as_ref() };
        record.count.store(1, Ordering::Relaxed);
        record.note.store(note, Ordering::Relaxed);
        let stale = self.records.get(handle);
        // The map's release publishes the two stores.
        let stored = self.records.insert(handle, block.as_ptr().addr() as u64);
        if !stored {
            Self::discard(block);
        } else if let Some(stale) = stale.and_then(|at| NonNull::new(at as *mut u8)) {
            Self::discard(stale);
        }
        stored
    }

    /// Adds a reference to a handle that is known, and gives its note.
    pub(super) fn hold(&self, handle: u64) -> Option<u64> {
        let record = self.record(handle)?;
        // Relaxed: the count orders nothing; the program holds a reference while it adds one.
        record.count.fetch_add(1, Ordering::Relaxed);
        Some(record.note.load(Ordering::Relaxed))
    }

    /// Takes a reference away.
    pub(super) fn release(&self, handle: u64) -> Left {
        let Some(record) = self.record(handle) else { return Left::Unknown };
        // AcqRel: the last release comes after all others.
        match record.count.fetch_sub(1, Ordering::AcqRel) {
            1 => {
                let note = record.note.load(Ordering::Relaxed);
                if let Some(block) = self.records.remove(handle).and_then(|at| NonNull::new(at as *mut u8)) {
                    Self::discard(block);
                }
                Left::Nothing(note)
            }
            0 => {
                // Released more often than held: another thread has just taken the last one.
                record.count.fetch_add(1, Ordering::Relaxed);
                Left::Unknown
            }
            _ => Left::Some,
        }
    }

    fn record(&self, handle: u64) -> Option<&Record> {
        let at = NonNull::new(self.records.get(handle)? as *mut Record)?;
        // SAFETY: the map holds addresses of records only, in memory that stays mapped.
        Some(unsafe { at.as_ref() })
    }

    fn discard(block: NonNull<u8>) {
        // SAFETY: made by `arena::alloc` with this size; a late reader only touches the words behind
        // the first.
        unsafe { arena::free(block, size_of::<Record>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> References {
        References { records: HandleMap::new() }
    }

    #[test]
    fn a_handle_is_forgotten_with_its_last_reference() {
        let table = empty();
        assert_eq!(table.release(0x100), Left::Unknown);
        assert_eq!(table.hold(0x100), None);
        assert!(table.start(0x100, 7));
        assert_eq!(table.hold(0x100), Some(7));
        assert_eq!(table.release(0x100), Left::Some);
        assert_eq!(table.release(0x100), Left::Nothing(7));
        assert_eq!(table.release(0x100), Left::Unknown);
    }

    #[test]
    fn a_handle_that_comes_again_starts_anew() {
        let table = empty();
        assert!(table.start(0x100, 1));
        assert_eq!(table.hold(0x100), Some(1));
        assert!(table.start(0x100, 2));
        assert_eq!(table.release(0x100), Left::Nothing(2));
    }

    #[test]
    fn threads_release_what_they_hold() {
        let table = std::sync::Arc::new(empty());
        assert!(table.start(0x40, 9));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let table = table.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        assert_eq!(table.hold(0x40), Some(9));
                        assert_eq!(table.release(0x40), Left::Some);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread lost a reference");
        }
        assert_eq!(table.release(0x40), Left::Nothing(9));
    }
}
