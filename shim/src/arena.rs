//! Memory of our own, apart from the program's allocator.
//!
//! Blocks come in powers of two, from chunks that are mapped and never unmapped: a block that another
//! thread still reads after it was freed stays readable. No lock: free blocks stand in one list per
//! size, whose head carries a counter so that a block that left and came back is noticed.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Smallest block: 64 bytes, one cache line.
const MIN_CLASS: u32 = 6;
/// Largest block taken from a chunk: 64 KiB; larger ones are mapped on their own.
const MAX_CARVED_CLASS: u32 = 16;
/// Largest block at all: 1 GiB.
const MAX_CLASS: u32 = 30;
const CLASSES: usize = (MAX_CLASS - MIN_CLASS + 1) as usize;
const CHUNK_BYTES: usize = 1 << 20;
const ADDRESS_BITS: u32 = 48;

/// Heads of the lists of free blocks: address below, counter above.
static FREE: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];
static CHUNK: AtomicPtr<Chunk> = AtomicPtr::new(core::ptr::null_mut());

#[repr(C, align(64))]
struct Chunk {
    used: AtomicUsize,
}

/// Zeroed private memory from the kernel; `None` where it has none to give.
pub(crate) fn map_private(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing else.
    let at = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    at.ok().map(|p| p.cast::<u8>())
}

/// Zeroed private memory that is mapped when it is first needed and stays: its address stands in `place`. Of threads
/// that come at once one wins; `None` where the kernel has no memory to give.
pub(crate) fn map_once<T>(place: &AtomicPtr<T>, bytes: usize) -> Option<*mut T> {
    // Acquire pairs with the exchange below.
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let fresh = map_private(bytes)?.cast::<T>();
    match place.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(fresh),
        Err(other) => {
            // SAFETY: mapped just above and not published.
            let _ = unsafe { rustix::mm::munmap(fresh.cast(), bytes) };
            Some(other)
        }
    }
}

fn class_of(bytes: usize) -> Option<u32> {
    let class = bytes.max(1 << MIN_CLASS).checked_next_power_of_two()?.trailing_zeros();
    (class <= MAX_CLASS).then_some(class)
}

fn list(class: u32) -> Option<&'static AtomicU64> {
    FREE.get((class - MIN_CLASS) as usize)
}

fn address(head: u64) -> u64 {
    head & ((1 << ADDRESS_BITS) - 1)
}

fn retagged(head: u64, block: u64) -> u64 {
    ((head >> ADDRESS_BITS).wrapping_add(1) << ADDRESS_BITS) | block
}

/// A block of at least `bytes`, zeroed, aligned to 64 bytes.
pub(crate) fn alloc(bytes: usize) -> Option<NonNull<u8>> {
    let class = class_of(bytes)?;
    let block = match pop(class) {
        Some(block) => {
            // SAFETY: the block left the list and is this thread's alone.
            unsafe { block.as_ptr().write_bytes(0, 1 << class) };
            block
        }
        None if class > MAX_CARVED_CLASS => NonNull::new(map_private(1 << class)?)?,
        None => carve(1 << class)?,
    };
    Some(block)
}

/// Gives a block back.
///
/// # Safety
/// `block` came from [`alloc`] with the same number of bytes and is not used as such any more. Its
/// first eight bytes are read by this module only from here on; the rest stays readable.
pub(crate) unsafe fn free(block: NonNull<u8>, bytes: usize) {
    let Some(head) = class_of(bytes).and_then(list) else { return };
    let at = block.as_ptr().addr() as u64;
    // SAFETY: blocks are at least 64 bytes and aligned; late readers only load.
    let link = unsafe { &*block.as_ptr().cast::<AtomicU64>() };
    let mut seen = head.load(Ordering::Relaxed);
    loop {
        link.store(address(seen), Ordering::Relaxed);
        // Release pairs with the Acquire in `pop`: the link is written.
        match head.compare_exchange_weak(seen, retagged(seen, at), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

fn pop(class: u32) -> Option<NonNull<u8>> {
    let head = list(class)?;
    let mut seen = head.load(Ordering::Acquire);
    loop {
        let block = NonNull::new(address(seen) as *mut u8)?;
        // SAFETY: blocks are never unmapped; a stale link is caught by the counter in the head.
        let next = unsafe { &*block.as_ptr().cast::<AtomicU64>() }.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `free`.
        match head.compare_exchange_weak(
            seen,
            retagged(seen, address(next)),
            Ordering::Acquire,
            Ordering::Acquire,
        ) {
            Ok(_) => return Some(block),
            Err(now) => seen = now,
        }
    }
}

fn carve(bytes: usize) -> Option<NonNull<u8>> {
    loop {
        let chunk = CHUNK.load(Ordering::Acquire);
        if !chunk.is_null() {
            // SAFETY: chunks are never unmapped.
            let used = unsafe { &*chunk }.used.fetch_add(bytes, Ordering::Relaxed);
            let start = used.checked_add(size_of::<Chunk>())?;
            if start.checked_add(bytes)? <= CHUNK_BYTES {
                return NonNull::new(chunk.cast::<u8>().wrapping_add(start));
            }
        }
        let fresh = map_private(CHUNK_BYTES)?.cast::<Chunk>();
        // Release: the mapping is there for every thread that loads the pointer. The rest of a full chunk is
        // given up, as is a chunk that lost this race.
        if CHUNK.compare_exchange(chunk, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: mapped just above and not published.
            let _ = unsafe { rustix::mm::munmap(fresh.cast(), CHUNK_BYTES) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_are_used_again_and_come_back_zeroed() {
        let mut seen = std::collections::HashSet::new();
        for round in 0..10_000usize {
            let bytes = 100 + round % 20;
            let block = alloc(bytes).expect("memory");
            // SAFETY: the block is ours and 128 bytes long.
            let body = unsafe { core::slice::from_raw_parts_mut(block.as_ptr(), bytes) };
            assert!(body.iter().all(|b| *b == 0));
            body.fill(0xff);
            seen.insert(block);
            // SAFETY: not used after this.
            unsafe { free(block, bytes) };
        }
        assert!(seen.len() < 100, "{} different blocks", seen.len());
    }

    #[test]
    fn threads_never_hold_the_same_block() {
        let threads: Vec<_> = (1..=4u8)
            .map(|mark| {
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        let block = alloc(200).expect("memory");
                        // SAFETY: the block is ours and 256 bytes long.
                        unsafe { block.as_ptr().add(8).write_bytes(mark, 192) };
                        std::hint::spin_loop();
                        // SAFETY: as above.
                        let body = unsafe { core::slice::from_raw_parts(block.as_ptr().add(8), 192) };
                        assert!(body.iter().all(|b| *b == mark));
                        // SAFETY: not used after this.
                        unsafe { free(block, 200) };
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread saw another's mark");
        }
    }

    #[test]
    fn more_than_a_gibibyte_is_refused() {
        assert!(alloc((1 << 30) + 1).is_none());
        assert!(alloc(usize::MAX).is_none());
    }
}
