//! Forgetting jobs that ended long ago, with their files.
//!
//! A job's folder is its user's: it may be as deep and as full as that user likes. So another program removes it, and
//! the engine does not wait for that.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use crate::message::Message;

/// Removes the folders that did not change within this time, on a thread of its own, which reports those that are
/// gone; false if there is no thread.
pub(super) fn start(folders: Vec<(u64, PathBuf)>, age_ms: u64, to: Sender<Message>) -> bool {
    let clean = move || {
        let due = folders.into_iter().filter(|(_, folder)| !is_younger(folder, age_ms));
        let removed = due.filter(|(_, folder)| remove(folder)).map(|(job, _)| job);
        let _ = to.send(Message::Removed(removed.collect()));
    };
    thread::Builder::new().name("cleaner".into()).stack_size(128 << 10).spawn(clean).is_ok()
}

/// Whether a folder changed within this time by the wall clock. The scheduler's clock, by which a job's end is known,
/// may have been started before the wall clock was right.
fn is_younger(folder: &Path, age_ms: u64) -> bool {
    let now = radrm_os::time::since_epoch().as_secs();
    fs::symlink_metadata(folder)
        .is_ok_and(|meta| now.saturating_sub(meta.ctime().unsigned_abs()) < age_ms / 1000)
}

/// Whether nothing of a folder is left.
fn remove(folder: &Path) -> bool {
    if folder.symlink_metadata().is_ok() {
        let mut command = Command::new("rm");
        command.args(["-rf", "--one-file-system", "--"]).arg(folder);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    folder.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

    #[test]
    fn a_folder_of_any_depth_is_removed_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("7");
        let beside = place.path().join("beside");
        fs::write(&beside, "x").unwrap();
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&beside, folder.join("link")).unwrap();
        let mut at = openat(CWD, &folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..5000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let (gone, there) = (folder.clone(), place.path().join("8"));
        let clean = move || remove(&gone) && remove(&there);
        // Less of a stack than a walk by recursion takes.
        assert!(thread::Builder::new().stack_size(128 << 10).spawn(clean).unwrap().join().unwrap());
        assert!(!folder.exists() && beside.exists());
    }

    #[test]
    fn what_changed_lately_is_kept_whatever_the_schedulers_clock_said() {
        let place = tempfile::tempdir().unwrap();
        assert!(is_younger(place.path(), 86_400_000));
        assert!(!is_younger(place.path(), 0));
        assert!(!is_younger(&place.path().join("none"), 86_400_000));
    }
}
