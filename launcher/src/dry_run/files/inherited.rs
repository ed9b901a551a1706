//! The descriptors that the program gets from the caller of `radrm-run`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// Copies of those that are open for writing: by `/dev/stdout` a program opens the file that its output goes to once more.
pub(super) fn writable() -> Vec<OwnedFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.into_iter().filter_map(|fd| copied(fd).ok().flatten()).collect()
}

fn copied(fd: RawFd) -> io::Result<Option<OwnedFd>> {
    // SAFETY: reads flags; of a descriptor that is not open it gives an error.
    let (own, status) = unsafe { (libc::fcntl(fd, libc::F_GETFD), libc::fcntl(fd, libc::F_GETFL)) };
    if own < 0 || own & libc::FD_CLOEXEC != 0 || status & libc::O_ACCMODE == libc::O_RDONLY {
        return Ok(None);
    }
    // SAFETY: it was open a moment ago, and this process has one thread.
    unsafe { BorrowedFd::borrow_raw(fd) }.as_fd().try_clone_to_owned().map(Some)
}
