//! The folder of a sweep, beside its file: `grid.toml.sweep`. It holds the state, and what each run printed and recorded.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::attempt::OUTPUT;
use crate::error::SweepError;

/// Number of attempts to take a lock, and the interval between them.
const MAX_TRIES: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The folder of a sweep.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// As long as this lives, no other process runs the sweep.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Folder {
    /// Of the sweep in a file.
    ///
    /// # Errors
    /// The file's own folder is gone.
    pub fn of(file: &Path) -> Result<Self, SweepError> {
        let io = |source| SweepError::Io { path: file.to_owned(), source };
        let mut name = OsString::from(fs::canonicalize(file).map_err(io)?);
        name.push(".sweep");
        Ok(Self(name.into()))
    }

    /// The file of the sweep in whose folder a profile lies, if it can be trusted.
    #[must_use]
    pub fn file_of(profile: &Path) -> Option<PathBuf> {
        // The folder of an attempt, of a run, and of the sweep.
        let folder = profile.ancestors().nth(3)?;
        let file = folder.to_str()?.strip_suffix(".sweep")?;
        let own = Self(folder.to_owned());
        (own.check().is_ok() && own.database().is_file()).then(|| PathBuf::from(file))
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, for its owner alone.
    ///
    /// # Errors
    /// It cannot be made, or it is there and another user could write to it.
    pub fn make(&self) -> Result<(), SweepError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|source| SweepError::Io { path: self.0.clone(), source })?;
        self.check()
    }

    /// Checks that the folder can be trusted.
    /// What lies in it starts programs, and the file may be in a folder in which all users can make files.
    ///
    /// # Errors
    /// [`SweepError::NoState`], [`SweepError::Foreign`].
    pub fn check(&self) -> Result<(), SweepError> {
        let meta = match fs::symlink_metadata(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SweepError::NoState(self.0.clone()));
            }
            other => other.map_err(|source| SweepError::Io { path: self.0.clone(), source })?,
        };
        let own = rustix::process::geteuid().as_raw();
        if !meta.is_dir() || meta.uid() != own || meta.mode() & 0o022 != 0 {
            return Err(SweepError::Foreign(self.0.clone()));
        }
        Ok(())
    }

    /// Keeps other processes from running the sweep.
    ///
    /// # Errors
    /// [`SweepError::Busy`].
    pub fn claim(&self) -> Result<Claim, SweepError> {
        let path = self.0.join("lock");
        let io = |source| SweepError::Io { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(io)?;
        // A child that a killed sweep was just about to start may have the lock for a moment.
        let mut tries = 0;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            tries += 1;
            if tries < MAX_TRIES {
                thread::sleep(RETRY_INTERVAL);
                continue;
            }
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            return Err(SweepError::Busy(text.trim().parse().ok()));
        }
        file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(io)?;
        Ok(Claim { _file: file })
    }

    /// Distinguishes it from all other folders of the machine.
    ///
    /// # Errors
    /// It is gone.
    pub fn identity(&self) -> Result<String, SweepError> {
        let meta = fs::metadata(&self.0).map_err(|source| SweepError::Io { path: self.0.clone(), source })?;
        Ok(format!("{:x}.{:x}", meta.dev(), meta.ino()))
    }

    /// The folder of an attempt at a run.
    #[must_use]
    pub fn attempt(&self, number: u64, attempt: u32) -> PathBuf {
        self.0.join(format!("{number:05}")).join(attempt.to_string())
    }

    /// Path of the output that the program of an attempt printed.
    #[must_use]
    pub fn output(&self, number: u64, attempt: u32) -> PathBuf {
        self.attempt(number, attempt).join(OUTPUT)
    }

    /// Path of the state's database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.0.join("state.db")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_that_others_could_write_to_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        fs::write(&file, "").unwrap();
        let folder = Folder::of(&file).unwrap();
        assert!(matches!(folder.check(), Err(SweepError::NoState(_))));
        folder.make().unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(folder.make(), Err(SweepError::Foreign(_))));
        fs::remove_dir(folder.path()).unwrap();
        symlink(dir.path(), folder.path()).unwrap();
        assert!(matches!(folder.make(), Err(SweepError::Foreign(_))));
    }

    #[test]
    fn a_profile_leads_to_the_sweep_in_whose_folder_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        fs::write(&file, "").unwrap();
        let folder = Folder::of(&file).unwrap();
        let profile = folder.attempt(1, 1).join("profile.radrm");
        assert_eq!(Folder::file_of(&profile), None, "there is no folder");
        folder.make().unwrap();
        assert_eq!(Folder::file_of(&profile), None, "it has no state");
        fs::write(folder.database(), "").unwrap();
        assert_eq!(Folder::file_of(&profile), Some(fs::canonicalize(&file).unwrap()));
        assert_eq!(Folder::file_of(&dir.path().join("profile.radrm")), None);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Folder::file_of(&profile), None, "others could have written it");
    }

    #[test]
    fn one_process_at_a_time_runs_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        fs::write(&file, "").unwrap();
        let folder = Folder::of(&file).unwrap();
        folder.make().unwrap();
        let claim = folder.claim().unwrap();
        assert!(matches!(folder.claim(), Err(SweepError::Busy(Some(pid))) if pid == std::process::id()));
        drop(claim);
        folder.claim().unwrap();
    }
}
