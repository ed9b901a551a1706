//! One attempt at a run, on disk. The sweep and the run's supervisor meet here and nowhere else, so either may be killed.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `order.json` | the sweep | what is to be run |
//! | `status` | the supervisor | its process, and that it waits at the barrier; locked as long as the attempt is under way |
//! | `barrier` | the sweep | `go` when all members have come; locked until then |
//! | `result.json` | the supervisor | how the program ended |
//!
//! The sweep locks `status` before it starts the supervisor and hands the locked file over. There is no moment in which a
//! supervisor lives and the file is not locked, so a sweep that is resumed never starts a run a second time.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use radrm_os::ProcessIdentity;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// The variable by which the processes of an attempt are found after its supervisor was killed.
pub const MARK: &str = "RADRM_SWEEP_RUN";

/// The file with what a program prints.
pub(crate) const OUTPUT: &str = "output.log";

/// The profile of a run.
pub(crate) const PROFILE: &str = "profile.radrm";

/// What opens a barrier.
const GO: &str = "go";

/// What a supervisor runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Program and arguments: `radrm-run` and what is behind it.
    pub command: Vec<String>,
    /// Where.
    pub directory: PathBuf,
    /// Variables beside the supervisor's own.
    pub environment: BTreeMap<String, String>,
    /// The program is ended after this time, ms.
    pub timeout_ms: Option<u64>,
    /// Time from SIGTERM to SIGKILL, ms.
    pub grace_ms: u64,
    /// The file at which it waits for the other members of its group.
    pub barrier: Option<PathBuf>,
    /// The value of [`MARK`].
    pub mark: String,
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// When it started, ms since 1970.
    pub started_ms: u64,
    /// How long it ran, ms.
    pub duration_ms: u64,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its time was over.
    pub timed_out: bool,
    /// Why it did not start, or what ended it.
    #[serde(alias = "not_started")]
    pub why: Option<String>,
}

/// The folder of an attempt.
#[derive(Clone, Debug)]
pub struct Attempt(PathBuf);

/// Where an attempt is.
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
        for name in ["result.json", OUTPUT, PROFILE] {
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
        let status = private().create(true).truncate(true).open(self.file("status"))?;
        // Non-blocking: no other process knows the file yet.
        flock(&status, FlockOperation::NonBlockingLockExclusive)?;
        Ok(status)
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

    /// What is to be run.
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

    /// Where it is.
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
        // Shared: two that look at once do not see each other.
        flock(&file, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// The supervisor, and whether it waits at the barrier.
    #[must_use]
    pub fn supervisor(&self) -> Option<(ProcessIdentity, bool)> {
        let text = fs::read_to_string(self.file("status")).ok()?;
        let mut lines = text.lines();
        let (pid, start) = lines.next()?.split_once(' ')?;
        let identity = ProcessIdentity { pid: pid.parse().ok()?, start: start.parse().ok()? };
        Some((identity, lines.next() == Some("waiting")))
    }
}

/// A barrier that is closed as long as this lives and did not open it.
#[derive(Debug)]
pub struct Barrier(File);

impl Barrier {
    /// Makes a closed one.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn close(path: &Path) -> io::Result<Self> {
        let file = private().create(true).truncate(true).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }

    /// Lets all members go at once. If this process is killed before, the lock falls and they end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(mut self) -> io::Result<()> {
        self.0.write_all(GO.as_bytes())
    }

    /// Waits until it is opened, or given up; gives which. A member calls this.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pass(path: &Path) -> io::Result<bool> {
        let mut file = File::open(path)?;
        flock(&file, FlockOperation::LockShared)?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        Ok(text == GO)
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
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

    #[test]
    fn a_barrier_opens_for_all_or_none() {
        let dir = tempfile::tempdir().unwrap();
        for opens in [true, false] {
            let path = dir.path().join(opens.to_string());
            let barrier = Barrier::close(&path).unwrap();
            let members: Vec<_> = (0..4)
                .map(|_| {
                    let path = path.clone();
                    std::thread::spawn(move || Barrier::pass(&path).unwrap())
                })
                .collect();
            if opens {
                barrier.open().unwrap()
            } else {
                drop(barrier)
            }
            for member in members {
                assert_eq!(member.join().unwrap(), opens);
            }
            assert_eq!(Barrier::pass(&path).unwrap(), opens, "for one that comes later, too");
        }
    }
}
