//! The administrator's programs before and after each attempt: prolog and epilog.
//!
//! Both run as the daemon's user, which is root on a node that serves several users. The supervisor runs the prolog
//! before it becomes the job's user. The epilog has a process of its own, so that it runs although the supervisor was
//! killed, and goes on although the daemon is. Its marker file makes it run once for each attempt: the file is locked
//! while the process lives, and says from before the program's first instruction that it was begun.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use radrm_base::{Millis, reason};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::supervisor;

/// The word on the command line that makes `radrmd` run an epilog.
pub(crate) const WORD: &str = "--run-epilog";

/// Permission for others than the owner to write, and the bit that keeps them from replacing files of a directory.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The programs, as the configuration names them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Hooks {
    /// Runs before each attempt; empty: none.
    pub(crate) prolog: PathBuf,
    /// Runs after each attempt; empty: none.
    pub(crate) epilog: PathBuf,
    /// Each is killed after this, s.
    pub(crate) timeout_s: u32,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { prolog: PathBuf::new(), epilog: PathBuf::new(), timeout_s: 60 }
    }
}

impl Hooks {
    /// Rejects programs that another user could change.
    pub(crate) fn check(&self) -> Result<(), DaemonError> {
        for (hook, program) in [("prolog", &self.prolog), ("epilog", &self.epilog)] {
            let program = program.clone();
            if let Some(what) = fault(&program).filter(|_| !program.as_os_str().is_empty()) {
                return Err(DaemonError::HookRejected { hook, program, what });
            }
        }
        match self.timeout_s {
            0 => Err(DaemonError::HookWithoutTime),
            _ => Ok(()),
        }
    }

    /// Returns true if an attempt may leave something behind even before its program begins.
    pub(crate) fn is_any(&self) -> bool {
        self.prolog.as_os_str().len() + self.epilog.as_os_str().len() > 0
    }

    /// The longest time that a prolog takes.
    pub(crate) fn prolog_timeout(&self) -> Millis {
        match self.prolog.as_os_str().is_empty() {
            true => Millis::ZERO,
            false => Millis::from_secs(self.timeout_s.into()),
        }
    }

    /// The call of a prolog, if there is one.
    pub(crate) fn prolog(&self, environment: Vec<String>) -> Option<Call> {
        self.call(&self.prolog, environment)
    }

    /// The call of an epilog, if there is one.
    pub(crate) fn epilog(&self, environment: Vec<String>) -> Option<Call> {
        self.call(&self.epilog, environment)
    }

    fn call(&self, program: &Path, environment: Vec<String>) -> Option<Call> {
        let timeout_s = self.timeout_s;
        (!program.as_os_str().is_empty()).then(|| Call {
            program: program.to_owned(),
            environment,
            timeout_s,
        })
    }
}

/// Fault of a program, as the end of a sentence. It and all directories above it must belong to root or to this
/// process's user, and no other user may write there.
fn fault(program: &Path) -> Option<String> {
    if !program.is_absolute() {
        return Some(" is not absolute".to_owned());
    }
    let own = rustix::process::geteuid().as_raw();
    program.ancestors().find_map(|place| {
        let found = match fs::symlink_metadata(place) {
            Ok(found) => found,
            Err(error) => return Some(format!(": {}", reason(&error))),
        };
        let is_kept = place != program && found.mode() & STICKY != 0;
        let what = if found.is_symlink() {
            " is a link"
        } else if ![0, own].contains(&found.uid()) {
            " belongs to another user"
        } else if found.mode() & OTHERS_WRITE != 0 && !is_kept {
            " can be written by other users"
        } else if place == program && (!found.is_file() || found.mode() & 0o111 == 0) {
            " is no program"
        } else {
            return None;
        };
        Some(if place == program { what.to_owned() } else { format!(": {}{what}", place.display()) })
    })
}

/// One run of such a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    program: PathBuf,
    /// Its whole environment, `NAME=value`.
    environment: Vec<String>,
    timeout_s: u32,
}

impl Call {
    /// Runs it, and waits for its end. What it writes goes to `log`.
    ///
    /// # Errors
    /// How it failed, as the end of a sentence.
    pub(crate) fn run(&self, log: &File) -> Result<(), DaemonError> {
        let failed = DaemonError::HookNotRun;
        let mut child = Command::new(&self.program)
            .env_clear()
            .envs(self.environment.iter().filter_map(|line| line.split_once('=')))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log.try_clone().map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let limit = Duration::from_secs(self.timeout_s.into());
        if !ends_within(child.id(), limit) {
            // SAFETY: a plain system call; the leader of the group was not waited for.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            let _ = child.wait();
            return Err(DaemonError::HookTimeout(self.timeout_s));
        }
        let status = child.wait().map_err(failed)?;
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(DaemonError::HookExited(code)),
            (None, signal) => Err(DaemonError::HookKilled(signal.unwrap_or(0))),
        }
    }
}

/// Waits for a child; false if it is still there after this time.
fn ends_within(pid: u32, limit: Duration) -> bool {
    let Ok(handle) = radrm_os::pidfd::open(pid) else { return true };
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut fds, left.try_into().ok().as_ref()) {
            Ok(0) if left.is_zero() => return false,
            Ok(1..) => return true,
            _ => {}
        }
    }
}

/// Text of the marker of an epilog that was begun, and the prefix of what follows if it failed.
const BEGUN: &str = "begun\n";
const FAILED: &str = "failed: ";

/// Does the work of an epilog's process. Standard input is the call, standard output the marker.
pub(crate) fn keep() -> ExitCode {
    let mut text = String::new();
    let call = io::stdin().read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let marker = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let log = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let (Some(call), Ok(mut marker), Ok(log)) = (call, marker, log) else { return ExitCode::FAILURE };
    let call: Call = call;
    let _ = rustix::process::setsid();
    supervisor::default_signals();
    // Where this is not on disk the program does not begin: it would run again after a power cut.
    if marker.write_all(BEGUN.as_bytes()).and_then(|()| marker.sync_all()).is_err() {
        return ExitCode::FAILURE;
    }
    if let Err(why) = call.run(&log) {
        let _ = marker.write_all(format!("{FAILED}{why}\n").as_bytes());
    }
    ExitCode::SUCCESS
}

/// Runs the epilog of an attempt unless that was begun before, and reports its end, also that of one which an earlier
/// daemon began.
///
/// # Errors
/// Nothing was begun, and nothing is reported.
pub(crate) fn start(
    marker: &Path,
    call: &Call,
    report: impl FnOnce(Result<(), DaemonError>) + Send + 'static,
) -> Result<(), DaemonError> {
    let failed = DaemonError::HookNotStarted;
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(marker)
    };
    let file = open().map_err(failed)?;
    let is_free = flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok();
    let is_new = file.metadata().map_err(failed)?.len() == 0;
    let mut child = None;
    if is_free && is_new {
        let started = supervisor::helper(WORD, call).and_then(|mut command| command.stdout(file).spawn());
        child = Some(started.map_err(failed)?);
    } else {
        drop(file);
    }
    // Of its own, so the lock is taken when the process that has it is gone.
    let mut file = open().map_err(failed)?;
    let wait = move || {
        if let Some(child) = &mut child {
            let _ = child.wait();
        }
        let mut text = String::new();
        let read = flock(file.as_fd(), FlockOperation::LockExclusive).map_err(io::Error::from);
        let _ = read.and_then(|()| file.read_to_string(&mut text));
        drop(file);
        report(outcome(&text));
    };
    let thread = thread::Builder::new().name("epilog".into()).stack_size(128 << 10).spawn(wait);
    thread.map(|_| ()).map_err(failed)
}

/// Result that a marker shows.
fn outcome(text: &str) -> Result<(), DaemonError> {
    match text.strip_prefix(BEGUN) {
        None => Err(DaemonError::HookNotBegun),
        Some(rest) => match rest.trim_end().strip_prefix(FAILED) {
            Some(why) => Err(DaemonError::HookFailed(why.to_owned())),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("hook");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn call(program: &Path) -> Call {
        Call { program: program.to_owned(), environment: vec!["RADRM_JOB=7".into()], timeout_s: 1 }
    }

    #[test]
    fn a_program_that_others_can_change_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "true");
        let check = |path: &Path| Hooks { prolog: path.to_owned(), ..Hooks::default() }.check();
        check(&path).unwrap();
        Hooks::default().check().unwrap();
        let wrong = |path: &Path, part: &str| {
            let error = check(path).unwrap_err().to_string();
            assert!(error.starts_with("hooks.prolog: ") && error.contains(part), "{error}");
            assert_eq!(error.lines().count(), 1);
        };
        wrong(Path::new("hook"), "is not absolute");
        wrong(&dir.path().join("none"), "o such file");
        wrong(dir.path(), "is no program");
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&path, 0o775);
        wrong(&path, "written by other users");
        mode(&path, 0o644);
        wrong(&path, "is no program");
        mode(&path, 0o755);
        mode(dir.path(), 0o777);
        wrong(&path, "written by other users");
        mode(dir.path(), 0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        wrong(&link, "is a link");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            wrong(&path, "belongs to another user");
        }
    }

    #[test]
    fn how_a_program_failed_is_reported_and_one_that_hangs_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let run = |text: &str| call(&script(dir.path(), text)).run(&log).map_err(|why| why.to_string());
        assert_eq!(run("echo job $RADRM_JOB, $HOME"), Ok(()));
        assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "job 7,\n");
        assert_eq!(run("exit 3"), Err("ended with exit code 3".to_owned()));
        assert_eq!(run("kill -9 $$"), Err("was killed by SIGKILL".to_owned()));
        assert_eq!(run("sleep 1000"), Err("was killed after 1 s, its limit".to_owned()));
    }

    #[test]
    fn an_epilog_that_was_begun_is_not_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("marker");
        let begin = |marker: &Path| {
            let (to, from) = channel();
            let report = move |result| drop(to.send(result));
            start(marker, &call(Path::new("/nonexistent")), report).unwrap();
            from
        };
        let reported = |marker: &Path| {
            let result = begin(marker).recv_timeout(Duration::from_secs(60)).unwrap();
            result.map_err(|why: DaemonError| why.to_string())
        };
        // Its process was killed while the program ran.
        fs::write(&marker, BEGUN).unwrap();
        assert_eq!(reported(&marker), Ok(()));
        fs::write(&marker, format!("{BEGUN}{FAILED}ended with exit code 3\n")).unwrap();
        assert_eq!(reported(&marker), Err("ended with exit code 3".to_owned()));
        // One that runs is waited for.
        let running = File::open(&marker).unwrap();
        flock(running.as_fd(), FlockOperation::NonBlockingLockExclusive).unwrap();
        let from = begin(&marker);
        assert!(from.recv_timeout(Duration::from_millis(200)).is_err());
        drop(running);
        assert!(from.recv_timeout(Duration::from_secs(60)).is_ok());
    }
}
