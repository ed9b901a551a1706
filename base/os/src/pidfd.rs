//! Descriptors of processes.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A descriptor of the process that has this number now.
///
/// # Errors
/// `SRCH` if there is none, `MFILE` and the like if no descriptor can be had.
pub fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Outcome of a process: its exit code, or the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// `struct pidfd_info` of `linux/pidfd.h`, its first version. Newer ones are longer; the kernel goes by the
/// size in the request's number.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`.
const INFO_EXIT: u64 = 1 << 3;

/// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)`.
const GET_INFO: u32 = (3 << 30) | ((size_of::<PidfdInfo>() as u32) << 16) | (0xff << 8) | 11;

/// Outcome of a process that need not be a child of this one.
/// Known from Linux 6.15 on, once its parent has waited for it; `None` before that, and on older kernels.
#[must_use]
pub fn exit(handle: BorrowedFd<'_>) -> Option<Exit> {
    let mut info = PidfdInfo { mask: INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the request's number gives the kernel the structure's size, and it is alive and writable for that
    // long.
    let answer = unsafe { libc::ioctl(handle.as_raw_fd(), GET_INFO as libc::Ioctl, &raw mut info) };
    if answer != 0 || info.mask & INFO_EXIT == 0 {
        return None;
    }
    let status = info.exit_code;
    Some(if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    })
}
