//! Limit on open files: the daemon holds some for each job that runs, jobs get the limit that it was started with.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised; `None` is no limit.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
        let _ = BEFORE.set(current);
    }
}

/// Descriptors that are kept free for clients and files.
const KEPT_FREE: u64 = 16;

/// Returns true if enough descriptors are left beside this one: each new one is the lowest that is free.
pub(crate) fn leaves_room(fd: &impl AsRawFd) -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::from(fd.as_raw_fd().unsigned_abs()) < most.saturating_sub(KEPT_FREE)
}

/// Returns true if one more descriptor can be had and enough are left.
pub(crate) fn is_room() -> bool {
    File::open("/dev/null").is_ok_and(|file| leaves_room(&file))
}

/// The soft limit that jobs are to have, as a word for a supervisor's command line; none if it is as it was.
pub(crate) fn word() -> Option<String> {
    BEFORE.get().map(|before| before.map_or_else(|| "unlimited".to_owned(), |files| files.to_string()))
}

/// Sets the soft limit that such a word names.
pub(crate) fn restore(word: Option<&OsString>) {
    let Some(word) = word.and_then(|word| word.to_str()) else { return };
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: word.parse().ok(), maximum });
}
