//! Record of a limited job on this node: a file that the job's user cannot write.
//! So no step of the job can be started under wider limits than the first one.
//!
//! Every `slurmstepd` of the job holds a shared lock on it. The last one removes it; what a killed one leaves is taken
//! over by the job's next step, or removed when another job begins.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that another step removes at this moment, after a call of the driver, is made anew. At a millisecond each,
/// more often in a row is no coincidence.
const ATTEMPTS: usize = 2000;

/// The limits of a job, as text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grant {
    /// Lists of limits that all steps share; the strictest holds.
    pub memory: Vec<String>,
    /// At most such a share of the GPUs' time, percent.
    pub share: Option<u8>,
}

impl Grant {
    /// Returns true if anything is limited.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.memory.is_empty() || self.share.is_some()
    }

    fn to_text(&self) -> String {
        let memory = self.memory.iter().map(|limits| format!("memory {limits}\n"));
        memory.chain(self.share.map(|percent| format!("share {percent}\n"))).collect()
    }

    fn from_text(text: &str) -> Self {
        let mut grant = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match name {
                "memory" => grant.memory.push(value.to_owned()),
                "share" => grant.share = value.parse().ok(),
                _ => {}
            }
        }
        grant
    }
}

/// The file of a job, while a step of it runs here.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    file: File,
    /// The job.
    pub job: u32,
    /// No other step of the job ran when this one began.
    pub is_first: bool,
    /// Grant in the file.
    pub grant: Grant,
}

impl Held {
    /// Takes the job's file, or makes it with `first`. `None`: there is no file, and nothing to write into one.
    /// `begins`: an attempt begins with this step, so that what a killed step of an earlier one left does not count.
    ///
    /// # Errors
    /// The directory or the file cannot be used.
    pub fn take(directory: &Path, job: u32, first: &Grant, begins: bool) -> io::Result<Option<Self>> {
        let path = directory.join(job.to_string());
        if !first.any() && fs::symlink_metadata(&path).is_err() {
            return Ok(None);
        }
        private(directory)?;
        sweep(directory, &path);
        for _ in 0..ATTEMPTS {
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&path)?;
            // The first step writes while it has the file for itself.
            let is_alone = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(error)) => return Err(error),
            };
            let mut text = String::new();
            if is_alone && is_named(&file, &path) {
                file.read_to_string(&mut text)?;
                if begins || !text.ends_with(END) {
                    // New, or its writer was killed.
                    file.set_len(0)?;
                    text = first.to_text() + END;
                    file.write_all(text.as_bytes())?;
                }
                file.lock_shared()?;
                return Ok(Some(Self { path, file, job, is_first: true, grant: Grant::from_text(&text) }));
            }
            if file.try_lock_shared().is_ok() && is_named(&file, &path) {
                file.read_to_string(&mut text)?;
                if text.ends_with(END) {
                    return Ok(Some(Self {
                        path,
                        file,
                        job,
                        is_first: false,
                        grant: Grant::from_text(&text),
                    }));
                }
            }
            drop(file);
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other("it is written or removed again and again"))
    }
}

impl Held {
    /// Returns true if no other step of the job runs now.
    /// If so, none begins before this is dropped.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.file.try_lock().is_ok()
    }
}

/// Last line of a complete file.
const END: &str = "end\n";

impl Drop for Held {
    fn drop(&mut self) {
        if self.file.try_lock().is_ok() {
            // While it is locked no step takes it for the job's file; a failure leaves it to a later job.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_named(file: &File, path: &Path) -> bool {
    let named = fs::symlink_metadata(path);
    file.metadata()
        .is_ok_and(|held| named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())))
}

/// The directory, in which only this user makes files.
fn private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).recursive(true).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    // SAFETY: always works.
    let own = unsafe { libc::geteuid() };
    if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user or is open to others",
        ));
    }
    Ok(())
}

/// Removes the files of jobs that no step of this node is part of any more.
fn sweep(directory: &Path, except: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path != except) {
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(&path);
        if let Ok(file) = open
            && file.try_lock().is_ok()
            && is_named(&file, &path)
        {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(limits: &str) -> Grant {
        Grant { memory: vec![limits.to_owned()], share: Some(30) }
    }

    #[test]
    fn later_steps_get_the_limits_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert!(Held::take(&state, 7, &Grant::default(), false).unwrap().is_none() && !state.exists());
        let first = Held::take(&state, 7, &grant("1GiB"), false).unwrap().unwrap();
        for wider in [grant("90GiB"), Grant::default()] {
            let later = Held::take(&state, 7, &wider, false).unwrap().unwrap();
            assert_eq!(later.grant, grant("1GiB"));
        }
        let mode = fs::metadata(state.join("7")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "no other user can open it, and so hold its lock");
        let other = Held::take(&state, 8, &grant("2GiB"), false).unwrap().unwrap();
        assert_eq!(first.grant, grant("1GiB"), "another job's step removes nothing of a running one");
        assert!(state.join("7").exists());
        drop((first, other));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn a_killed_step_leaves_its_limits_to_the_jobs_next_step_only() {
        let directory = tempfile::tempdir().unwrap();
        let killed = Held::take(directory.path(), 7, &grant("1GiB"), false).unwrap().unwrap();
        killed.file.unlock().unwrap();
        std::mem::forget(killed);
        let next = Held::take(directory.path(), 7, &grant("90GiB"), false).unwrap().unwrap();
        assert_eq!(next.grant, grant("1GiB"));
        next.file.unlock().unwrap();
        std::mem::forget(next);
        let again = Held::take(directory.path(), 7, &grant("3GiB"), true).unwrap().unwrap();
        assert_eq!(again.grant, grant("3GiB"), "a later attempt has limits of its own");
        again.file.unlock().unwrap();
        std::mem::forget(again);
        let other = Held::take(directory.path(), 8, &grant("2GiB"), false).unwrap().unwrap();
        assert!(!directory.path().join("7").exists());
        drop(other);
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Held::take(directory.path(), 7, &grant("1GiB"), false).is_err());
    }
}
