//! The limits of users and groups that this user can see.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use radrm_limits::ledgers::{Ledgers, SCOPES};
use radrm_limits::scopes::whose;
use radrm_telemetry::ledger::{Access, ScopeDirectory, ScopeReport};

/// The scope of a user or group.
#[derive(Debug)]
pub(super) struct Shared {
    /// Its directory.
    pub(super) scope: ScopeDirectory,
    /// Contents of the scope.
    pub(super) report: ScopeReport,
}

impl Shared {
    /// `user alice` or `group lab`.
    pub(super) fn whose(&self) -> String {
        whose(self.scope.access())
    }
}

/// The scope of a user or group, if there is one.
pub(super) fn open(ledgers: &Ledgers, access: Access) -> Option<Shared> {
    let scope = ledgers.open(access).ok()?;
    let report = ScopeReport::read(&scope).ok()?;
    Some(Shared { scope, report })
}

/// All in which a process has counted, users first.
pub(super) fn all(ledgers: &Ledgers) -> Vec<Shared> {
    let all = places(ledgers).into_iter().filter_map(|access| open(ledgers, access));
    all.filter(|shared| shared.report.used).collect()
}

/// Users and groups that have scopes, users first: some have a limit and were not used yet.
pub(super) fn places(ledgers: &Ledgers) -> Vec<Access> {
    let mut found: Vec<Access> = match ledgers {
        Ledgers::System => {
            let own = below(Path::new("/dev/shm"), "radrm-").filter_map(|name| name.parse().ok());
            let scopes = below(Path::new(SCOPES), "").filter_map(|name| Access::from_name(OsStr::new(&name)));
            scopes.chain(own.map(Access::User)).collect()
        }
        Ledgers::Emulated(file) => {
            let prefix = file.file_name().map(|name| format!("{}.", name.to_string_lossy()));
            let prefix = prefix.unwrap_or_default();
            let names = below(file.parent().unwrap_or(Path::new("/")), &prefix);
            names.filter_map(|name| Access::from_name(OsStr::new(&name))).collect()
        }
    };
    found.sort_by_key(|access| order(*access));
    found.dedup();
    found
}

/// Remainders behind a prefix in the names of a directory.
fn below(parent: &Path, prefix: &str) -> impl Iterator<Item = String> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten();
    names.filter_map(move |entry| entry.file_name().to_str()?.strip_prefix(prefix).map(str::to_owned))
}

/// Users before groups, each by number.
pub(super) fn order(access: Access) -> (u8, u32) {
    match access {
        Access::User(uid) => (0, uid),
        Access::Group(gid) => (1, gid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_tell_whose_they_are() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["m", "m.user-7", "m.group-9", "m.own-7", "m.user-x", "n.user-8", "user-6"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let ledgers = Ledgers::of(Some(&directory.path().join("m")));
        assert_eq!(places(&ledgers), [Access::User(7), Access::Group(9)]);
    }
}
