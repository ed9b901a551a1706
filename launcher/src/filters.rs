//! Seccomp filters of this session, under which the program runs too: whether recording call stacks is permitted there.
//!
//! The shim cannot try it, since a filter may kill the process that makes the call. A child of the launcher can.

use std::fs;

/// Number of filters of this process, which a child has found to permit what recording takes; `None` if they do not.
/// Kernels before 5.9 state only that there are any: 1.
pub(crate) fn tried() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    match number("Seccomp:") {
        None | Some(0) => Some(0),
        Some(_) => is_permitted(attempt).then(|| number("Seccomp_filters:").unwrap_or(1)),
    }
}

/// Returns true if a child that does `work` ends well.
fn is_permitted(work: fn() -> bool) -> bool {
    // SAFETY: the child makes system calls only, and ends by one.
    match unsafe { libc::fork() } {
        -1 => false,
        0 => {
            let code = i32::from(!work());
            // SAFETY: ends the child without what the launcher has registered for its own end.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            let waited = loop {
                // SAFETY: waits for the child that this function has made.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                if waited != -1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    break waited;
                }
            };
            waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Makes the system calls that recording takes.
fn attempt() -> bool {
    let (from, mut to) = ([7u8; 8], [0u8; 8]);
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: copies this process's own memory into `to`, and asks for facts of this thread.
    let (got, put, stack, id) = unsafe {
        let mut stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        (
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0),
            libc::process_vm_writev(libc::getpid(), &raw const remote, 1, &raw const local, 1, 0),
            libc::sigaltstack(std::ptr::null(), &raw mut stack),
            libc::syscall(libc::SYS_gettid),
        )
    };
    [got, put] == [to.len() as isize; 2] && to == from && stack == 0 && id > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kills_the_child_is_not_permitted() {
        assert!(is_permitted(attempt));
        assert!(!is_permitted(|| false));
        // SAFETY: ends the child by a signal.
        assert!(!is_permitted(|| unsafe { libc::raise(libc::SIGKILL) } == 0));
    }
}
