//! Talking to the control daemon through its program, `nvidia-cuda-mps-control`.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use radrm_base::reason;
use rustix::fs::{MemfdFlags, memfd_create};
use thiserror::Error;

use super::protocol::{CSV, Protocol, VERSION_VARIABLE, is_server_list};
use crate::program::target;
use radrm_os::{Process, untrusted};

/// Program that controls MPS.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";
/// Variable with the directory in which daemon and clients meet.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Variable with the directory to which the daemon writes its logs.
pub const LOG_VARIABLE: &str = "CUDA_MPS_LOG_DIRECTORY";
/// Directory in which they meet if none is named.
pub const DEFAULT_PIPE: &str = "/tmp/nvidia-mps";

/// An answer takes milliseconds; a daemon that hangs must not hang the job.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// File of the daemon's process id, in its pipe directory.
pub(super) const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// Bytes that a file of a process id may have.
const MAX_PID_FILE: usize = 64;

/// Bytes that a path of a Unix socket may have.
const SOCKET_PATH: usize = 107;

/// Variables that the daemon must not inherit: it serves all jobs of the user, so what is meant for
/// one of them is not for it. With `CUDA_VISIBLE_DEVICES` it would renumber the GPUs for everybody, and with the mark
/// of a sweep's run it would be killed with that run. The protocol is [`Control`]'s choice.
pub const NOT_FOR_DAEMON: [&str; 9] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_SM_PARTITION",
    VERSION_VARIABLE,
    "LD_PRELOAD",
    "RADRM_SEGMENT",
    "RADRM_SWEEP_RUN",
];

/// Reason that a question has no answer.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum Silence {
    #[error("{PROGRAM} is not installed")]
    NoProgram,
    #[error("{PROGRAM} {}", first_line(.0).map_or("finds no daemon".into(), |line| format!("says: {line}")))]
    NoDaemon(String),
    #[error("{PROGRAM} does not answer")]
    Hangs,
    #[error("{PROGRAM} cannot be run: {}", reason(.0))]
    Failed(io::Error),
}

fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

/// A control daemon by its pipe directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    program: PathBuf,
    pipe: PathBuf,
    log: Option<PathBuf>,
    protocol: Protocol,
    /// The MIG instance that the daemon serves; `None`: whole GPUs.
    instance: Option<String>,
}

impl Control {
    /// The daemon of a pipe directory, whether it runs or not, asked by protocol 2. `log`: where it is to write its logs.
    ///
    /// # Errors
    /// The control program is not installed.
    pub fn new(pipe: &Path, log: Option<&Path>) -> Result<Self, Silence> {
        let found = target::find(OsStr::new(PROGRAM), env::var_os("PATH").as_deref());
        let program = found.ok_or(Silence::NoProgram)?;
        let log = log.map(Path::to_owned);
        Ok(Self { program, pipe: pipe.to_owned(), log, protocol: Protocol::V2, instance: None })
    }

    /// The same, asked by another protocol.
    #[must_use]
    pub fn by(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// The same for a MIG instance, by UUID.
    #[must_use]
    pub fn of_instance(mut self, instance: Option<String>) -> Self {
        self.instance = instance;
        self
    }

    /// Protocol by which the daemon is asked.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The pipe directory.
    #[must_use]
    pub fn pipe(&self) -> &Path {
        &self.pipe
    }

    /// Asks one question of protocol 2; gives the answer's text.
    pub fn ask(&self, question: &str) -> Result<String, Silence> {
        // Not a pipe: one that the program does not read to its end would kill this process.
        let mut input = File::from(memfd_create(c"mps-input", MemfdFlags::CLOEXEC).map_err(failed)?);
        writeln!(input, "{question}")
            .and_then(|()| input.seek(SeekFrom::Start(0)))
            .map_err(Silence::Failed)?;
        let (status, text) = self.run(&[], input.into())?;
        if status.success() { Ok(text) } else { Err(Silence::NoDaemon(text)) }
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// [`Silence`]; [`Silence::NoDaemon`] has what the program said.
    pub fn start(&self) -> Result<(), Silence> {
        let words: &[&str] = match self.protocol {
            Protocol::V2 => &["-d"],
            Protocol::V3 => &["-d", "-p", "3"],
        };
        let (status, text) = self.run(words, Stdio::null())?;
        if status.success() { Ok(()) } else { Err(Silence::NoDaemon(text)) }
    }

    /// Returns true if the daemon answers.
    ///
    /// # Errors
    /// [`Silence`] of another kind than that there is none.
    pub fn is_alive(&self) -> Result<bool, Silence> {
        let answer = match self.protocol {
            Protocol::V2 => self.ask("get_server_list"),
            Protocol::V3 => self.command(&["server", "list", CSV]),
        };
        match answer {
            Ok(text) => Ok(self.protocol == Protocol::V2 || is_server_list(&text)),
            Err(Silence::NoDaemon(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Process ids of the servers: at most one per user, and none before the first client.
    pub fn servers(&self) -> Result<Vec<u32>, Silence> {
        Ok(numbers(&self.ask("get_server_list")?))
    }

    /// Process ids of all servers' clients.
    pub fn clients(&self) -> Result<Vec<u32>, Silence> {
        if self.protocol == Protocol::V3 {
            // Each row begins with the process id.
            let rows = self.command(&["client", "list", "--all", CSV])?;
            return Ok(numbers(&rows.replace(',', "\n,")));
        }
        let mut clients = Vec::new();
        for server in self.servers()? {
            clients.extend(numbers(&self.ask(&format!("get_client_list {server}"))?));
        }
        Ok(clients)
    }

    /// Ends the daemon and its servers.
    pub fn quit(&self) -> Result<(), Silence> {
        let answer = match self.protocol {
            Protocol::V2 => self.ask("quit"),
            Protocol::V3 => self.command(&["-q"]),
        };
        match answer {
            // It may be gone before the program has its answer.
            Ok(_) | Err(Silence::NoDaemon(_)) => Ok(()),
            Err(silence) => Err(silence),
        }
    }

    /// Runs one command of protocol 3; gives the answer's text.
    pub(super) fn command(&self, words: &[&str]) -> Result<String, Silence> {
        let (status, text) = self.run(words, Stdio::null())?;
        if status.success() { Ok(text) } else { Err(Silence::NoDaemon(text)) }
    }

    pub(super) fn run(&self, arguments: &[&str], input: Stdio) -> Result<(ExitStatus, String), Silence> {
        // A file in memory, not a pipe: the daemon keeps its standard streams, and a pipe that
        // is never closed has no end.
        let mut said = File::from(memfd_create(c"mps-output", MemfdFlags::CLOEXEC).map_err(failed)?);
        let stream = || said.try_clone().map(Stdio::from).map_err(Silence::Failed);
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(input).stdout(stream()?).stderr(stream()?).current_dir("/");
        for name in NOT_FOR_DAEMON {
            command.env_remove(name);
        }
        command.env(PIPE_VARIABLE, &self.pipe).env("RADRM_DISABLE", "1");
        if self.protocol == Protocol::V3 {
            command.env(VERSION_VARIABLE, "3");
        }
        if let Some(instance) = &self.instance {
            command.env("CUDA_VISIBLE_DEVICES", instance);
        }
        match &self.log {
            Some(log) => command.env(LOG_VARIABLE, log),
            None => &mut command,
        };
        // SAFETY: only async-signal-safe system calls on the child itself. It leaves the terminal's
        // session, so that Ctrl-C does not end the daemon, and takes no file along: a pipe that it
        // kept open would never end for its reader.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                let _ = radrm_os::descriptors::close_at_exec();
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Silence::NoProgram,
            _ => Silence::Failed(error),
        })?;
        let give_up = Instant::now() + ANSWER_TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(Silence::Failed)? {
                break status;
            }
            if Instant::now() >= give_up {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Silence::Hangs);
            }
            thread::sleep(Duration::from_millis(2));
        };
        let mut text = Vec::new();
        said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_end(&mut text)).map_err(Silence::Failed)?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// The daemon of a pipe directory by its file of its process id: for machines without the program.
///
/// The file may be any user's: no pipe is waited for, and nothing endless is read. A file system that does not
/// answer still holds up its client.
#[must_use]
pub fn has_living_daemon(pipe: &Path) -> bool {
    let read = || {
        let text = untrusted::read(&pipe.join(PID_FILE), MAX_PID_FILE).ok()?;
        String::from_utf8(text).ok()?.trim().parse::<u32>().ok()
    };
    read().is_some_and(|pid| Process(pid).exists())
}

/// The daemon of a pipe directory by the kernel's list of sockets: for who must not follow a path that a user
/// else chose. One that is bound under another spelling of the path, or in another network namespace, is not seen.
#[must_use]
pub fn has_bound_daemon(pipe: &Path) -> bool {
    is_bound(pipe, &radrm_os::host::unix_sockets())
}

/// Returns true if the kernel's list has the socket of a pipe directory.
fn is_bound(pipe: &Path, sockets: &str) -> bool {
    // Without doubled separators and single dots; lossy as the list is.
    let socket: PathBuf = pipe.join("control").components().collect();
    let socket = format!(" {}", socket.to_string_lossy());
    sockets.lines().any(|line| line.ends_with(&socket))
}

/// Returns true if a pipe directory's path leaves room for the socket. Beyond that the daemon ends without saying
/// why.
#[must_use]
pub fn path_fits(pipe: &Path) -> bool {
    pipe.join("control").as_os_str().len() <= SOCKET_PATH
}

fn failed(error: rustix::io::Errno) -> Silence {
    Silence::Failed(error.into())
}

/// The lines that are numbers.
fn numbers(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_program_is_asked_by_its_own_protocol_whatever_a_job_names() {
        // With 3 it takes `server list` in the place of `get_server_list`.
        assert!(NOT_FOR_DAEMON.contains(&"CUDA_MPS_PROTOCOL_VERSION"));
    }

    #[test]
    fn a_list_of_processes_is_its_lines_that_are_numbers() {
        assert_eq!(numbers("12\n 34 \nServer not found\n\n"), [12, 34]);
    }

    #[test]
    fn a_path_without_room_for_the_socket_is_found() {
        assert!(path_fits(Path::new("/dev/shm/radrm-1000/mps")));
        assert!(!path_fits(Path::new(&format!("/{}", "x".repeat(100)))));
    }

    #[test]
    fn a_daemon_is_known_by_a_living_process() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_living_daemon(dir.path()));
        let file = dir.path().join("nvidia-cuda-mps-control.pid");
        std::fs::write(&file, format!("{}\n", std::process::id())).unwrap();
        assert!(has_living_daemon(dir.path()));
        std::fs::write(&file, "4194305\n").unwrap();
        assert!(!has_living_daemon(dir.path()));
    }
    #[test]
    fn odd_files_in_a_pipe_directory_do_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nvidia-cuda-mps-control.pid");
        // Waiting for the end of a pipe, or of zeros, would never end.
        for device in [None, Some("/dev/zero")] {
            let _ = std::fs::remove_file(&file);
            match device {
                None => fifo(&file),
                Some(device) => std::os::unix::fs::symlink(device, &file).unwrap(),
            }
            let path = dir.path().to_owned();
            let (to, answer) = std::sync::mpsc::channel();
            thread::spawn(move || to.send(has_living_daemon(&path)));
            assert_eq!(answer.recv_timeout(Duration::from_secs(30)), Ok(false), "{device:?}");
        }
    }

    fn fifo(path: &Path) {
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a plain system call; the path ends with zero.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
    }

    #[test]
    fn a_daemon_is_known_by_its_socket_without_a_look_at_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_bound_daemon(dir.path()));
        let daemon = std::os::unix::net::UnixListener::bind(dir.path().join("control")).unwrap();
        assert!(has_bound_daemon(dir.path()) && has_bound_daemon(&dir.path().join("./")));
        assert!(!has_bound_daemon(&dir.path().join("control")));
        drop(daemon);
        assert!(!has_bound_daemon(dir.path()), "its file is still there");
        let list =
            "Num RefCount Protocol\n00: 00000002 00000000 00010000 0001 01 17 /tmp/nvidia-mps/control\n";
        assert!(is_bound(Path::new(DEFAULT_PIPE), list) && !is_bound(Path::new("/nvidia-mps"), list));
    }
}
