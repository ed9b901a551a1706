//! Descriptors that a program was started with, and that the programs that it starts must not get.

use std::fs;

/// Marks every descriptor above standard error close-on-exec, in one system call: also for a child that is not its program yet.
/// Returns false if the kernel does not know that.
#[must_use]
pub fn close_at_exec() -> bool {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: a plain system call, which closes nothing in this program.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags) == 0 }
}

/// Keeps all descriptors that this program was started with from the programs that it starts, on every kernel.
pub fn keep_from_programs() {
    if !close_at_exec() {
        mark_each();
    }
}

/// The same for a kernel before 5.11, one by one.
fn mark_each() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<libc::c_int> = numbers.filter(|fd| *fd > 2).collect();
    for fd in numbers {
        // SAFETY: plain system calls; one that is closed meanwhile is an error without effect.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 {
                libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_inherited_descriptor_is_kept_from_programs_on_old_and_new_kernels() {
        for mark in [keep_from_programs, mark_each] {
            let file = File::open("/dev/null").unwrap();
            let fd = file.as_raw_fd();
            // SAFETY: plain system calls on a descriptor that is open here.
            unsafe {
                assert_eq!(libc::fcntl(fd, libc::F_SETFD, 0), 0);
                mark();
                assert_eq!(libc::fcntl(fd, libc::F_GETFD), libc::FD_CLOEXEC);
            }
        }
    }
}
