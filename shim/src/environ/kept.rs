//! A copy of this library's variables in the initial environment, taken at the first look-up of any symbol in the process.
//!
//! A program that shows a title of its own (setproctitle) writes over the strings. Where that is a module that is looked up,
//! as Python's is, the copy is older.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::{initial, value_of};
use crate::bytes;

/// Enough for a segment's path and those of many ledgers; what does not fit is left out.
const ROOM: usize = 16 << 10;

struct Room(UnsafeCell<[u8; ROOM]>);

// SAFETY: written by the one thread that sets `STATE` to `WRITING`, and read after it is `READY`.
unsafe impl Sync for Room {}

static COPY: Room = Room(UnsafeCell::new([0; ROOM]));
static USED: AtomicUsize = AtomicUsize::new(0);

const NONE: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(NONE);

/// Takes the copy, once.
#[cold]
pub(crate) fn keep() {
    if STATE.compare_exchange(NONE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: this thread alone has set the state, and readers wait for the next one.
    let room = unsafe { &mut *COPY.0.get() };
    let mut used = 0;
    let entries = initial::strings().split(|byte| *byte == 0);
    for entry in entries.filter(|entry| entry.starts_with(b"RADRM_")) {
        // One zero stands behind each.
        let end = used + entry.len();
        if let Some(place) = room.get_mut(used..end).filter(|_| end < ROOM) {
            bytes::copy(place, entry);
            used = end + 1;
        }
    }
    USED.store(used, Ordering::Relaxed);
    // Release pairs with the Acquire of a reader, which then sees the copy whole.
    STATE.store(READY, Ordering::Release);
}

/// The value of a variable in the copy.
pub(super) fn value(name: &[u8]) -> Option<&'static [u8]> {
    if STATE.load(Ordering::Acquire) != READY {
        return None;
    }
    // SAFETY: never written again.
    let copy = unsafe { &*COPY.0.get() }.get(..USED.load(Ordering::Relaxed))?;
    copy.split(|byte| *byte == 0).find_map(|entry| value_of(entry, name))
}
