//! A file that is locked from before a supervisor is started until it is gone.
//!
//! The starter locks the file and hands it over, so there is no moment in which a supervisor lives and the file is free:
//! a starter that was killed and comes back never starts an attempt twice.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Makes the file, empty and locked, for this user alone.
///
/// # Errors
/// `WouldBlock` if a supervisor has it locked: what that wrote stays. Otherwise the file cannot be made.
pub fn make(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.set_len(0)?;
    Ok(file)
}

/// Returns true if another process has the file locked.
///
/// # Errors
/// It cannot be known.
pub fn is_locked(file: &File) -> io::Result<bool> {
    // Shared: two that look at once do not see each other.
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // At once: a copy in a process that is being started may live longer than the file.
            flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_locked_file_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        let mut file = make(&path).unwrap();
        file.write_all(b"of the first").unwrap();
        assert!(is_locked(&File::open(&path).unwrap()).unwrap());
        assert_eq!(make(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(fs::read(&path).unwrap(), b"of the first");
        // As a supervisor has it after its starter was killed.
        let copy = file.try_clone().unwrap();
        drop(file);
        assert!(is_locked(&File::open(&path).unwrap()).unwrap());
        drop(copy);
        assert!(!is_locked(&File::open(&path).unwrap()).unwrap());
        let file = make(&path).unwrap();
        assert!(fs::read(&path).unwrap().is_empty(), "nothing of an earlier attempt");
        drop(file);
    }
}
