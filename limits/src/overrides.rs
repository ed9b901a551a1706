//! Limits that an administrator has changed while jobs run (`radrm quota set user:NAME …`).
//!
//! A ledger takes its limits from whichever job starts next, so a change has to be kept beside it:
//! in a file that lives as long as the ledger, in the same directory. It belongs to root if it may
//! say more than the configuration does; one of the user's own can only say less.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::{Access, Limit};

use super::ledgers::Ledgers;
use super::resolve::{Gpus, resolve, stricter};
use super::scopes::{OfGroup, Person, Scopes};
use super::wish::Wishes;

/// Beside the ledger.
const NAME: &str = "limit";

/// A change that was made by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// The limits.
    pub wishes: Wishes,
    /// Made by root: it holds instead of the configuration.
    pub by_root: bool,
}

/// Where the change of a ledger's limits is kept.
#[must_use]
pub fn path(ledgers: &Ledgers, access: Access) -> PathBuf {
    ledgers.directory(access).join(NAME)
}

/// Reads a change; `None` if there is none that can be trusted.
#[must_use]
pub fn read(path: &Path, access: Access) -> Option<Override> {
    let file =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path).ok()?;
    let found = file.metadata().ok()?;
    let ours = match access {
        Access::User(uid) => found.uid() == uid,
        Access::Group(gid) => found.gid() == gid,
    };
    let by_root = found.uid() == 0;
    if !found.is_file() || !(by_root || ours) || found.mode() & 0o002 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(Override { wishes: Wishes::parse(text.trim()).ok()?, by_root })
}

/// Keeps a change, or takes it back.
///
/// # Errors
/// From the file system.
pub fn write(ledgers: &Ledgers, access: Access, wishes: Option<&Wishes>) -> io::Result<()> {
    let path = path(ledgers, access);
    let Some(wishes) = wishes else {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{wishes}")?;
    // Readable for those whose limit it is, writable only for who made it.
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    if let Access::Group(gid) = access {
        std::os::unix::fs::chown(file.path(), None, Some(gid))?;
    }
    file.persist(&path).map(|_| ()).map_err(|error| error.error)
}

/// Applies the changes to what the configuration says.
///
/// # Errors
/// One sentence: a GPU that a change names is gone.
pub fn apply(ledgers: &Ledgers, scopes: &mut Scopes, person: &Person, gpus: &Gpus<'_>) -> Result<(), String> {
    let user = Access::User(person.uid);
    if let Some(change) = read(&path(ledgers, user), user) {
        scopes.user = changed(&scopes.user, &change, gpus)?;
    }
    for (gid, name) in &person.groups {
        let access = Access::Group(*gid);
        let Some(change) = read(&path(ledgers, access), access) else { continue };
        match scopes.groups.iter_mut().find(|group| group.gid == *gid) {
            Some(group) => group.limits = changed(&group.limits, &change, gpus)?,
            None => {
                let name = name.clone().unwrap_or_else(|| gid.to_string());
                scopes.groups.push(OfGroup { gid: *gid, name, limits: changed(&[], &change, gpus)? });
            }
        }
    }
    Ok(())
}

fn changed(limits: &[Limit], change: &Override, gpus: &Gpus<'_>) -> Result<Vec<Limit>, String> {
    let wanted = resolve(&change.wishes, gpus)?;
    if change.by_root { Ok(wanted) } else { stricter(limits, &wanted, gpus) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::ledger::Amount;

    #[test]
    fn only_root_may_say_more_than_the_configuration() {
        let gib = |n: u64| vec![Limit { gpu: None, amount: Amount::Bytes(n << 30) }];
        let change = |text, by_root| Override { wishes: Wishes::parse(text).unwrap(), by_root };
        let after =
            |text, by_root| changed(&gib(5), &change(text, by_root), &|| Err("asked".into())).unwrap();
        assert_eq!((after("9GiB", true), after("9GiB", false)), (gib(9), gib(5)));
        assert_eq!((after("2GiB", true), after("2GiB", false)), (gib(2), gib(2)));
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        let own = Access::User(rustix::process::getuid().as_raw());
        fs::write(&file, "3GiB\n").unwrap();
        assert_eq!(read(&file, own).unwrap().wishes.to_string(), "3GiB");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read(&file, own), None);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, own), None);
        assert_eq!(read(&dir.path().join("none"), own), None);
    }
}
