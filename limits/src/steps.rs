//! A limit that the steps of one job share, as a workload manager starts them: each step is recorded by itself and
//! has its own segment, and all of them count in one more scope.
//!
//! The scope belongs to the job's user, as the segments do. It goes with the last step: every step holds a shared
//! lock on a file in it, and the one that gets the lock for itself removes the scope.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use radrm_os::untrusted;
use radrm_telemetry::ledger::{Access, LedgerError, LedgerView, Limit, Place, ScopeDirectory};

use crate::LimitError;
use crate::ledgers::Ledgers;
use crate::requested::RequestedLimits;

/// The file in the scope that steps lock.
const LOCK: &str = "steps";
/// Prefix of the names of these scopes, in the user's own directory.
const PREFIX: &str = "steps-";
/// Prefix of the names of scopes that are being removed.
const GONE: &str = "gone-";
/// A scope that another step removes is made anew: more than twice in a row is no coincidence.
const ATTEMPTS: usize = 8;

/// A limit over the steps of a job, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepsRequest {
    /// The job, unique on this node: letters, digits, `-` and `.`.
    pub job: String,
    /// For all steps together; the strictest of these holds.
    pub together: Vec<RequestedLimits>,
    /// For this step, beside what it asks for; the strictest holds.
    pub own: Vec<RequestedLimits>,
}

impl StepsRequest {
    /// Checks the job's name, which becomes a file's.
    ///
    /// # Errors
    /// [`LimitError::NoJobName`].
    pub fn new(
        job: String,
        together: Vec<RequestedLimits>,
        own: Vec<RequestedLimits>,
    ) -> Result<Self, LimitError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if job.is_empty() || job.len() > 64 || !job.bytes().all(fits) {
            return Err(LimitError::NoJobName(job));
        }
        Ok(Self { job, together, own })
    }
}

/// The scope while a step is in it.
#[derive(Debug)]
pub struct StepsScope {
    scope: ScopeDirectory,
    lock: File,
}

impl StepsScope {
    /// Enters the scope of a job, made by its first step. The limits are those of the step that made it; later
    /// steps can only be started under the same ones.
    ///
    /// # Errors
    /// [`LimitError::NoLedger`].
    pub fn enter(ledgers: &Ledgers, job: &str, limits: &[Limit]) -> Result<Self, LimitError> {
        let failed = |error: &dyn std::fmt::Display| LimitError::NoLedger(error.to_string());
        let uid = rustix::process::geteuid().as_raw();
        let parent = ledgers.make_steps_parent(uid).map_err(|error| failed(&error))?;
        sweep(&parent, uid);
        let path = parent.join(format!("{PREFIX}{job}"));
        for _ in 0..ATTEMPTS {
            let scope = ScopeDirectory::make(&path, Access::User(uid)).map_err(|error| failed(&error))?;
            let Some(lock) = join(&path).map_err(|error| failed(&error))? else { continue };
            let entered = Self { scope, lock };
            let made = entered.scope.add(uid).and_then(|_| entered.scope.set_limits(limits, false));
            made.and_then(|()| entered.view()).map_err(|error| failed(&error))?.set_limits(limits);
            return Ok(entered);
        }
        Err(failed(&format_args!("{} is removed again and again", path.display())))
    }

    /// The user's ledger in it.
    #[must_use]
    pub fn member(&self) -> PathBuf {
        self.scope.member(rustix::process::geteuid().as_raw())
    }

    /// The same ledger, to be read and charged.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn view(&self) -> Result<LedgerView, LedgerError> {
        LedgerView::open(&self.member(), Place::File)
    }
}

impl Drop for StepsScope {
    fn drop(&mut self) {
        remove_if_last(self.scope.path(), &self.lock);
    }
}

/// Locks the scope for a step; `None`: it was removed meanwhile.
fn join(scope: &Path) -> std::io::Result<Option<File>> {
    let path = scope.join(LOCK);
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(&path);
    let file = match open {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => {}
        // The last step is removing it.
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(std::time::Duration::from_millis(2));
            return Ok(None);
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (held, named) = (file.metadata()?, fs::symlink_metadata(&path));
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())).then_some(file))
}

fn remove_if_last(scope: &Path, lock: &File) {
    // An exclusive lock replaces the own shared one; it is refused while another step has one.
    if lock.try_lock().is_err() {
        return;
    }
    // A step that begins now finds the whole scope or none.
    let Some(name) = scope.file_name() else { return };
    let gone = scope.with_file_name(format!("{GONE}{}-{}", std::process::id(), name.to_string_lossy()));
    if fs::rename(scope, &gone).is_ok() {
        // What cannot be removed now is found by a later job's sweep.
        let _ = fs::remove_dir_all(gone);
    }
}

/// Removes scopes whose steps were killed before they could do it.
fn sweep(parent: &Path, uid: u32) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let begins = |with: &str| name.to_string_lossy().starts_with(with);
        if begins(GONE) {
            let _ = fs::remove_dir_all(&path);
            continue;
        }
        if !begins(PREFIX) {
            continue;
        }
        let is_own = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == uid);
        // One without a lock file is being made.
        if is_own && let Ok(lock) = untrusted::open(&path.join(LOCK)) {
            remove_if_last(&path, &lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::ledger::Amount;

    fn limits(gib: u64) -> Vec<Limit> {
        vec![Limit { gpu: None, amount: Amount::Bytes(gib << 30) }]
    }

    #[test]
    fn the_scope_goes_with_its_last_step() {
        let machine = tempfile::NamedTempFile::new().unwrap();
        let ledgers = Ledgers::of(Some(machine.path()));
        let first = StepsScope::enter(&ledgers, "slurm-7", &limits(4)).unwrap();
        let second = StepsScope::enter(&ledgers, "slurm-7", &limits(4)).unwrap();
        let (path, other) = (first.member(), second.member());
        assert_eq!(path, other, "both steps count in one ledger");
        drop(first);
        assert!(path.exists(), "a step is left");
        drop(second);
        assert!(!path.parent().unwrap().exists());
        let again = StepsScope::enter(&ledgers, "slurm-7", &limits(2)).unwrap();
        assert!(again.view().is_ok());
        drop(again);
        let parent = ledgers.make_steps_parent(rustix::process::geteuid().as_raw()).unwrap();
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn a_scope_of_killed_steps_is_removed_by_the_next_job() {
        let machine = tempfile::NamedTempFile::new().unwrap();
        let ledgers = Ledgers::of(Some(machine.path()));
        let killed = StepsScope::enter(&ledgers, "slurm-8", &limits(4)).unwrap();
        let path = killed.member();
        // As the kernel does it: the lock goes, and nothing else.
        let lock = killed.lock.try_clone().unwrap();
        std::mem::forget(killed);
        lock.unlock().unwrap();
        let living = StepsScope::enter(&ledgers, "slurm-9", &limits(4)).unwrap();
        assert!(!path.exists() && living.member().exists());
        drop(living);
        let parent = ledgers.make_steps_parent(rustix::process::geteuid().as_raw()).unwrap();
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn a_jobs_name_is_no_path() {
        for name in ["", "a/b", "..\u{0}", "a b", "ä"] {
            let error = StepsRequest::new(name.into(), Vec::new(), Vec::new()).unwrap_err().to_string();
            assert!(error.contains("names no job"), "{name}: {error}");
        }
        assert!(StepsRequest::new("slurm-12.node1".into(), Vec::new(), Vec::new()).is_ok());
    }
}
