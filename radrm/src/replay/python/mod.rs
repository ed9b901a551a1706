//! Functions of a user's Python file: a `python3` of the user's own calls them, one line of JSON after the other.

mod policy;
mod predictor;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use nix::libc;
use radrm_base::reason;
use radrm_scheduler_core::PlanError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(super) use policy::PythonPolicy;
pub(super) use predictor::PythonPredictor;

/// The program that the child runs: nothing has to be installed for it.
const BRIDGE: &str = include_str!("bridge.py");

/// Function of the file that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Policy,
    Predictor,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Predictor => "predictor",
        }
    }

    fn function(self) -> &'static str {
        match self {
            Self::Policy => "place",
            Self::Predictor => "speeds",
        }
    }
}

/// Problem of a Python file, without its name.
#[derive(Debug, Error)]
pub(super) enum PythonError {
    #[error("python3 cannot be started: {}", reason(.0))]
    Start(io::Error),
    #[error("{}", place(file.as_deref(), *line, text))]
    Raised { file: Option<String>, line: Option<u64>, text: String },
    #[error("{0}() has not returned for {1} s (--call-limit)")]
    Endless(&'static str, f64),
    #[error("its program has not been read after {0} s (--call-limit)")]
    EndlessFile(f64),
    #[error("python3 ended before {0}() returned ({1})")]
    Ended(&'static str, String),
    #[error("its answer is not what radrm asked for: {0}")]
    Answer(serde_json::Error),
}

/// `line 7: ZeroDivisionError: division by zero`
fn place(file: Option<&str>, line: Option<u64>, text: &str) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{file}, line {line}: {text}"),
        (None, Some(line)) => format!("line {line}: {text}"),
        _ => text.to_owned(),
    }
}

impl From<PythonError> for PlanError {
    fn from(error: PythonError) -> Self {
        Self(error.to_string())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<A> {
    Problem { error: Problem },
    Given(A),
}

#[derive(Deserialize)]
struct Problem {
    file: String,
    line: Option<u64>,
    text: String,
}

#[derive(Deserialize)]
struct Ready {}

/// A Python file whose function can be called. Its program ends with this value.
#[derive(Debug)]
struct Python {
    file: PathBuf,
    role: Role,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<io::Result<String>>,
    limit: Duration,
    calls: u64,
}

impl Python {
    /// Starts the interpreter, which reads the file. `limit`: for the file, and for each call.
    fn start(file: &Path, role: Role, limit: Duration) -> Result<Self, PythonError> {
        let mut command = Command::new("python3");
        command.args(["-c", BRIDGE]).arg(file).arg(role.name());
        // Sets and dictionaries of two replays have one order.
        command.env("PYTHONHASHSEED", "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        let own = std::process::id();
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // A function that never returns ends with this program, however that ends.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match libc::getppid() == own.cast_signed() {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
                }
            })
        };
        let mut child = command.spawn().map_err(PythonError::Start)?;
        let lost = || PythonError::Start(io::ErrorKind::BrokenPipe.into());
        let requests = child.stdin.take().ok_or_else(lost)?;
        let stdout = child.stdout.take().ok_or_else(lost)?;
        let (send, answers) = sync_channel(1);
        // It ends with the child's output.
        thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| send.send(line)));
        let mut python = Self { file: file.to_owned(), role, child, requests, answers, limit, calls: 0 };
        match python.answer::<Ready>() {
            Err(PythonError::Endless(_, seconds)) => Err(PythonError::EndlessFile(seconds)),
            done => done.map(|Ready {}| python),
        }
    }

    /// Calls the function.
    fn call<A: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<A, PythonError> {
        self.calls += 1;
        let mut line = serde_json::to_vec(request).map_err(PythonError::Answer)?;
        line.push(b'\n');
        // One that has ended says so by the end of its answers.
        let _ = self.requests.write_all(&line);
        self.answer()
    }

    fn answer<A: DeserializeOwned>(&mut self) -> Result<A, PythonError> {
        let line = match self.answers.recv_timeout(self.limit) {
            Ok(Ok(line)) => line,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                let how = self.child.wait().map_or_else(|error| reason(&error), |status| status.to_string());
                return Err(PythonError::Ended(self.role.function(), how));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(PythonError::Endless(self.role.function(), self.limit.as_secs_f64()));
            }
        };
        match serde_json::from_str(&line).map_err(PythonError::Answer)? {
            Answer::Given(answer) => Ok(answer),
            Answer::Problem { error: Problem { file, line, text } } => {
                let file = Some(file).filter(|file| Path::new(file) != self.file);
                Err(PythonError::Raised { file, line, text })
            }
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // One that waits for a request ends by itself; one that is in a function does not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
