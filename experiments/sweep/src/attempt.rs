//! One attempt at a run, on disk. The sweep and the run's supervisor meet here and nowhere else, so either may be killed.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `order.json` | the sweep | what is to be run |
//! | `status` | the supervisor | its process; locked as long as the attempt is under way |
//! | `barrier` | the supervisors | which members have come, see `radrm_attempt::barrier`; tied to the sweep |
//! | `result.json` | the supervisor | how the program ended |
//! | `given-up` | the sweep | why it ends the program before its end, see [`crate::early`] |
//! | `metrics.jsonl` | the program | what it logs of itself, see [`crate::metrics`] |
//!
//! A sweep that is resumed never starts a run a second time: see `radrm_attempt::lock`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use radrm_attempt::{Barrier, leftovers, lock};
use radrm_os::{ProcessIdentity, untrusted};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::metrics;

/// The variable by which the processes of an attempt are found after its supervisor was killed.
pub const MARK: &str = "RADRM_SWEEP_RUN";

/// The file with what a program prints.
pub(crate) const OUTPUT: &str = "output.log";

/// The file with the reason of early stopping.
pub(crate) const GIVEN_UP: &str = "given-up";

/// Bytes of that reason.
const MAX_REASON: u64 = 1000;

/// The profile of a run.
pub(crate) const PROFILE: &str = "profile.radrm";

/// Order to a supervisor: the program that it runs, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Program and arguments: `radrm-run` and what is behind it.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: PathBuf,
    /// Variables beside the supervisor's own.
    pub environment: BTreeMap<String, String>,
    /// The program is ended after this time, ms.
    pub timeout_ms: Option<u64>,
    /// Time from SIGTERM to SIGKILL, ms.
    pub grace_ms: u64,
    /// Barrier at which it waits for the other members of its group.
    pub barrier: Option<Barrier>,
    /// The value of [`MARK`].
    pub mark: String,
}

/// End status of a program, with its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Start, ms since 1970.
    pub started_ms: u64,
    /// Run time, ms.
    pub duration_ms: u64,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its time was over.
    pub timed_out: bool,
    /// It was asked to end before its time, and may have ended with any code.
    #[serde(default)]
    pub stopped: bool,
    /// Reason that it did not start, or cause of its end.
    pub why: Option<String>,
}

/// The folder of an attempt.
#[derive(Clone, Debug)]
pub struct Attempt(PathBuf);

/// State of an attempt.
#[derive(Debug, PartialEq)]
pub enum Standing {
    /// Its supervisor lives, or is being started.
    UnderWay,
    /// Over.
    Ended(Ended),
    /// There is neither a supervisor nor a result: it was not started, withdrawn, or its supervisor was killed.
    Nothing,
}

impl Attempt {
    /// That in a folder.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A file of it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes the folder. What is there of another attempt, whose state was lost, says nothing of this one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        for name in ["result.json", OUTPUT, PROFILE, metrics::FILE, GIVEN_UP] {
            match fs::remove_file(self.file(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the folder with its order, and gives the locked status file for the supervisor.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn prepare(&self, order: &Order) -> io::Result<File> {
        self.make()?;
        write_whole(&self.0, "order.json", &serde_json::to_vec(order)?)?;
        lock::make(&self.file("status"))
    }

    /// Takes over a profile that lies elsewhere; the copy is whole or not there. Nothing happens where there is none.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn take_profile(&self, from: &Path) -> io::Result<()> {
        let mut from = match File::open(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let mut file = NamedTempFile::new_in(&self.0)?;
        io::copy(&mut from, &mut file)?;
        file.persist(self.file(PROFILE)).map(|_| ()).map_err(|error| error.error)
    }

    /// Order of the attempt.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn order(&self) -> io::Result<Order> {
        Ok(serde_json::from_slice(&fs::read(self.file("order.json"))?)?)
    }

    /// Writes how it ended; the file is whole or not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(&self, ended: &Ended) -> io::Result<()> {
        write_whole(&self.0, "result.json", &serde_json::to_vec(ended)?)
    }

    /// Writes why early stopping ends the program; on disk before the program is asked to end.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn give_up(&self, why: &str) -> io::Result<()> {
        write_whole(&self.0, GIVEN_UP, why.as_bytes())
    }

    /// Reason that early stopping ends the program, if it does.
    #[must_use]
    pub fn given_up(&self) -> Option<String> {
        let mut text = Vec::new();
        untrusted::open(&self.file(GIVEN_UP)).ok()?.take(MAX_REASON).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// State of the attempt.
    #[must_use]
    pub fn standing(&self) -> Standing {
        // The lock first: a result that is written before it falls is seen behind it.
        if self.is_locked() {
            return Standing::UnderWay;
        }
        let ended =
            fs::read(self.file("result.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
        ended.map_or(Standing::Nothing, Standing::Ended)
    }

    fn is_locked(&self) -> bool {
        let Ok(file) = File::open(self.file("status")) else { return false };
        lock::is_locked(&file).unwrap_or(true)
    }

    /// The supervisor, as soon as it has written down which process it is.
    #[must_use]
    pub fn supervisor(&self) -> Option<ProcessIdentity> {
        let text = fs::read_to_string(self.file("status")).ok()?;
        let (pid, start) = text.lines().next()?.split_once(' ')?;
        Some(ProcessIdentity { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }
}

/// Kills the processes of this user whose environment has the mark of an attempt.
pub(crate) fn kill_marked(mark: &str) {
    leftovers::kill_all(|process| process.variable(MARK).is_some_and(|value| value == OsStr::new(mark)));
}

/// Writes a file that is whole or not there, also after a power failure.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_under_way_as_long_as_its_status_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::at(dir.path().join("1"));
        assert_eq!(attempt.standing(), Standing::Nothing);
        let order = Order { command: vec!["p".into()], ..Order::default() };
        let status = attempt.prepare(&order).unwrap();
        assert_eq!((attempt.standing(), attempt.order().unwrap()), (Standing::UnderWay, order));
        // As the supervisor has it after the sweep was killed.
        let copy = status.try_clone().unwrap();
        drop(status);
        assert_eq!(attempt.standing(), Standing::UnderWay);
        let ended = Ended { code: Some(3), ..Ended::default() };
        attempt.end(&ended).unwrap();
        assert_eq!(attempt.standing(), Standing::UnderWay, "a supervisor that still cleans up is not over");
        drop(copy);
        assert_eq!(attempt.standing(), Standing::Ended(ended));
        drop(attempt.prepare(&Order::default()).unwrap());
        assert_eq!(attempt.standing(), Standing::Nothing, "an old result says nothing of a new attempt");
    }

    #[test]
    fn the_mps_daemon_of_all_jobs_has_no_mark() {
        assert!(radrm_limits::mps::control::NOT_FOR_DAEMON.contains(&MARK));
    }
}
