//! The ledgers of users and groups that this user can see.

use std::fs;
use std::path::{Path, PathBuf};

use radrm_limits::ledgers::Ledgers;
use radrm_limits::scopes::{group_name, user_name};
use radrm_telemetry::ledger::{Access, LedgerView, Place};

/// A ledger of a user or group.
#[derive(Debug)]
pub struct Shared {
    /// Whose.
    pub access: Access,
    /// Its file.
    pub path: PathBuf,
    /// What it says.
    pub view: LedgerView,
}

impl Shared {
    /// `user alice` or `group lab`.
    #[must_use]
    pub fn whose(&self) -> String {
        whose(self.access)
    }
}

/// `user alice` or `group lab`.
#[must_use]
pub fn whose(access: Access) -> String {
    match access {
        Access::User(uid) => format!("user {}", user_name(uid).unwrap_or_else(|| uid.to_string())),
        Access::Group(gid) => {
            format!("group {}", group_name(gid).unwrap_or_else(|| gid.to_string()))
        }
    }
}

/// The ledger of a user or group, if there is one that this user may use.
#[must_use]
pub fn open(ledgers: &Ledgers, access: Access) -> Option<Shared> {
    let path = ledgers.directory(access).join("ledger");
    let view = LedgerView::open(&path, Place::File).ok()?;
    Some(Shared { access, path, view })
}

/// All of them, users first.
#[must_use]
pub fn all(ledgers: &Ledgers) -> Vec<Shared> {
    places(ledgers).into_iter().filter_map(|access| open(ledgers, access)).collect()
}

/// Whose directories there are, users first: some have a limit and no ledger yet.
#[must_use]
pub fn places(ledgers: &Ledgers) -> Vec<Access> {
    let mut found: Vec<Access> = match ledgers {
        Ledgers::System => {
            ["/run/radrm", "/dev/shm"].iter().flat_map(|parent| below(Path::new(parent), "radrm-")).collect()
        }
        Ledgers::Emulated(file) => {
            let name =
                file.file_name().map(|name| format!("{}.", name.to_string_lossy())).unwrap_or_default();
            below(file.parent().unwrap_or(Path::new("/")), &name)
        }
    };
    found.sort_by_key(|access| order(*access));
    found.dedup();
    found
}

/// Users before groups, each by number.
#[must_use]
pub fn order(access: Access) -> (u8, u32) {
    match access {
        Access::User(uid) => (0, uid),
        Access::Group(gid) => (1, gid),
    }
}

fn below(parent: &Path, prefix: &str) -> Vec<Access> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter_map(|entry| access_of(entry.file_name().to_str()?, prefix)).collect()
}

/// Whose directory this is: `1000`, `radrm-group-200` or `machine.user-1000`.
fn access_of(name: &str, prefix: &str) -> Option<Access> {
    let name = name.strip_prefix(prefix).unwrap_or(name);
    if let Some(gid) = name.strip_prefix("group-") {
        return gid.parse().ok().map(Access::Group);
    }
    name.strip_prefix("user-").unwrap_or(name).parse().ok().map(Access::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_tell_whose_they_are() {
        for (name, prefix, expected) in [
            ("1000", "radrm-", Some(Access::User(1000))),
            ("radrm-1000", "radrm-", Some(Access::User(1000))),
            ("radrm-group-200", "radrm-", Some(Access::Group(200))),
            ("group-200", "radrm-", Some(Access::Group(200))),
            ("m.user-7", "m.", Some(Access::User(7))),
            ("m.group-7", "m.", Some(Access::Group(7))),
            ("m", "m.", None),
            ("other", "radrm-", None),
        ] {
            assert_eq!(access_of(name, prefix), expected, "{name}");
        }
    }
}
