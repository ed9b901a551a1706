//! A stack beside that of the process: for a child that shares its memory, or for the process itself.

use std::ffi::c_void;
use std::io;

/// Below the stack, where nothing may be read or written. As large as the largest page.
const GUARD: usize = 64 << 10;

/// The stack, as long as this value lives.
pub(crate) struct ChildStack {
    at: *mut c_void,
    bytes: usize,
}

impl ChildStack {
    /// One of at least so many bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = (GUARD + bytes).next_multiple_of(GUARD);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { at, bytes };
        // SAFETY: the lowest part of the mapping, which nothing refers to.
        match unsafe { libc::mprotect(at, GUARD, libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its lowest address.
    pub(crate) fn bottom(&self) -> *mut c_void {
        self.at.wrapping_byte_add(GUARD)
    }

    /// Address where the stack begins: it grows downwards.
    pub(crate) fn top(&self) -> *mut c_void {
        self.at.wrapping_byte_add(self.bytes)
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which no process uses any more.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}
