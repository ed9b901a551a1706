//! Where the attempts of a group wait for each other: a file to which each supervisor appends one byte.
//!
//! | the first bytes, as many as the group has jobs | then |
//! |---|---|
//! | all are `+` | all have come, and each goes on |
//! | one is `-` | the start is given up: each ends, and nothing of it ran |
//! | fewer | some are still on their way |
//!
//! What is decided stays decided: later bytes do not count. No process has to live for that, so the daemon may be killed
//! while attempts wait. The file is made before an attempt is started that waits there, and a supervisor that does not
//! find it ends: the daemon has removed it because the group did not start.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use radrm_protocol::words;
use serde::{Deserialize, Serialize};

const HAS_COME: u8 = b'+';
const GIVES_UP: u8 = b'-';

/// Between two looks of a supervisor that waits. Others only have to be started, so this does not go on for long.
const INTERVAL: Duration = Duration::from_millis(2);

/// A barrier, as it is named in an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Barrier {
    /// The file.
    #[serde(with = "words::path")]
    pub(crate) path: PathBuf,
    /// How many wait for each other.
    pub(crate) members: usize,
}

impl Barrier {
    /// Makes the file if it is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        options().create(true).open(&self.path).map(|_| ())
    }

    /// For a supervisor, as long as it may open the file.
    pub(crate) fn open(&self) -> io::Result<Waiter> {
        Ok(Waiter { file: options().open(&self.path)?, members: self.members })
    }
}

/// Those that wait there end, unless all have come already.
pub(crate) fn give_up(path: &Path) {
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
pub(crate) struct Waiter {
    file: File,
    members: usize,
}

impl Waiter {
    /// Comes, and waits for the others. Gives whether all go on.
    pub(crate) fn pass(&mut self) -> io::Result<bool> {
        self.file.write_all(&[HAS_COME])?;
        loop {
            if let Some(goes_on) = self.decided()? {
                return Ok(goes_on);
            }
            thread::sleep(INTERVAL);
        }
    }

    fn decided(&self) -> io::Result<Option<bool>> {
        let mut bytes = vec![0; self.members];
        let mut got = 0;
        while got < bytes.len() {
            match self.file.read_at(&mut bytes[got..], got as u64)? {
                0 => break,
                more => got += more,
            }
        }
        let has_given_up = bytes[..got].contains(&GIVES_UP);
        Ok(if has_given_up { Some(false) } else { (got == self.members).then_some(true) })
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
        let barrier = Barrier { path: dir.path().join("barrier"), members };
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
        assert_eq!(barrier.open().unwrap().decided().unwrap(), Some(true), "what is decided stays");
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
}
