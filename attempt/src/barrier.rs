//! Barrier at which the attempts of a group wait for each other: a file to which each supervisor appends one byte.
//!
//! | the first bytes, as many as the group has jobs | then |
//! |---|---|
//! | all are `+` | all have come, and each goes on |
//! | one is `-` | the start is given up: each ends, and nothing of it ran |
//! | fewer | some are still on their way |
//!
//! A decision is final: later bytes do not count. No process has to live for that, so a starter that comes back may be
//! killed while attempts wait. The file is made before an attempt is started that waits there, and a supervisor that
//! does not find it ends: the starter has removed it because the group did not start. A starter that does not come back
//! ([`Barrier::make_tied`]) holds the file locked: those that wait give up when the lock falls.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock;

const HAS_COME: u8 = b'+';
const GIVES_UP: u8 = b'-';

/// Between two looks of a supervisor that waits. Others only have to be started, so this does not go on for long.
const INTERVAL: Duration = Duration::from_millis(2);

/// A barrier, as it is named in an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The file.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// Number of attempts that wait for each other.
    pub members: usize,
    /// Its starter holds the file locked until the start is decided.
    #[serde(default)]
    pub tied: bool,
}

/// A path as the bytes that it has, which need not be text.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(Vec::deserialize(from)?).into())
    }
}

impl Barrier {
    /// Makes the file if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> io::Result<()> {
        options().create(true).open(&self.path).map(|_| ())
    }

    /// Makes a new file that is tied to the one that this returns: those that wait give up when that is dropped, or this
    /// process is killed, before all have come.
    ///
    /// # Errors
    /// It cannot be made, or is tied already.
    pub fn make_tied(&self) -> io::Result<File> {
        lock::make(&self.path)
    }

    /// For a supervisor, as long as it may open the file.
    ///
    /// # Errors
    /// It cannot be opened: the start was given up.
    pub fn open(&self) -> io::Result<Waiter> {
        Ok(Waiter { file: options().open(&self.path)?, members: self.members, tied: self.tied })
    }

    /// Returns true if all have come, false if the start was given up, `None` before that.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn decided(&self) -> io::Result<Option<bool>> {
        decided(&File::open(&self.path)?, self.members)
    }
}

fn decided(file: &File, members: usize) -> io::Result<Option<bool>> {
    let mut bytes = vec![0; members];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], got as u64)? {
            0 => break,
            more => got += more,
        }
    }
    let has_given_up = bytes[..got].contains(&GIVES_UP);
    Ok(if has_given_up { Some(false) } else { (got == members).then_some(true) })
}

/// Gives the start up: attempts that wait there end, unless all have come already.
pub fn give_up(path: &Path) {
    // Without the file none waits.
    let _ = options().open(path).and_then(|mut file| file.write_all(&[GIVES_UP]));
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// A supervisor's end of a barrier. One that goes without having come gives the start up for all.
#[derive(Debug)]
pub struct Waiter {
    file: File,
    members: usize,
    tied: bool,
}

impl Waiter {
    /// Comes, and waits for the others. Returns true if all go on.
    ///
    /// # Errors
    /// The file cannot be written or read.
    pub fn pass(&mut self) -> io::Result<bool> {
        self.file.write_all(&[HAS_COME])?;
        loop {
            if let Some(goes_on) = decided(&self.file, self.members)? {
                return Ok(goes_on);
            }
            // Decided by the next look: the last one may have come just before the lock fell.
            if self.tied && !lock::is_locked(&self.file)? {
                self.file.write_all(&[GIVES_UP])?;
            }
            thread::sleep(INTERVAL);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Where it is decided already this does not count.
        let _ = self.file.write_all(&[GIVES_UP]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(members: usize) -> (tempfile::TempDir, Barrier) {
        let dir = tempfile::tempdir().unwrap();
        let barrier = Barrier { path: dir.path().join("barrier"), members, tied: false };
        (dir, barrier)
    }

    #[test]
    fn all_go_on_when_the_last_one_has_come() {
        let (_dir, barrier) = barrier(3);
        barrier.make().unwrap();
        let come = |_| {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.open().unwrap().pass().unwrap())
        };
        let mut first: Vec<_> = (0..2).map(come).collect();
        thread::sleep(Duration::from_millis(50));
        assert!(first.iter().all(|one| !one.is_finished()), "one is missing");
        // Made again by a daemon that starts the last one.
        barrier.make().unwrap();
        first.push(come(2));
        assert!(first.into_iter().all(|one| one.join().unwrap()));
        give_up(&barrier.path);
        assert_eq!(barrier.decided().unwrap(), Some(true), "what is decided stays");
    }

    #[test]
    fn none_goes_on_when_one_gives_up() {
        let (_dir, barrier) = barrier(2);
        barrier.make().unwrap();
        let waits = barrier.clone();
        let waits = thread::spawn(move || waits.open().unwrap().pass().unwrap());
        // Its supervisor fails before it comes.
        drop(barrier.open().unwrap());
        assert!(!waits.join().unwrap());
        assert!(!barrier.open().unwrap().pass().unwrap(), "nor one that comes later");
    }

    #[test]
    fn a_barrier_that_was_removed_lets_none_wait() {
        let (_dir, barrier) = barrier(2);
        give_up(&barrier.path);
        assert!(barrier.open().is_err(), "giving up makes no file");
    }

    #[test]
    fn none_waits_for_a_starter_that_was_killed() {
        let (_dir, barrier) = barrier(2);
        let barrier = Barrier { tied: true, ..barrier };
        let tie = barrier.make_tied().unwrap();
        let waits = barrier.clone();
        let waits = thread::spawn(move || waits.open().unwrap().pass().unwrap());
        thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished(), "the starter lives");
        drop(tie);
        assert!(!waits.join().unwrap());
        // The next start has a barrier of its own, and all of it come.
        let tie = barrier.make_tied().unwrap();
        let come = |_| {
            let barrier = barrier.clone();
            thread::spawn(move || barrier.open().unwrap().pass().unwrap())
        };
        let all: Vec<_> = (0..2).map(come).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap()));
        assert_eq!(barrier.decided().unwrap(), Some(true));
        drop(tie);
    }

    #[test]
    fn a_path_that_is_no_text_is_handed_over() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(OsStr::from_bytes(b"/state\xff/1.1.together")).to_owned();
        let barrier = Barrier { path, members: 2, tied: false };
        let text = serde_json::to_string(&barrier).unwrap();
        assert_eq!(serde_json::from_str::<Barrier>(&text).unwrap(), barrier);
    }
}
