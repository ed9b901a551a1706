//! Names that frames refer to: modules, and functions of interpreters.

use super::{STEP, Word};
use crate::layout::*;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::writer::Writer;

/// Bytes kept of a path or name.
const TEXT_LIMIT: usize = 1024;
/// Bytes kept of a build id.
const ID_LIMIT: usize = 24;
/// Cells that are looked at for a function before there is no room for it.
const PROBES: usize = 64;

impl Writer {
    /// A number for a module, with its path and its build id (empty: it has none). `None`: there is no room. Cold: ask
    /// once for each time that a module is mapped.
    pub fn stack_module(&self, path: &[u8], build_id: &[u8]) -> Option<u16> {
        let number = self.stack_word(Word::Modules).fetch_add(1, Relaxed);
        if !self.records_stacks() || number >= STACK_MODULES as u64 {
            return None;
        }
        let path = cut(path);
        let at = self.store_texts(path, &[])?;
        // SAFETY: the table is allocated while stacks are recorded, the number is below its size; atomics only.
        let cell = unsafe { self.at::<ModuleCell>(STACK_MODULES_AT + number * 64).as_ref() };
        let id = build_id.get(..ID_LIMIT).unwrap_or(build_id);
        store(&cell.id, id);
        cell.id_len.store(id.len() as u64, Relaxed);
        cell.path_at.store(at, Relaxed);
        cell.path_len.store(path.len() as u64, Relaxed);
        cell.ready.store(1, Release); // the reader copies the rest after it has seen this
        Some(number as u16)
    }

    /// A number for a function of an interpreter: the same file and name give the same one. `None`: there is no room.
    pub fn stack_code(&self, file: &[u8], name: &[u8]) -> Option<u32> {
        if !self.records_stacks() {
            return None;
        }
        let (file, name) = (cut(file), cut(name));
        let mut key = 0xcbf2_9ce4_8422_2325u64;
        for byte in file.iter().chain([&0]).chain(name) {
            key = (key ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let key = key.max(1);
        for probe in 0..PROBES {
            let number = (key as usize).wrapping_add(probe) % STACK_CODES;
            // SAFETY: as for modules.
            let cell = unsafe { self.at::<CodeCell>(STACK_CODES_AT + number as u64 * 32).as_ref() };
            let seen = match cell.key.compare_exchange(0, key, Acquire, Acquire) {
                Ok(_) => {
                    let at = self.store_texts(file, name)?;
                    cell.text_at.store(at, Relaxed);
                    cell.lens.store(file.len() as u64 | (name.len() as u64) << 32, Relaxed);
                    cell.ready.store(1, Release);
                    key
                }
                Err(seen) => seen,
            };
            if seen == key {
                return Some(number as u32);
            }
        }
        None
    }

    /// Keeps two texts, one after the other.
    fn store_texts(&self, first: &[u8], second: &[u8]) -> Option<u64> {
        let bytes = (first.len() + second.len()).next_multiple_of(8) as u64;
        let at = self.stack_word(Word::TextsUsed).fetch_add(bytes, Relaxed);
        let end = at.checked_add(bytes).filter(|end| *end <= STACK_TEXTS_BYTES)?;
        if !self.grow_upto(self.stack_word(Word::TextsReady), STACK_TEXTS_AT, STEP, end.div_ceil(STEP)) {
            return None;
        }
        let mut all = first.iter().chain(second).copied();
        for number in 0..bytes / 8 {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(all.by_ref()) {
                *to = from;
            }
            // SAFETY: inside the arena (`end`), allocated; atomics only.
            let place = unsafe { self.at::<AtomicU64>(STACK_TEXTS_AT + at + number * 8).as_ref() };
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        Some(at)
    }
}

fn cut(text: &[u8]) -> &[u8] {
    text.get(..TEXT_LIMIT).unwrap_or(text)
}

fn store(places: &[AtomicU64], bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    for place in places {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes.by_ref()) {
            *to = from;
        }
        place.store(u64::from_ne_bytes(word), Relaxed);
    }
}
