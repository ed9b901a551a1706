//! The user at the other end of a connection, as the kernel reports it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use radrm_os::PeerCredentials;
use radrm_os::untrusted::{self, Places};

use crate::limited_groups::{Groups, LimitedGroups};

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Empty without an account.
    pub(crate) name: String,
    /// Groups with limits that the account is a member of, whatever groups the client has, once they were looked up.
    pub(crate) groups: Groups,
    /// It may see and end everybody's jobs.
    pub(crate) admin: bool,
}

/// Returns true for root and the daemon's own user, who are administrators without a look at accounts.
pub(crate) fn is_root_or_own(client: PeerCredentials) -> bool {
    client.uid == 0 || client.uid == rustix::process::geteuid().as_raw()
}

impl Peer {
    /// The account of a client. What names accounts may be slow.
    pub(crate) fn of(client: PeerCredentials, admin_group: &str) -> Self {
        let PeerCredentials { uid, gid } = client;
        let account = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let admin =
            is_root_or_own(client) || account.as_ref().is_some_and(|account| is_member(account, admin_group));
        // The group of the account, not one that the client changed to.
        let gid = account.as_ref().map_or(gid, |account| account.gid.as_raw());
        let name = account.map(|account| account.name).unwrap_or_default();
        Self { uid, gid, name, groups: Groups::default(), admin }
    }

    /// Looks up the groups of the account, for a request whose answer depends on them. What names groups may be slow.
    pub(crate) fn look_up_groups(&mut self, limited: &LimitedGroups) {
        if !self.name.is_empty() {
            self.groups = limited.of(&self.name, self.gid);
        }
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

/// Time for which it is known who is an administrator.
const KNOWN: Duration = Duration::from_secs(10);
/// Time that a look-up of it may take.
const MAX_LOOK_UP: Duration = Duration::from_millis(200);
/// Look-ups of it at a time, of all users and of one.
static LOOKING_UP: Places = Places::new(8, 1);

/// Administrators, for the thread that takes connections: what names accounts may be slow, and others wait behind the client.
#[derive(Debug)]
pub(crate) struct Admins {
    group: Arc<str>,
    known: Mutex<BTreeMap<u32, (Instant, bool)>>,
}

impl Admins {
    pub(crate) fn new(group: Arc<str>) -> Self {
        Self { group, known: Mutex::default() }
    }

    /// Returns true if a client is one, as far as that is known soon.
    pub(crate) fn has(&self, client: PeerCredentials) -> bool {
        let group = Arc::clone(&self.group);
        let is_admin = move || Peer::of(client, &group).admin;
        let look_up = || untrusted::in_time(&LOOKING_UP, client.uid, MAX_LOOK_UP, is_admin);
        self.has_by(client.uid, || look_up().unwrap_or(false))
    }

    fn has_by(&self, uid: u32, look_up: impl FnOnce() -> bool) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (since, _)| since.elapsed() < KNOWN);
        known.entry(uid).or_insert_with(|| (Instant::now(), look_up())).1
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
    fn who_is_an_administrator_is_looked_up_once_for_all_connections_of_a_while() {
        let admins = Admins::new("no-such-group".into());
        let never = || -> bool { panic!("looked up again") };
        assert!(admins.has_by(54_711, || true) && !admins.has_by(54_712, || false));
        assert!(admins.has_by(54_711, never) && !admins.has_by(54_712, never));
        let uid = rustix::process::geteuid().as_raw();
        assert!(admins.has(PeerCredentials { uid, gid: uid }));
    }

    #[test]
    fn the_own_user_administrates_and_another_sees_the_own_jobs_only() {
        let uid = rustix::process::geteuid().as_raw();
        assert!(Peer::of(PeerCredentials { uid, gid: uid }, "no-such-group").admin);
        let other = Peer::of(PeerCredentials { uid: 54_711, gid: 54_711 }, "no-such-group");
        assert!(!other.admin && other.may(54_711) && !other.may(54_712));
    }
}
