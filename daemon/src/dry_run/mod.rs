//! Dry runs in the background: what jobs need of which nothing is known, found out before they are placed.
//!
//! A helper process makes each. It stays root (or the daemon's user) and runs `radrm-run --dry-run` as the job's user,
//! within bounds of its own; it ends all of that when time or memory is over, when it is asked to, and when the daemon
//! is gone.
//!
//! | module | is |
//! |---|---|
//! | `settings` | what the administrator allows |
//! | `python` | which programs are Python, by their command alone |
//! | `inspect` | whether they use PyTorch or JAX, and the digest of their files: read as their user |
//! | `confine` | the bounds of the processes |
//! | `helper` | the helper process |
//! | `stored` | results, which are not found out twice |

mod confine;
mod helper;
mod inspect;
mod python;
pub(crate) mod settings;
pub(crate) mod stored;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;

use radrm_attempt::{HeldProcess, lock};
use radrm_base::ProgramKind;
use radrm_limits::cgroup_v2::Group;
use radrm_need::StepPrediction;
use radrm_protocol::words;
use serde::{Deserialize, Serialize};

use crate::descriptors;
use crate::error::DaemonError;
use crate::status;
use crate::supervisor::{self, User};
use crate::time;

pub(crate) use helper::keep;
pub(crate) use python::is_python;

/// The word on the command line that makes `radrmd` the helper of a dry run.
pub(crate) const WORD: &str = "--dry-run-one-job";

/// Offset of the boot id in its file, bytes.
const BOOT_AT: u64 = 4096;

/// The most that a helper's answer has, bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// Parameters of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The program and its arguments, as [`words::encode`] writes them.
    pub(crate) command: Vec<String>,
    /// The launcher with its options up to `--`, but for where its report goes.
    pub(crate) launcher: Vec<String>,
    /// The job's whole environment, with the marks of attempt 0.
    pub(crate) environment: Vec<String>,
    /// Working directory.
    #[serde(with = "words::path")]
    pub(crate) cwd: PathBuf,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<User>,
    /// The umask.
    pub(crate) umask: u32,
    /// The control group of its processes.
    pub(crate) group: Option<Group>,
    /// Its bounds.
    pub(crate) bounds: Bounds,
    /// Results for the same command by the digests of its files: one of these is not found out again.
    pub(crate) known: Vec<(String, Outcome)>,
}

/// Bounds on the processes of a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Time, s.
    pub(crate) limit_s: u64,
    /// Host memory, bytes.
    pub(crate) memory: u64,
    /// Cores.
    pub(crate) cpus: u32,
    /// Processes and threads.
    pub(crate) processes: u64,
}

/// Outcome of a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Memory that the driver held, the kind of program, and what its step is predicted to do to a GPU.
    Held {
        /// Bytes.
        bytes: u64,
        /// `None`: not recorded.
        kind: Option<ProgramKind>,
        /// `None`: work of the step is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepPrediction>,
    },
    /// It shows no need: why, as the end of a sentence.
    Failed(String),
}

/// A helper's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The digest of the program's files, once they were read.
    pub(crate) digest: Option<String>,
    /// `None`: it was ended before it came to anything.
    pub(crate) outcome: Option<Outcome>,
    /// Nothing ran: the outcome was known.
    pub(crate) again: bool,
    /// The program is none that dry runs are for: nothing ran.
    pub(crate) unfit: bool,
    /// Time that it took, ms.
    pub(crate) took_ms: u64,
}

impl Answer {
    /// One of a dry run that failed for a reason that may be gone the next time.
    fn failed(why: impl ToString) -> Self {
        Self { outcome: Some(Outcome::Failed(short(&why.to_string()))), ..Self::default() }
    }
}

/// Output of programs, shortened to a part of a sentence.
fn short(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|char| !char.is_control()).take(MAX_CHARS).collect()
}

/// A dry run that a helper makes.
#[derive(Debug)]
pub(crate) struct Running {
    helper: HeldProcess,
}

impl Running {
    /// Has it ended; its answer comes all the same.
    pub(crate) fn end(&self) {
        self.helper.signal(libc::SIGTERM);
    }
}

/// Starts a helper. `marker` is its file: locked as long as it lives, and names it to a later daemon. Its answer is
/// reported when it has ended.
///
/// # Errors
/// Nothing was begun, and nothing is reported.
pub(crate) fn start(
    marker: &Path,
    order: &Order,
    report: impl FnOnce(Answer) + Send + 'static,
) -> Result<Running, DaemonError> {
    let file = status::make(marker).map_err(|error| DaemonError::file(marker, &error))?;
    let boot = status::put(&file, BOOT_AT, &radrm_os::host::boot_id());
    boot.map_err(|error| DaemonError::file(marker, &error))?;
    let (from, to) = io::pipe().map_err(DaemonError::NoProcess)?;
    let mut child = supervisor::helper(WORD, order)
        .map_err(DaemonError::NoMemory)?
        .arg(time::word())
        .args(descriptors::word())
        .stdout(to)
        .stderr(file)
        .spawn()
        .map_err(DaemonError::NoProcess)?;
    let Some(helper) = radrm_os::ProcessIdentity::of(child.id()).and_then(HeldProcess::of) else {
        let error = io::Error::last_os_error();
        let _ = child.kill();
        let _ = child.wait();
        return Err(DaemonError::NoProcess(error));
    };
    let wait = move || report(answer(child, from));
    let thread = thread::Builder::new().name("dry run".into()).stack_size(256 << 10).spawn(wait);
    // Without the thread its pipe has no reader, so the helper ends.
    thread.map(|_| Running { helper }).map_err(DaemonError::NoThread)
}

/// Answer of a helper, once it has ended.
fn answer(mut child: Child, from: impl Read) -> Answer {
    let mut text = Vec::new();
    let _ = from.take(MAX_ANSWER).read_to_end(&mut text);
    let _ = child.wait();
    serde_json::from_slice(&text).unwrap_or_else(|_| Answer::failed("its helper was killed"))
}

/// Load and free memory of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NodeLoad {
    /// Runnable processes over the last minute for each core, in per cent.
    pub(crate) percent: u32,
    /// Host memory, bytes.
    pub(crate) free: u64,
}

impl NodeLoad {
    /// As it is now; what cannot be read is no reason to wait.
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        // A conversion from a float saturates.
        let percent = (load / cores as f64 * 100.0) as u32;
        Self { percent, free: radrm_os::host::available_memory().unwrap_or(u64::MAX) }
    }
}

/// Ends the helper that a marker names, which an earlier daemon started, and waits until it is gone; gives it if it was
/// of this boot.
pub(crate) fn left(marker: &Path) -> Option<radrm_os::ProcessIdentity> {
    let file = File::open(marker).ok()?;
    let mut text = vec![0; 16 << 10];
    let have = file.read_at(&mut text, 0).ok()?;
    let boot = serde_json::to_vec(&radrm_os::host::boot_id()).ok()?;
    if !text[..have].get(BOOT_AT as usize..)?.starts_with(&boot) {
        return None;
    }
    let supervisor = status::read(marker).ok().flatten()?.status.supervisor;
    // Its pipe is closed, so it is about to end.
    for _ in 0..200 {
        if matches!(lock::is_locked(&file), Ok(false)) {
            return supervisor;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    supervisor.and_then(HeldProcess::of).map(|held| {
        held.signal(libc::SIGKILL);
        held.identity()
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A marker that names a process as its helper, and the process.
    fn marked(dir: &Path, boot: &str) -> (PathBuf, File, radrm_os::ProcessIdentity, Child) {
        let child = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let who = radrm_os::ProcessIdentity::of(child.id()).unwrap();
        let path = dir.join("1.0");
        let file = status::make(&path).unwrap();
        status::put(&file, BOOT_AT, &boot).unwrap();
        status::put_supervisor(&file, who).unwrap();
        (path, file, who, child)
    }

    #[test]
    fn a_helper_of_another_boot_is_left_alone_and_a_gone_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file, who, mut child) = marked(dir.path(), "of another boot");
        assert_eq!(left(&path), None, "its number may be another process's");
        status::put(&file, BOOT_AT, &radrm_os::host::boot_id()).unwrap();
        // A helper that is gone holds no lock.
        drop(file);
        assert_eq!(left(&path), Some(who));
        assert!(who.lives(), "what does not hold the lock is not killed");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(left(&dir.path().join("2.0")), None);
    }

    #[test]
    fn a_helper_that_does_not_end_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _locked, who, mut child) = marked(dir.path(), &radrm_os::host::boot_id());
        assert_eq!(left(&path), Some(who), "what it began is to be ended too");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn what_a_program_wrote_becomes_one_short_line_without_control_characters() {
        assert_eq!(short("a\u{1b}[2Jb\tc\nd"), "a[2Jbc");
        assert_eq!(short(&"x".repeat(1000)).len(), 300);
        assert_eq!(short(""), "");
    }
}
