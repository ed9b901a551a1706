//! Where the ledgers of users and groups lie.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::Access;

/// The ledgers of one machine. Emulated GPUs have ledgers of their own beside the machine's file:
/// what is taken of them takes nothing from the real ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ledgers {
    /// Of this computer's GPUs.
    System,
    /// Of the emulated machine in this file.
    Emulated(PathBuf),
}

impl Ledgers {
    /// Those of an emulated machine, or of the computer.
    #[must_use]
    pub fn of(machine: Option<&Path>) -> Self {
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        machine.map_or(Self::System, |file| Self::Emulated(absolute(file)))
    }

    /// The directory of a ledger.
    #[must_use]
    pub fn directory(&self, access: Access) -> PathBuf {
        match self {
            Self::System => prepared(access).unwrap_or_else(|| access.directory()),
            Self::Emulated(file) => {
                let mut name = OsString::from(file.as_os_str());
                name.push(match access {
                    Access::User(uid) => format!(".user-{uid}"),
                    Access::Group(gid) => format!(".group-{gid}"),
                });
                PathBuf::from(name)
            }
        }
    }

    /// Whether the GPUs are emulated.
    #[must_use]
    pub fn emulated(&self) -> bool {
        matches!(self, Self::Emulated(_))
    }
}

/// The directory below `/run/radrm`, where the administrator lets users make their own in it (mode
/// 1777). It counts even before it is there: a ledger that lay elsewhere until somebody made it would be a
/// second quota. Decided by the mode and not by what this user may do, so that root looks in the same
/// place.
fn prepared(access: Access) -> Option<PathBuf> {
    prepared_in(Path::new("/run/radrm"), access)
}

fn prepared_in(parent: &Path, access: Access) -> Option<PathBuf> {
    let found = fs::symlink_metadata(parent).ok()?;
    let for_all = found.is_dir() && found.uid() == 0 && found.mode() & 0o1777 == 0o1777;
    for_all.then(|| match access {
        Access::User(uid) => parent.join(uid.to_string()),
        Access::Group(gid) => parent.join(format!("group-{gid}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_machine_has_ledgers_of_its_own() {
        let ledgers = Ledgers::of(Some(Path::new("/tmp/m")));
        assert_eq!(ledgers.directory(Access::User(7)), Path::new("/tmp/m.user-7"));
        assert_eq!(ledgers.directory(Access::Group(9)), Path::new("/tmp/m.group-9"));
        assert!(ledgers.emulated() && !Ledgers::of(None).emulated());
        let Ledgers::Emulated(file) = Ledgers::of(Some(Path::new("m"))) else { panic!("not emulated") };
        assert!(file.is_absolute(), "programs change their directory");
    }

    #[test]
    fn a_directory_for_all_users_counts_before_each_has_made_its_own() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let found = || prepared_in(dir.path(), Access::User(7));
        mode(0o1777);
        let root = rustix::process::geteuid().is_root();
        assert_eq!(found(), root.then(|| dir.path().join("7")), "only root's is believed");
        for other in [0o755, 0o777, 0o1770] {
            mode(other);
            assert_eq!(found(), None, "{other:o}");
        }
    }
}
