//! Processes that cannot outlive their watchdog.
//!
//! Every process is the leader of a group of its own. When its time is up the whole group is killed
//! and the test fails: a hang never blocks the suite.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use radrm_os::Process;

use crate::rig::PATIENCE;

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the process.
    pub status: ExitStatus,
    /// Standard output that the test has not read yet.
    pub stdout: String,
    /// Standard error of the process.
    pub stderr: String,
}

impl Ended {
    /// Asserts that the process ended with 0.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(
            self.status.success(),
            "ended with {:?} (signal {:?})\nstdout: {}\nstderr: {}",
            self.status.code(),
            self.status.signal(),
            self.stdout,
            self.stderr
        );
        self
    }
}

/// A process under way.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    cancel: Sender<()>,
    timed_out: Arc<AtomicBool>,
    what: String,
}

/// Kills a whole process group.
pub fn kill_group(leader: u32) {
    // SAFETY: a plain system call; a negative number means the group.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// Returns true if a process of this group runs: one that has ended and was not waited for does not.
fn is_group_running(leader: u32) -> bool {
    Process::all().filter_map(Process::stat).any(|stat| stat.group == leader && !stat.is_dead())
}

impl Running {
    /// Starts a process with pipes at its three standard streams and `seconds` to live.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command, seconds: u64) -> Self {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("{:?}", command.get_program());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        let pid = child.id();
        let mut pipe = child.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let (cancel, cancelled) = channel();
        let timed_out = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&timed_out);
        std::thread::spawn(move || {
            if cancelled.recv_timeout(Duration::from_secs(seconds)).is_err()
                && !flag.swap(true, Ordering::SeqCst)
            {
                kill_group(pid);
            }
        });
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout, stderr: Some(stderr), cancel, timed_out, what }
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads its output up to the line `ready PID`, and returns that id.
    ///
    /// # Panics
    /// If the process ends or hangs before.
    #[track_caller]
    pub fn until_ready(&mut self) -> u32 {
        let line = self.line();
        match line.strip_prefix("ready ").and_then(|n| n.trim().parse().ok()) {
            Some(pid) => pid,
            None => {
                // One that is about to end says why.
                let began = Instant::now();
                while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(5) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                kill_group(self.pid());
                let stderr = self.stderr.take().map(|s| s.join().unwrap_or_default());
                panic!("{}: said {line:?} instead of being ready: {stderr:?}", self.what)
            }
        }
    }

    /// As [`Running::until_ready`], after one line that must be this one.
    ///
    /// # Panics
    /// If the line is another, or the process ends or hangs before.
    #[track_caller]
    pub fn until_ready_after(&mut self, expected: &str) -> u32 {
        let line = self.line();
        assert_eq!(line.trim_end(), expected);
        self.until_ready()
    }

    /// Reads one line of its output; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.stdout.read_line(&mut line);
        line
    }

    /// Reads its output up to a byte, which is left out; empty at the end.
    pub fn until(&mut self, end: u8) -> String {
        let mut part = Vec::new();
        let _ = self.stdout.read_until(end, &mut part);
        part.pop_if(|last| *last == end);
        String::from_utf8_lossy(&part).into_owned()
    }

    /// Lets a waiting process go on.
    pub fn go_on(&mut self) {
        self.say("\n");
    }

    /// Writes to its standard input.
    pub fn say(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            // A process that has ended meanwhile shows in its status.
            let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
        }
    }

    /// Writes a line to its standard input, and reads the line that answers it.
    pub fn ask(&mut self, question: &str) -> String {
        self.say(&format!("{question}\n"));
        self.line().trim().to_owned()
    }

    /// Kills it and all that it started in its group, and waits until none of them runs: a process that was killed
    /// may hold what it has for some time yet.
    ///
    /// # Panics
    /// If one of them does not end.
    pub fn kill(self) {
        let leader = self.pid();
        kill_group(leader);
        drop(self);
        let began = Instant::now();
        while is_group_running(leader) {
            assert!(began.elapsed() < Duration::from_secs(PATIENCE), "a killed process does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns true if it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call on a child that has not been waited for.
        unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If its time was up.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        drop(self.stdin.take());
        let mut stdout = Vec::new();
        let _ = self.stdout.read_to_end(&mut stdout);
        let stderr = self.stderr.take().and_then(|s| s.join().ok()).unwrap_or_default();
        let status = self.child.wait().expect("wait");
        let ended = Ended { status, stdout: String::from_utf8_lossy(&stdout).into_owned(), stderr };
        let hung = self.timed_out.swap(true, Ordering::SeqCst);
        let _ = self.cancel.send(());
        assert!(!hung, "{} did not end in time: {ended:?}", self.what);
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.cancel.send(());
        if let Ok(None) = self.child.try_wait() {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// Runs a process to its end, with `seconds` to live.
///
/// # Panics
/// If its time was up.
#[track_caller]
pub fn run(command: Command, seconds: u64) -> Ended {
    Running::start(command, seconds).end()
}
