//! Reading the process's own memory so that no address can hurt: the kernel copies, and says where nothing is mapped.
//!
//! Whole pages are copied, and kept for the time of one stack: frames lie close to each other, and so do the tables that
//! a search visits. Most words that one stack was read from the next one is read from too ([`super::trace`]), so the pieces of
//! pages that hold them are copied anew in one call of the kernel before a stack begins.

use core::ffi::c_void;

/// Bytes that are copied at once.
const PAGE: usize = 4096;
/// Pages that are kept.
const PAGES: usize = 32;
/// Places at which a page can stand, from its own on.
const PROBES: usize = 8;
/// Words that one walk can be read from and be remembered.
pub(super) const READS: usize = 1024;
/// Stacks after which the pieces are found anew, as they only grow.
const REVIEW: u32 = 256;

/// Copied bytes.
#[derive(Clone, Copy)]
struct Slot {
    /// Address of the page plus 1; 0: none.
    page: u64,
    /// Address of the first byte, and how many there are.
    start: u64,
    len: u64,
    /// Position of these bytes in the room.
    at: usize,
}

const EMPTY: Slot = Slot { page: 0, start: 0, len: 0, at: 0 };

/// The piece of a page that the next stack begins with.
#[derive(Clone, Copy)]
struct Piece {
    /// Address of the page plus 1; 0: none.
    page: u64,
    /// First byte, and the first behind it.
    from: u32,
    to: u32,
}

/// A word that a walk was read from.
#[derive(Clone, Copy)]
pub(super) struct Read {
    value: u64,
    /// Bits that count.
    mask: u64,
    /// Its piece, and where in the page it is.
    place: u32,
    within: u32,
}

/// Copies of pages.
#[repr(C, align(4096))]
pub(super) struct Memory {
    /// Pages by their places, behind them the pieces.
    room: [u8; 2 * PAGES * PAGE],
    slots: [Slot; PAGES],
    pieces: [Piece; PAGES],
    /// Number of the set of pieces: what is remembered belongs to one.
    generation: u32,
    /// Stacks since it began.
    age: u32,
    pid: libc::pid_t,
    /// The thread whose stack was the last.
    thread: libc::pthread_t,
    /// Addresses that the kernel copies from at once. Too large for a stack of the program.
    vectors: [libc::iovec; PAGES],
    /// Words that the walk under way was read from.
    log: [Read; READS],
    logged: usize,
    /// A word was not logged.
    is_partial: bool,
}

impl Memory {
    /// Forgets every page.
    pub(super) fn clear(&mut self) {
        self.slots = [EMPTY; PAGES];
        self.forget();
        // SAFETY: `getpid` cannot fail.
        self.pid = unsafe { libc::getpid() };
    }

    /// Forgets what earlier stacks were read from.
    fn forget(&mut self) {
        self.pieces = [Piece { page: 0, from: 0, to: 0 }; PAGES];
        self.generation = self.generation.wrapping_add(1);
        self.age = 0;
    }

    /// Begins another stack of the process `pid`, which is the calling one and has its stack pointer at `stack`: nothing is
    /// known from before, but what the last stacks were read from is copied anew.
    pub(super) fn begin(&mut self, pid: libc::pid_t, stack: u64) {
        self.age += 1;
        if self.pid != pid || self.age > REVIEW {
            self.pid = pid;
            self.forget();
        }
        // The innermost frames are new for every stack.
        if stack != 0 {
            let end = (stack | (PAGE as u64 - 1)) - 7;
            self.note(stack & !7);
            self.note((stack & !7).saturating_add(PAGE as u64 / 4).min(end));
        }
        let (mut count, mut bytes) = (0usize, 0usize);
        for (slot, piece) in self.slots.iter_mut().zip(&self.pieces) {
            if piece.page == 0 {
                *slot = EMPTY;
                continue;
            }
            let start = (piece.page - 1).wrapping_add(piece.from.into());
            let len = piece.to.saturating_sub(piece.from) as usize;
            *slot = Slot { page: piece.page, start, len: len as u64, at: PAGES * PAGE + bytes };
            bytes += len;
            // Pages in a row are one piece for the kernel.
            let before = count.checked_sub(1).and_then(|last| self.vectors.get_mut(last));
            match before.filter(|it| (it.iov_base.addr() as u64).wrapping_add(it.iov_len as u64) == start) {
                Some(before) => before.iov_len += len,
                None => {
                    let Some(place) = self.vectors.get_mut(count) else { break };
                    *place = libc::iovec { iov_base: start as *mut c_void, iov_len: len };
                    count += 1;
                }
            }
        }
        let Some(to) = self.room.get_mut(PAGES * PAGE..PAGES * PAGE + bytes) else { return };
        let to = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: bytes };
        // SAFETY: `pthread_self` cannot fail.
        let thread = unsafe { libc::pthread_self() };
        let is_same = core::mem::replace(&mut self.thread, thread) == thread;
        let got = if is_same { Self::write(pid, &self.vectors, count, &to) } else { -1 };
        let got = if got < 0 { Self::fetch(pid, &self.vectors, count, &to) } else { got };
        let got = usize::try_from(got).unwrap_or(0);
        if got != bytes {
            // The kernel stops at the first byte that cannot be read.
            for slot in self.slots.iter_mut().filter(|slot| slot.at + slot.len as usize > PAGES * PAGE + got)
            {
                *slot = EMPTY;
            }
            self.forget();
        }
    }

    /// Has the kernel copy pieces as memory of this process: only the pages that it writes are pinned. That would also read
    /// registers of a device, so it is for what the calling thread itself was read from: its stack does not become another
    /// mapping.
    fn write(pid: libc::pid_t, from: &[libc::iovec; PAGES], count: usize, to: &libc::iovec) -> isize {
        // SAFETY: the kernel writes into the room only, and checks the other addresses.
        unsafe { libc::process_vm_writev(pid, from.as_ptr(), count as u64, to, 1, 0) }
    }

    /// The same as memory of another process: each page is pinned, and device memory is refused.
    fn fetch(pid: libc::pid_t, from: &[libc::iovec; PAGES], count: usize, to: &libc::iovec) -> isize {
        // SAFETY: as above.
        unsafe { libc::process_vm_readv(pid, to, 1, from.as_ptr(), count as u64, 0) }
    }

    /// Number of the set of pieces that words in the log belong to.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Begins a walk: what it is read from is logged from now on.
    pub(super) fn begin_log(&mut self) {
        (self.logged, self.is_partial) = (0, false);
    }

    /// Number of words that the walk was read from up to now.
    pub(super) fn logged(&self) -> usize {
        self.logged
    }

    /// Words of the log; `None` if it lacks one of the walk.
    pub(super) fn log(&self) -> Option<&[Read]> {
        if self.is_partial { None } else { self.log.get(..self.logged) }
    }

    /// Of words that an earlier walk was read from: how many, from the first on, are as they were. Only for words of this
    /// generation, and before anything else of the stack is read.
    pub(super) fn unchanged(&self, reads: &[Read]) -> usize {
        // Where byte 0 of each page would stand; of one that could not be copied: nowhere. A piece has all words that were
        // read from its page before it was copied.
        let mut bases = [usize::MAX / 2; PAGES];
        for (base, slot) in bases.iter_mut().zip(&self.slots).filter(|(_, slot)| slot.page != 0) {
            *base = slot.at.wrapping_sub((slot.start % PAGE as u64) as usize);
        }
        let is_other = |read: &Read| {
            let base = bases.get(read.place as usize % PAGES).copied().unwrap_or(usize::MAX / 2);
            let at = base.wrapping_add(read.within as usize);
            let word = self.room.get(at..).and_then(<[u8]>::first_chunk);
            word.is_none_or(|word| (u64::from_le_bytes(*word) ^ read.value) & read.mask != 0)
        };
        reads.iter().position(is_other).unwrap_or(reads.len())
    }

    /// Has the aligned word at an address copied when the next stack begins; its piece. `None`: there is no room.
    #[inline]
    fn note(&mut self, at: u64) -> Option<u32> {
        let within = (at % PAGE as u64) as u32;
        let page = (at - u64::from(within)).wrapping_add(1);
        let first = (at / PAGE as u64) as usize;
        for probe in 0..PROBES {
            let place = (first + probe) % PAGES;
            let piece = self.pieces.get_mut(place)?;
            if piece.page == 0 {
                *piece = Piece { page, from: within, to: within + 8 };
            } else if piece.page == page {
                piece.from = piece.from.min(within);
                piece.to = piece.to.max(within + 8);
            } else {
                continue;
            }
            return Some(place as u32);
        }
        None
    }

    /// A word that a walk depends on: as [`Memory::u64`], and logged.
    #[inline]
    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        let value = self.u64(at);
        self.enter(at, value, u64::MAX);
        value
    }

    /// A number of `bytes` bytes inside an aligned word; logged.
    #[inline]
    pub(super) fn part(&mut self, at: u64, bytes: u32) -> Option<u64> {
        let shift = (at % 8) as u32 * 8;
        let mask = u64::MAX.checked_shr(64u32.checked_sub(bytes * 8)?)?;
        let value = self.u64(at & !7);
        self.enter(at & !7, value, mask << shift);
        value.map(|value| value >> shift & mask)
    }

    #[inline]
    fn enter(&mut self, at: u64, value: Option<u64>, mask: u64) {
        // One that cannot be read would end the copying of all behind it, each time.
        let place = if value.is_some() && at.is_multiple_of(8) { self.note(at) } else { None };
        let entry = self.log.get_mut(self.logged);
        match (value, place, entry) {
            (Some(value), Some(place), Some(entry)) => {
                *entry = Read { value, mask, place, within: (at % PAGE as u64) as u32 };
                self.logged += 1;
            }
            _ => self.is_partial = true,
        }
    }

    /// The page at an address, copied now if it is not known as a whole; where it stands in the room.
    fn page(&mut self, page: u64) -> Option<usize> {
        let first = (page / PAGE as u64) as usize;
        let mut free = None;
        for place in (first..first + PROBES).map(|place| place % PAGES) {
            let slot = self.slots.get(place)?;
            if slot.page == page.wrapping_add(1) {
                if slot.len == PAGE as u64 {
                    return Some(slot.at);
                }
                free = Some(place);
                break;
            }
            if slot.page == 0 && free.is_none() {
                free = Some(place);
            }
        }
        let place = free.unwrap_or(first % PAGES);
        let slot = self.slots.get_mut(place)?;
        *slot = EMPTY;
        let at = place * PAGE;
        if !copy(self.pid, page, self.room.get_mut(at..at + PAGE)?) {
            return None;
        }
        *slot = Slot { page: page.wrapping_add(1), start: page, len: PAGE as u64, at };
        Some(at)
    }

    /// Copies bytes; `None` if one of them cannot be read.
    #[inline]
    pub(super) fn read<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut out = [0; N];
        let within = (at % PAGE as u64) as usize;
        if within + N <= PAGE {
            let page = self.page(at - within as u64)? + within;
            out.copy_from_slice(self.room.get(page..page + N)?);
            return Some(out);
        }
        self.fill(at, &mut out)?;
        Some(out)
    }

    /// Copies bytes into a buffer.
    pub(super) fn fill(&mut self, at: u64, out: &mut [u8]) -> Option<()> {
        let mut done = 0usize;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let from = at.checked_add(done as u64)?;
            let within = (from % PAGE as u64) as usize;
            let page = self.page(from - within as u64)?;
            let bytes = self.room.get(page + within..page + PAGE)?;
            crate::bytes::copy(rest, bytes);
            done += rest.len().min(bytes.len());
        }
        Some(())
    }

    /// A word.
    #[inline]
    pub(super) fn u64(&mut self, at: u64) -> Option<u64> {
        let slot = self.slots.get((at / PAGE as u64) as usize % PAGES)?;
        let from = at.wrapping_sub(slot.start);
        if from < slot.len.saturating_sub(7)
            && let Some(word) = self.room.get(slot.at + from as usize..).and_then(<[u8]>::first_chunk)
        {
            return Some(u64::from_le_bytes(*word));
        }
        self.distant(at)
    }

    /// A word of a page that is not at its own place or not known, or of two.
    #[cold]
    #[inline(never)]
    fn distant(&mut self, at: u64) -> Option<u64> {
        let first = (at / PAGE as u64) as usize;
        for place in (first + 1..first + PROBES).map(|place| place % PAGES) {
            let slot = self.slots.get(place)?;
            let from = at.wrapping_sub(slot.start);
            if from < slot.len.saturating_sub(7) {
                return self
                    .room
                    .get(slot.at + from as usize..)?
                    .first_chunk()
                    .copied()
                    .map(u64::from_le_bytes);
            }
        }
        self.read(at).map(u64::from_le_bytes)
    }

    /// Half a word.
    #[inline]
    pub(super) fn u32(&mut self, at: u64) -> Option<u32> {
        self.read(at).map(u32::from_le_bytes)
    }

    /// The same with a sign.
    #[inline]
    pub(super) fn i32(&mut self, at: u64) -> Option<i32> {
        self.read(at).map(i32::from_le_bytes)
    }

    /// A byte.
    pub(super) fn u8(&mut self, at: u64) -> Option<u8> {
        self.read(at).map(u8::from_le_bytes)
    }
}

/// Has the kernel copy a page; false if it cannot be read.
fn copy(pid: libc::pid_t, from: u64, to: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: PAGE };
    // SAFETY: the kernel writes into `to` only, and checks the other address.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    got == PAGE as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Box<Memory> {
        // SAFETY: all zeros is a memory without pages.
        let mut memory: Box<Memory> = unsafe { Box::new_zeroed().assume_init() };
        memory.clear();
        memory
    }

    #[test]
    fn what_is_not_mapped_is_no_value_and_what_lies_across_pages_is_whole() {
        let mut memory = memory();
        let bytes: Vec<u8> = (0..3 * PAGE).map(|i| (i % 251) as u8).collect();
        let start = bytes.as_ptr().addr() as u64;
        for at in 0..2 * PAGE {
            let expected = u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            assert_eq!(memory.u64(start + at as u64), Some(expected));
        }
        for nowhere in [0, 8, 4095, 1 << 60, u64::MAX - 3, u64::MAX] {
            assert_eq!(memory.u64(nowhere), None, "{nowhere:#x}");
        }
    }

    /// The calling process.
    fn pid() -> libc::pid_t {
        // SAFETY: `getpid` cannot fail.
        unsafe { libc::getpid() }
    }

    #[test]
    fn a_new_stack_sees_what_memory_holds_now() {
        let mut memory = memory();
        // SAFETY: a new mapping at an address that the kernel chooses; unmapped below.
        let pages = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                4 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(pages, libc::MAP_FAILED);
        let word = |number: usize| pages.cast::<u64>().wrapping_byte_add(number * PAGE + 64 * number);
        let address = |number: usize| word(number).addr() as u64;
        let stack = (&raw const pages).addr() as u64;
        memory.begin(pid(), stack);
        for round in 1..4u64 {
            memory.begin_log();
            for number in 0..4 {
                // SAFETY: inside the mapping.
                unsafe { word(number).write(round * 10 + number as u64) };
            }
            memory.begin(pid(), stack);
            memory.begin_log();
            for number in 0..4 {
                assert_eq!(memory.word(address(number)), Some(round * 10 + number as u64), "{round}");
            }
        }
        let words: Vec<Read> = memory.log().unwrap().to_vec();
        let generation = memory.generation();
        memory.begin(pid(), stack);
        assert_eq!((memory.unchanged(&words), memory.generation()), (4, generation));
        // SAFETY: inside the mapping.
        unsafe { word(2).write(7) };
        memory.begin(pid(), stack);
        assert_eq!((memory.unchanged(&words), memory.generation()), (2, generation));
        // SAFETY: a page of the mapping, which nothing refers to.
        assert_eq!(unsafe { libc::munmap(word(1).wrapping_byte_sub(64).cast(), PAGE) }, 0);
        memory.begin(pid(), stack);
        assert_ne!(memory.generation(), generation, "what was remembered is forgotten");
        let found = [0, 1, 2, 3].map(|number| memory.u64(address(number)));
        assert_eq!(found, [Some(30), None, Some(7), Some(33)]);
        // A word that cannot be read keeps none of the others from being copied.
        memory.begin_log();
        assert_eq!((memory.word(8), memory.word(address(3))), (None, Some(33)));
        memory.begin(pid(), stack);
        let generation = memory.generation();
        memory.begin(pid(), stack);
        assert_eq!(memory.generation(), generation);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(pages, 4 * PAGE) }, 0);
    }

    #[test]
    fn only_the_part_that_was_read_is_compared() {
        let mut memory = memory();
        let mut word = Box::new(0x1122_3344_5566_7788u64);
        let at = (&raw const *word).addr() as u64;
        let stack = (&raw const memory).addr() as u64;
        memory.begin(pid(), stack);
        memory.begin_log();
        assert_eq!((memory.part(at + 2, 1), memory.part(at + 4, 4)), (Some(0x66), Some(0x1122_3344)));
        let words: Vec<Read> = memory.log().unwrap().to_vec();
        for (value, same) in
            [(0x1122_3344_0066_0000, 2), (0x1122_3344_0067_0000, 0), (0x1122_3345_5566_7788, 1)]
        {
            *word = value;
            memory.begin(pid(), stack);
            assert_eq!(memory.unchanged(&words), same, "{value:#x}");
        }
        memory.begin_log();
        assert_eq!(memory.word(8), None);
        assert!(memory.log().is_none(), "a walk with a word that cannot be read is not remembered");
    }
}
