//! Room for one walk, too large for the program's stacks.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::memory::Memory;
use super::native;
use super::python;
use crate::arena;
use crate::telemetry::stacks::MAX_FRAMES;

/// Rooms that are kept for later.
const KEPT: usize = 16;
/// Rooms at most. A walk that never ends, because it was left by a jump, keeps its own for good.
const ROOMS_LIMIT: usize = 1024;

/// Rooms that are mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Working memory of a walk.
pub(super) struct Scratch {
    pub(super) memory: Memory,
    pub(super) native: native::Walk,
    pub(super) code: python::Walk,
    /// Table of modules that the walks belong to.
    pub(super) version: u64,
    pub(super) frames: [u64; MAX_FRAMES],
}

static ROOMS: [AtomicPtr<Scratch>; KEPT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; KEPT];

/// Runs `work` with a room of its own; `None` if the kernel has no memory to give, or there are too many. A walk that is left by a jump or ends
/// with its thread takes its room along.
pub(super) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> Option<R> {
    // The one that this thread had last, where no other took it: its last walk is that of this thread.
    // SAFETY: `pthread_self` cannot fail.
    let own = (unsafe { libc::pthread_self() }.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % KEPT;
    let rooms = || ROOMS.iter().cycle().skip(own).take(KEPT);
    let kept = rooms().find_map(|place| {
        let is_there = !place.load(Ordering::Relaxed).is_null();
        // Acquire pairs with the Release below: what its last user wrote is done.
        let taken =
            if is_there { place.swap(core::ptr::null_mut(), Ordering::Acquire) } else { return None };
        (!taken.is_null()).then_some(taken)
    });
    let room = match kept {
        Some(room) => room,
        None => map()?,
    };
    // SAFETY: mapped and zeroed when it was made, which is a room, aligned to a page; this thread alone has it.
    let result = work(unsafe { &mut *room });
    let is_kept = rooms().any(|place| {
        place.compare_exchange(core::ptr::null_mut(), room, Ordering::Release, Ordering::Relaxed).is_ok()
    });
    if !is_kept {
        // SAFETY: mapped with this length, and no other thread has it.
        let _ = unsafe { rustix::mm::munmap(room.cast(), size_of::<Scratch>()) };
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
    Some(result)
}

#[cold]
fn map() -> Option<*mut Scratch> {
    let room = (MAPPED.fetch_add(1, Ordering::Relaxed) < ROOMS_LIMIT)
        .then(|| arena::map_private(size_of::<Scratch>()))
        .flatten();
    if room.is_none() {
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
    room.map(<*mut u8>::cast)
}
