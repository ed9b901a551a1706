//! Counts of what keeps a handle alive.

use crate::map::HandleMap;

/// One reference in a handle's word; below are the bits of its note.
const ONE: u64 = 1 << NOTE_BITS;
const NOTE_BITS: u32 = 8;

/// State of a handle after a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The handle was never counted.
    Unknown,
    /// Something still holds it.
    Some,
    /// That was the last reference: the handle is forgotten, its note is handed back.
    Nothing(u8),
}

/// Handles with the number of their references and a note of one byte each. All zeros is empty.
pub(super) struct References {
    words: HandleMap,
}

impl References {
    /// Starts a handle with one reference; an entry of an earlier life of the handle is replaced.
    /// False: no memory.
    pub(super) fn start(&self, handle: u64, note: u8) -> bool {
        self.words.insert(handle, ONE | u64::from(note))
    }

    /// Adds a reference to a handle that is known, and gives its note.
    pub(super) fn hold(&self, handle: u64) -> Option<u8> {
        self.words.update(handle, |word| (word >= ONE).then(|| word.wrapping_add(ONE))).map(note)
    }

    /// Takes a reference away.
    pub(super) fn release(&self, handle: u64) -> Left {
        // Released more often than held: another thread has just taken the last one.
        match self.words.update_to_end(handle, |word| word.checked_sub(ONE), |word| word < ONE) {
            None => Left::Unknown,
            Some(word) if word < 2 * ONE => Left::Nothing(note(word)),
            Some(_) => Left::Some,
        }
    }
}

fn note(word: u64) -> u8 {
    (word & (ONE - 1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> References {
        References { words: HandleMap::new() }
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
