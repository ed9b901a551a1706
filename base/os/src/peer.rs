//! The process at the other end of a socket, as the kernel reports it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// User and group of a process when it connected, or made the pair of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Number of its user.
    pub uid: u32,
    /// Number of its group.
    pub gid: u32,
}

impl PeerCredentials {
    /// Those of the process at the other end of a Unix socket.
    ///
    /// # Errors
    /// It is no such socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: room for the structure, whose size is given.
        let done = unsafe {
            let to = (&raw mut found).cast();
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut length)
        };
        match done {
            0 => Ok(Self { uid: found.uid, gid: found.gid }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_reports_who_is_at_the_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let found = PeerCredentials::of(&one).unwrap();
        assert_eq!((found.uid, found.gid), (own, rustix::process::getegid().as_raw()));
        assert!(PeerCredentials::of(&tempfile::tempfile().unwrap()).is_err(), "a file has no other end");
    }
}
