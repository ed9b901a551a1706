//! This process as a daemon: its name, the reason for its end, and the locks that keep a second one out.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};

use super::error::DaemonError;

/// The program's name in messages.
pub(crate) const NAME: &str = "radrmd";

/// Reason that the daemon's loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// By a signal.
    ToEnd,
    /// GPUs are there that were not when it started.
    ToRestart,
}

/// A lock that no other process can have as long as this process lives; `None` if another one has it.
///
/// It is this process's alone. One of the open file, or a socket that still listens, would live on in a child that
/// is about to become a supervisor, and a daemon that follows on one that was killed just then would find it taken.
pub(crate) fn lock(path: &Path) -> Result<Option<fs::File>, DaemonError> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(|error| DaemonError::file(path, &error))?;
    Ok(fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
}

/// The lock of the daemon whose state this is.
///
/// # Errors
/// Another daemon has it.
pub(crate) fn only_one(state: &Path) -> Result<fs::File, DaemonError> {
    lock(&state.join("lock"))?.ok_or_else(|| DaemonError::OtherDaemon(state.to_owned()))
}
