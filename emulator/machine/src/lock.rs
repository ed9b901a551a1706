//! The lock of a process's slot, by which it is known to live where its pid means nothing: in another pid namespace.
//!
//! The lock belongs to an open file, and the only reference to that is a page that is mapped and that forked children
//! do not inherit. So the kernel releases it when the image of the process ends, however it ends.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

const PAGE: usize = 4096;

/// A lock on one byte of the machine's file.
pub(crate) struct SlotLock {
    page: NonNull<c_void>,
}

// SAFETY: the page is never read or written; only its existence counts.
unsafe impl Send for SlotLock {}
// SAFETY: as for `Send`.
unsafe impl Sync for SlotLock {}

impl SlotLock {
    /// Takes the lock of the byte at `at`.
    pub fn take(path: &Path, at: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice, never touched.
        let page = unsafe {
            mmap(std::ptr::null_mut(), PAGE, ProtFlags::empty(), MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let lock = Self { page: NonNull::new(page).ok_or(io::ErrorKind::OutOfMemory)? };
        // SAFETY: mapped just now.
        unsafe { madvise(page, PAGE, Advice::LinuxDontFork) }?;
        command(&file, libc::F_OFD_SETLK, libc::F_WRLCK, at)?;
        Ok(lock)
    }
}

impl Drop for SlotLock {
    fn drop(&mut self) {
        // SAFETY: mapped in `take`, and nothing refers to it.
        let _ = unsafe { munmap(self.page.as_ptr(), PAGE) };
    }
}

/// Returns true if another open file has the lock of a byte. In doubt: true.
pub(crate) fn is_held(file: &File, at: u64) -> bool {
    command(file, libc::F_OFD_GETLK, libc::F_RDLCK, at).map_or(true, |kind| i32::from(kind) != libc::F_UNLCK)
}

fn command(file: &File, command: i32, kind: i32, at: u64) -> io::Result<libc::c_short> {
    // SAFETY: zeros are valid for all fields; the process id has to be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_start = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    lock.l_len = 1;
    // SAFETY: an open descriptor, and the kernel writes into `lock` only.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock.l_type),
        _ => Err(io::Error::last_os_error()),
    }
}
