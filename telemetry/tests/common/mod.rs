//! Helpers of several tests.
#![allow(dead_code)]

use radrm_telemetry::{GpuIndex, SegmentFile, Writer};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

pub fn path(file: &SegmentFile) -> CString {
    CString::new(file.path().as_os_str().as_bytes()).unwrap()
}

pub fn join(file: &SegmentFile) -> Writer {
    Writer::join(&path(file)).unwrap()
}

pub fn gpu(writer: &Writer) -> GpuIndex {
    writer.gpu(&[1; 16], b"GPU", 80 << 30, b"").unwrap()
}

/// Runs `work` in a forked child that never returns to the test; gives its pid.
pub fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child runs `work` and exits; the work allocates little, and glibc's malloc is usable after fork.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: nothing that hangs may outlive the test.
            unsafe { libc::alarm(60) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 1 }) }
        }
        pid => {
            assert!(pid > 0);
            pid
        }
    }
}

/// Waits for a child; its wait status.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a valid place.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    status
}
