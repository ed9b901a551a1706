//! The user at the other end of a connection, as the kernel reports it.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::user_limits::Groups;

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Empty without an account.
    pub(crate) name: String,
    /// Groups that the account is a member of, whatever groups the client has.
    pub(crate) groups: Groups,
    /// It may see and end everybody's jobs.
    pub(crate) admin: bool,
}

/// Numbers of a client's user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    gid: u32,
}

impl Credentials {
    /// Those of the process at the other end, when it connected.
    pub(crate) fn of(stream: &UnixStream) -> std::io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: room for the structure, whose size is given.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { uid: found.uid, gid: found.gid })
    }

    /// Returns true for root and the daemon's own user, who are administrators without a look at accounts.
    pub(crate) fn is_root_or_own(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

impl Peer {
    /// The account of a client. What names accounts may be slow.
    pub(crate) fn of(credentials: Credentials, admin_group: &str) -> Self {
        let Credentials { uid, gid } = credentials;
        let account = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let admin = credentials.is_root_or_own()
            || account.as_ref().is_some_and(|account| is_member(account, admin_group));
        // The group of the account, not one that the client changed to.
        let gid = account.as_ref().map_or(gid, |account| account.gid.as_raw());
        let name = account.map(|account| account.name).unwrap_or_default();
        let groups = if name.is_empty() { Groups::default() } else { Groups::of(&name, gid) };
        Self { uid, gid, name, groups, admin }
    }

    /// One who sees everything, for sums.
    pub(crate) fn everybody() -> Self {
        Self { uid: 0, gid: 0, name: String::new(), groups: Groups::default(), admin: true }
    }

    /// Returns true if the peer is this user or an admin, so that this user's jobs are its business.
    pub(crate) fn may(&self, uid: u32) -> bool {
        self.admin || self.uid == uid
    }
}

fn is_member(account: &User, group: &str) -> bool {
    let Some(group) = Group::from_name(group).ok().flatten() else { return false };
    let Ok(name) = CString::new(account.name.as_bytes()) else { return false };
    let groups: Vec<Gid> = getgrouplist(&name, account.gid).unwrap_or_default();
    groups.contains(&group.gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_who_is_there() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(Credentials::of(&one).unwrap(), "no-such-group");
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.admin, "the daemon's own user administrates it");
        let other = Peer::of(Credentials { uid: 54_711, gid: 54_711 }, "no-such-group");
        assert!(!other.admin && other.may(54_711) && !other.may(54_712));
    }
}
