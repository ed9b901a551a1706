//! Reading the process's own memory so that no address can hurt: the kernel copies, and says where nothing is mapped.
//!
//! Whole pages are copied, and kept for the time of one stack: frames lie close to each other, and so do the tables that
//! a search visits.

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
    pid: libc::pid_t,
}

impl Memory {
    /// Forgets every page.
    pub(super) fn clear(&mut self) {
        self.at = [0; PAGES];
        // SAFETY: `getpid` cannot fail.
        self.pid = unsafe { libc::getpid() };
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
    fn numbers_of_variable_length_are_read() {
        let mut memory = memory();
        let bytes = [0xe5u8, 0x8e, 0x26, 0x7f, 0x80, 0x7f, 0xff, 0xff];
        let at = bytes.as_ptr().addr() as u64;
        let mut cursor = Cursor { memory: &mut memory, at, end: at + bytes.len() as u64 };
        assert_eq!((cursor.uleb(), cursor.sleb(), cursor.sleb()), (Some(624_485), Some(-1), Some(-128)));
        assert_eq!(cursor.uleb(), None, "cut off");
    }
}
