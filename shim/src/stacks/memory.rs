//! Reading the process's own memory so that no address can hurt: the kernel copies, and says where nothing is mapped.
//!
//! Whole pages are copied, and kept for the time of one stack: frames lie close to each other, and so do the tables that
//! a search visits. Most of what one stack needed the next one needs too, so that is copied anew in one call of the kernel.

use core::ffi::c_void;

/// Bytes that are copied at once.
const PAGE: usize = 4096;
/// Pages that are kept.
const PAGES: usize = 32;

/// Copies of pages.
#[repr(C, align(4096))]
pub(super) struct Memory {
    bytes: [[u8; PAGE]; PAGES],
    /// Address of each page plus 1; 0: none.
    at: [u64; PAGES],
    /// Places that were read since [`Memory::begin`], one bit each.
    used: u32,
    pid: libc::pid_t,
    /// What the kernel copies at once: to where and from where. Too large for a stack of the program.
    vectors: [[libc::iovec; PAGES]; 2],
}

const _: () = assert!(PAGES <= u32::BITS as usize);

impl Memory {
    /// Forgets every page.
    pub(super) fn clear(&mut self) {
        self.at = [0; PAGES];
        self.used = 0;
        // SAFETY: `getpid` cannot fail.
        self.pid = unsafe { libc::getpid() };
    }

    /// Begins another stack of the process `pid`, which is the calling one: nothing is known from before, but what the
    /// last stack read is copied anew.
    pub(super) fn begin(&mut self, pid: libc::pid_t) {
        let is_same = self.pid == pid;
        let used = if is_same { core::mem::take(&mut self.used) } else { 0 };
        (self.pid, self.used) = (pid, 0);
        let [local, remote] = &mut self.vectors;
        let mut count = 0;
        for (place, (at, bytes)) in self.at.iter_mut().zip(&mut self.bytes).enumerate() {
            let wanted = *at != 0 && used & (1 << place) != 0;
            if let (true, Some(from), Some(to)) = (wanted, remote.get_mut(count), local.get_mut(count)) {
                *from = libc::iovec { iov_base: at.wrapping_sub(1) as *mut c_void, iov_len: PAGE };
                *to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: PAGE };
                count += 1;
            } else {
                *at = 0;
            }
        }
        if count == 0 {
            return;
        }
        // SAFETY: the kernel writes into pages of `bytes` only, and checks the other addresses.
        let got = unsafe {
            libc::process_vm_readv(pid, local.as_ptr(), count as u64, remote.as_ptr(), count as u64, 0)
        };
        // The kernel stops at the first page that cannot be read.
        let whole = usize::try_from(got).unwrap_or(0) / PAGE;
        for at in self.at.iter_mut().filter(|at| **at != 0).skip(whole) {
            *at = 0;
        }
    }

    /// The page at an address, copied now if it is not known.
    #[inline]
    fn page(&mut self, page: u64) -> Option<&[u8; PAGE]> {
        // Neighbours have different places.
        let place = (page / PAGE as u64) as usize % PAGES;
        let (known, bytes) = (self.at.get_mut(place)?, self.bytes.get_mut(place)?);
        if *known != page.wrapping_add(1) {
            *known = 0;
            if !copy(self.pid, page, bytes) {
                return None;
            }
            *known = page.wrapping_add(1);
        }
        self.used |= 1 << place;
        Some(bytes)
    }

    /// Copies bytes; `None` if one of them cannot be read.
    #[inline]
    pub(super) fn read<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut out = [0; N];
        let within = (at % PAGE as u64) as usize;
        let page = self.page(at - within as u64)?;
        if let Some(bytes) = page.get(within..within + N) {
            out.copy_from_slice(bytes);
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
            let bytes = self.page(from - within as u64)?.get(within..)?;
            crate::bytes::copy(rest, bytes);
            done += rest.len().min(bytes.len());
        }
        Some(())
    }

    /// A word.
    #[inline]
    pub(super) fn u64(&mut self, at: u64) -> Option<u64> {
        let within = (at % PAGE as u64) as usize;
        let place = (at / PAGE as u64) as usize % PAGES;
        let (known, bytes) = (self.at.get(place)?, self.bytes.get(place)?);
        if *known == (at - within as u64).wrapping_add(1)
            && let Some(word) = bytes.get(within..).and_then(<[u8]>::first_chunk)
        {
            self.used |= 1 << place;
            return Some(u64::from_le_bytes(*word));
        }
        self.distant(at)
    }

    /// A word of a page that is not known, or of two.
    #[cold]
    #[inline(never)]
    fn distant(&mut self, at: u64) -> Option<u64> {
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
fn copy(pid: libc::pid_t, from: u64, to: &mut [u8; PAGE]) -> bool {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: PAGE };
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: PAGE };
    // SAFETY: the kernel writes into `to` only, and checks the other address.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    got == PAGE as isize
}

/// Reads one value after the other.
pub(super) struct Cursor<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) at: u64,
    /// First address that does not belong to it.
    pub(super) end: u64,
}

impl Cursor<'_> {
    /// Whether all is read.
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.end
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let next = self.at.checked_add(N as u64).filter(|next| *next <= self.end)?;
        let bytes = self.memory.read(self.at)?;
        self.at = next;
        Some(bytes)
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|next| *next <= self.end)?;
        Some(())
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number in LEB128 without sign.
    pub(super) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A number in LEB128 with sign.
    pub(super) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                return Some(value.cast_signed());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn memory() -> Box<Memory> {
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
        let word = |number: usize| pages.cast::<u64>().wrapping_byte_add(number * PAGE);
        let address = |number: usize| word(number).addr() as u64;
        // SAFETY: `getpid` cannot fail.
        let pid = unsafe { libc::getpid() };
        for round in 1..4u64 {
            memory.begin(pid);
            for number in 0..4 {
                // SAFETY: inside the mapping.
                unsafe { word(number).write(round * 10 + number as u64) };
            }
            memory.begin(pid);
            for number in 0..4 {
                assert_eq!(memory.u64(address(number)), Some(round * 10 + number as u64), "{round}");
            }
        }
        // SAFETY: a page of the mapping, which nothing refers to.
        assert_eq!(unsafe { libc::munmap(word(1).cast(), PAGE) }, 0);
        memory.begin(pid);
        let found = [0, 1, 2, 3].map(|number| memory.u64(address(number)));
        assert_eq!(found, [Some(30), None, Some(32), Some(33)]);
        // What was not read since the last beginning is no longer copied.
        memory.begin(pid);
        memory.begin(pid);
        assert_eq!(memory.at, [0; PAGES]);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(pages, 4 * PAGE) }, 0);
    }

    #[test]
    fn numbers_of_variable_length_are_read() {
        let mut memory = memory();
        let bytes = [0xe5u8, 0x8e, 0x26, 0x7f, 0x80, 0x7f, 0xff, 0xff];
        let at = bytes.as_ptr().addr() as u64;
        let mut cursor = Cursor { memory: &mut memory, at, end: at + bytes.len() as u64 };
        assert_eq!((cursor.uleb(), cursor.sleb(), cursor.sleb()), (Some(624_485), Some(-1), Some(-128)));
        assert_eq!(cursor.uleb(), None, "cut off");
    }
}
