//! Places of the limits of users and groups, and their administrators.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::{Access, LedgerError, ScopeDirectory};

/// Root's directory for what users may have of their own at run time.
pub const RUNTIME: &str = "/run/radrm";
/// The scopes of users and groups.
pub const SCOPES: &str = "/run/radrm/limits";

/// The scopes of one machine. Emulated GPUs have scopes of their own beside the machine's file:
/// what is taken of them takes nothing from the real ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ledgers {
    /// Of this computer's GPUs. Root administers them.
    System,
    /// Of the emulated machine in this file. Its owner administers them.
    Emulated(PathBuf),
}

impl Ledgers {
    /// Ledgers of an emulated machine, or of the computer.
    #[must_use]
    pub fn of(machine: Option<&Path>) -> Self {
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        machine.map_or(Self::System, |file| Self::Emulated(absolute(file)))
    }

    /// The directory of a scope, which its administrator makes.
    #[must_use]
    pub fn directory(&self, access: Access) -> PathBuf {
        match self {
            Self::System => Path::new(SCOPES).join(access.name()),
            Self::Emulated(file) => beside(file, &access.name()),
        }
    }

    /// The directory of a user's limit that only this user has set: it needs no administrator, since no other user is
    /// protected by it.
    #[must_use]
    pub fn own_directory(&self, uid: u32) -> PathBuf {
        match self {
            Self::System => self.private_directory(uid).join(Access::User(uid).name()),
            Self::Emulated(_) => self.directory(Access::User(uid)),
        }
    }

    /// Directory of a user's own things at run time: mode 0700, the user's.
    #[must_use]
    pub fn private_directory(&self, uid: u32) -> PathBuf {
        match self {
            Self::System => {
                let prepared = Path::new(RUNTIME).join(uid.to_string());
                let is_private =
                    |found: fs::Metadata| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0;
                match fs::symlink_metadata(&prepared).is_ok_and(is_private) {
                    true => prepared,
                    false => PathBuf::from(format!("/dev/shm/radrm-{uid}")),
                }
            }
            Self::Emulated(file) => beside(file, &format!("own-{uid}")),
        }
    }

    /// User who may set limits, besides root.
    #[must_use]
    pub fn administrator(&self) -> u32 {
        match self {
            Self::System => 0,
            Self::Emulated(file) => {
                let own = rustix::process::geteuid().as_raw();
                fs::metadata(file).map_or(own, |found| found.uid())
            }
        }
    }

    /// Returns true if this process is the administrator's.
    #[must_use]
    pub fn is_administered_here(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        own == 0 || own == self.administrator()
    }

    /// The scope of a user or group as its administrator has made it; for a user, else the one of the user's own.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn open(&self, access: Access) -> Result<ScopeDirectory, LedgerError> {
        let administrators = [0, self.administrator()];
        match ScopeDirectory::open(&self.directory(access), access, &administrators) {
            Err(LedgerError::NotSetUp(path)) => match access {
                Access::User(uid) if self.own_directory(uid) != path => {
                    let own = ScopeDirectory::open(&self.own_directory(uid), access, &[uid]);
                    own.map_err(|_| LedgerError::NotSetUp(path))
                }
                _ => Err(LedgerError::NotSetUp(path)),
            },
            other => other,
        }
    }

    /// Makes a scope. For the administrator.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn make(&self, access: Access) -> Result<ScopeDirectory, LedgerError> {
        let directory = self.directory(access);
        match ScopeDirectory::open(&directory, access, &[0, self.administrator()]) {
            Err(LedgerError::NotSetUp(_)) => {}
            other => return other,
        }
        if *self == Self::System {
            for directory in [RUNTIME, SCOPES] {
                root_directory(Path::new(directory))?;
            }
        }
        ScopeDirectory::make(&directory, access)
    }

    /// Makes a user's scope that only this user has set. For this user.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn make_own(&self, uid: u32) -> Result<ScopeDirectory, LedgerError> {
        if *self == Self::System {
            private(&self.private_directory(uid), uid)?;
        }
        ScopeDirectory::make(&self.own_directory(uid), Access::User(uid))
    }

    /// Makes the directory in which a user's jobs share limits between their steps. For this user.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn make_steps_parent(&self, uid: u32) -> Result<PathBuf, LedgerError> {
        let path = self.private_directory(uid);
        private(&path, uid)?;
        Ok(path)
    }

    /// Makes the directory of a user's own things below root's. For root; nothing to do for emulated GPUs.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn make_private(&self, uid: u32) -> Result<(), LedgerError> {
        if *self != Self::System {
            return Ok(());
        }
        root_directory(Path::new(RUNTIME))?;
        private(&Path::new(RUNTIME).join(uid.to_string()), uid)
    }

    /// Command with which the administrator sets up a user or group.
    #[must_use]
    pub fn setup_command(&self, target: &str) -> String {
        match self {
            Self::System => format!("radrm quota init {target}"),
            Self::Emulated(file) => format!("radrm quota init --machine {} {target}", file.display()),
        }
    }

    /// Returns true if the GPUs are emulated.
    #[must_use]
    pub fn emulated(&self) -> bool {
        matches!(self, Self::Emulated(_))
    }
}

fn beside(file: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(file.as_os_str());
    path.push(".");
    path.push(name);
    PathBuf::from(path)
}

/// A directory of root's in which only root makes files. One that was open to all users, as earlier versions had
/// it, is closed.
fn root_directory(path: &Path) -> Result<(), LedgerError> {
    let io = |error| LedgerError::Io(path.to_owned(), error);
    make(path, 0o755).map_err(io)?;
    let found = fs::symlink_metadata(path).map_err(io)?;
    if !found.is_dir() || found.uid() != 0 {
        return Err(LedgerError::Unsafe(path.to_owned()));
    }
    if found.mode() & 0o022 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(io)?;
    }
    Ok(())
}

/// A directory of a user's that no other user can read.
fn private(path: &Path, uid: u32) -> Result<(), LedgerError> {
    let io = |error| LedgerError::Io(path.to_owned(), error);
    if make(path, 0o700).map_err(io)? {
        std::os::unix::fs::lchown(path, Some(uid), None).map_err(io)?;
    }
    let found = fs::symlink_metadata(path).map_err(io)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(LedgerError::Unsafe(path.to_owned()));
    }
    Ok(())
}

/// Makes a directory with this mode, whatever the umask. False: there is something already.
fn make(path: &Path, mode: u32) -> std::io::Result<bool> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_machine_has_ledgers_of_its_own() {
        let ledgers = Ledgers::of(Some(Path::new("/tmp/m")));
        assert_eq!(ledgers.directory(Access::User(7)), Path::new("/tmp/m.user-7"));
        assert_eq!(ledgers.directory(Access::Group(9)), Path::new("/tmp/m.group-9"));
        assert_eq!(ledgers.private_directory(7), Path::new("/tmp/m.own-7"));
        assert!(ledgers.emulated() && !Ledgers::of(None).emulated());
        let Ledgers::Emulated(file) = Ledgers::of(Some(Path::new("m"))) else { panic!("not emulated") };
        assert!(file.is_absolute(), "programs change their directory");
    }

    #[test]
    fn scopes_lie_where_only_their_administrator_makes_files() {
        assert_eq!(Ledgers::System.directory(Access::Group(9)), Path::new("/run/radrm/limits/group-9"));
        assert_eq!(Ledgers::System.administrator(), 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let emulated = Ledgers::of(Some(file.path()));
        assert!(emulated.is_administered_here());
        let access = Access::User(rustix::process::geteuid().as_raw());
        assert!(matches!(emulated.open(access), Err(LedgerError::NotSetUp(_))));
        let made = emulated.make(access).unwrap();
        assert_eq!(emulated.open(access).unwrap(), made);
        if rustix::process::geteuid().is_root() {
            // The machine is another user's now; root stays an administrator of it.
            std::os::unix::fs::chown(file.path(), Some(7), None).unwrap();
            assert!(emulated.administrator() == 7 && emulated.open(access).is_ok());
            std::os::unix::fs::chown(made.path(), Some(8), None).unwrap();
            assert!(matches!(emulated.open(access), Err(LedgerError::Unsafe(_))));
        }
        fs::remove_dir_all(made.path()).unwrap();
    }

    #[test]
    fn a_private_directory_is_its_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        let own = rustix::process::geteuid().as_raw();
        private(&path, own).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        private(&path, own).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o710)).unwrap();
        assert!(matches!(private(&path, own), Err(LedgerError::Unsafe(_))));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/root", &link).unwrap();
        assert!(matches!(private(&link, own), Err(LedgerError::Unsafe(_))));
    }
}
