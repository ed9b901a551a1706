//! A stand-in for `nvidia-cuda-mps-control`, for machines without MPS.
//!
//! It speaks the documented commands of the control daemon over the socket `control` in the pipe
//! directory, keeps the settings that they make, and counts as clients what would be clients of
//! the real one: living processes of this user whose environment names its pipe directory and that
//! have a `libcuda` mapped. It serves no GPU and enforces nothing: what MPS does with a limit, only a real GPU can
//! show. Its words are those of the genuine daemon: a value out of range is ignored without a word, an unknown command is
//! an answer like others, and a user who neither started it nor is root reads its settings only (`limits/mps_genuine.rs`
//! compares the two).
//!
//! `RADRM_MPS_STANDIN=mute` lets the daemon accept questions and never answer, `=dead` lets it end
//! right after its start. `=v3` and `=v3-strict` are programs that have protocol 3, too ([`third`]).

mod third;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

const ABSENT: &str = "Cannot find MPS control daemon process";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["-p", "3", "-h"] if third::is_offered() => third::help(),
        [] if !third::is_asked() => interactive(),
        ["-d"] => detach(&[]),
        ["-d", "-p", "3"] if third::is_offered() => detach(&["-p", "3"]),
        ["-f"] => daemon(),
        ["-f", "-p", "3"] if third::is_offered() => third::daemon(),
        ["--server"] => server(),
        [module, ..] if third::is_offered() && (!module.starts_with('-') || *module == "-q") => {
            third::ask(&words)
        }
        _ => {
            println!("usage: nvidia-cuda-mps-control [-d | -f]");
            ExitCode::FAILURE
        }
    }
}

/// A server is a process of its own whose only purpose is to be there, as long as its daemon is.
fn server() -> ExitCode {
    let daemon = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == daemon {
        std::thread::sleep(Duration::from_millis(200));
    }
    ExitCode::SUCCESS
}

fn directory(variable: &str, usual: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| PathBuf::from(usual), PathBuf::from)
}

fn pipe() -> PathBuf {
    directory("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
}

/// The front end: each line is a command, each answer is printed.
fn interactive() -> ExitCode {
    let Ok(stream) = UnixStream::connect(pipe().join("control")) else {
        println!("{ABSENT}");
        return ExitCode::FAILURE;
    };
    let mut answers = BufReader::new(stream.try_clone().expect("socket"));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if writeln!(&stream, "{line}").is_err() {
            println!("{ABSENT}");
            return ExitCode::FAILURE;
        }
        let mut length = String::new();
        if answers.read_line(&mut length).is_err() || length.is_empty() {
            println!("{ABSENT}");
            return ExitCode::FAILURE;
        }
        let mut text = vec![0; length.trim().parse().expect("length of an answer")];
        answers.read_exact(&mut text).expect("answer");
        print!("{}", String::from_utf8_lossy(&text));
    }
    ExitCode::SUCCESS
}

/// Starts the daemon and returns when it listens.
#[allow(
    clippy::zombie_processes,
    reason = "the daemon outlives this process, whose children init takes over"
)]
fn detach(options: &[&str]) -> ExitCode {
    if UnixStream::connect(pipe().join("control")).is_ok() {
        println!("An instance of this daemon is already running");
        return ExitCode::FAILURE;
    }
    let exe = env::current_exe().expect("own path");
    let mut child = Command::new(exe).arg("-f").args(options).stdin(Stdio::null()).spawn().expect("daemon");
    for _ in 0..500 {
        if UnixStream::connect(pipe().join("control")).is_ok() {
            return ExitCode::SUCCESS;
        }
        if let Ok(Some(_)) = child.try_wait() {
            // The real one too says that it has started and ends later.
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ExitCode::FAILURE
}

/// A share as the daemon prints it.
fn percentage(text: &str) -> Option<String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value <= 100.0)?;
    Some(format!("{value:.1}"))
}

/// A limit as the daemon prints it: the digits at its front, in MiB if no `G` follows, and whole GiB from 1 GiB on. What
/// begins with no digit is no limit.
fn memory(text: &str) -> String {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = if text[digits..].starts_with('G') { 1024 } else { 1 };
    match text[..digits].parse::<u64>().unwrap_or(0) * unit {
        0 => String::new(),
        mib @ 1..1024 => format!("{mib}M"),
        mib => format!("{}G", mib / 1024),
    }
}

struct Daemon {
    pipe: PathBuf,
    log: fs::File,
    server: Option<Child>,
    settings: BTreeMap<String, String>,
}

fn daemon() -> ExitCode {
    let pipe = pipe();
    let log = directory("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
    let behaviour = env::var("RADRM_MPS_STANDIN").unwrap_or_default();
    if behaviour == "dead" {
        return ExitCode::FAILURE;
    }
    for directory in [&pipe, &log] {
        let _ = fs::create_dir_all(directory);
    }
    // Every user may ask, from the moment at which the socket has its name.
    let (new, socket) = (pipe.join("control.new"), pipe.join("control"));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).expect("control socket");
    let pid_file = pipe.join("nvidia-cuda-mps-control.pid");
    fs::write(&pid_file, format!("{}\n", std::process::id())).expect("pid file");
    for file in [&new, &pid_file] {
        fs::set_permissions(file, Permissions::from_mode(0o666)).expect("permissions");
    }
    fs::rename(&new, &socket).expect("control socket");
    // A test that fails takes its directory along, and has to take the daemon too.
    let home = pipe.clone();
    std::thread::spawn(move || {
        while home.exists() {
            std::thread::sleep(Duration::from_millis(200));
        }
        std::process::exit(0);
    });
    let log = fs::OpenOptions::new().create(true).append(true).open(log.join("control.log")).expect("log");
    let mut daemon = Daemon { pipe, log, server: None, settings: BTreeMap::new() };
    // What the daemon's environment says is every server's default.
    for (setting, variable) in [
        ("default_active_thread_percentage", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ("visible_devices", "CUDA_VISIBLE_DEVICES"),
        ("preload", "LD_PRELOAD"),
    ] {
        if let Ok(value) = env::var(variable) {
            daemon.settings.insert(setting.to_owned(), value);
        }
    }
    for stream in listener.incoming().map_while(Result::ok) {
        if behaviour == "mute" {
            // The question stays open.
            std::mem::forget(stream);
            continue;
        }
        let reader = BufReader::new(stream.try_clone().expect("socket"));
        let asker = user_of(&stream);
        for line in reader.lines().map_while(Result::ok) {
            let _ = writeln!(daemon.log, "Cmd:{line}");
            let refusal = refusal(&line, asker);
            let quit = refusal.is_none() && line.split_whitespace().next() == Some("quit");
            let text = refusal.unwrap_or_else(|| if quit { String::new() } else { daemon.answer(&line) });
            let _ = write!(&stream, "{}\n{text}", text.len());
            if quit {
                daemon.end();
                return ExitCode::SUCCESS;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The user on the other side of a socket, by the kernel.
fn user_of(stream: &UnixStream) -> u32 {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a socket, and a place of the size that is given.
    unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        );
    }
    peer.uid
}

/// Reply to a user who may not do this; `None` if the user may.
fn refusal(line: &str, asker: u32) -> Option<String> {
    // SAFETY: a plain system call.
    let own = unsafe { libc::getuid() };
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        _ if asker == 0 => None,
        ["start_server", "-uid", user, ..] if user.parse() != Ok(asker) => Some(format!(
            "Insufficient privileges for UID {asker}. Only the root user may start server for another user.\n"
        )),
        _ if asker == own => None,
        ["quit", ..] => Some("Not enough privilege to execute quit command\n".to_owned()),
        // Its spelling is the genuine daemon's.
        [command, ..] if command.starts_with("set_default_") => Some(format!(
            "Insufficient privileges for UID {asker}. Control deamon settings can only be modified by the user started it \
             or by the root user.\n"
        )),
        _ => None,
    }
}

impl Daemon {
    fn answer(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let server = self.server_pid();
        let command = words.first().copied().unwrap_or("");
        // Commands about a server: its process id comes first.
        let of_server = command.starts_with("get_client")
            || command.starts_with("get_server_status")
            || command.starts_with("terminate_client")
            || command.contains("et_active_thread")
            || command.contains("et_device_pinned");
        let named = words.get(1).and_then(|pid| pid.parse::<u32>().ok());
        if of_server && (server.is_none() || named != server) {
            let absent = format!("Server {} not found\n", words.get(1).unwrap_or(&"0"));
            return match command {
                "terminate_client" => format!("{absent}{}!\n1\n", absent.trim_end()),
                _ => absent,
            };
        }
        match words.as_slice() {
            ["get_server_list", ..] => server.map(|pid| format!("{pid}\n")).unwrap_or_default(),
            ["start_server", "-uid", _] => {
                self.start_server();
                String::new()
            }
            ["get_server_status", _] => "ACTIVE\n".into(),
            ["get_client_list", _] => self.clients().iter().map(|pid| format!("{pid}\n")).collect(),
            ["get_device_client_list"] | ["get_device_client_list", _] => {
                self.clients().iter().map(|pid| format!("Device 0: {pid}\n")).collect()
            }
            ["ps"] if server.is_none() => "Server not found\n".into(),
            ["ps", "-p", pid] if pid.parse().ok() != server => {
                format!("Server {pid} not found\nServer {pid} not found\n\n")
            }
            ["ps", ..] => {
                let head = "PID       ID    SERVER    DEVICE             NAMESPACE COMMAND\n".to_owned();
                let row = |pid: &u32| {
                    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                    format!("{pid} 1 {} GPU-0 4026531836 {}\n", server.unwrap_or(0), name.trim())
                };
                head + &self.clients().iter().map(row).collect::<String>()
            }
            ["set_default_active_thread_percentage", value, ..] => {
                self.set("default_active_thread_percentage", percentage(value));
                self.setting("default_active_thread_percentage", "100.0")
            }
            ["set_active_thread_percentage", _, value, ..] => {
                self.set("active_thread_percentage", percentage(value));
                self.setting("active_thread_percentage", "100.0")
            }
            ["set_default_client_priority", value] => {
                if !["0", "1"].contains(value) {
                    return "Invalid priority value - must be 0 or 1!\n".into();
                }
                self.set("default_client_priority", Some((*value).into()));
                String::new()
            }
            ["get_default_client_priority"] => self.setting("default_client_priority", "0"),
            ["set_default_device_pinned_mem_limit", device, value] => {
                self.set(&format!("default_device_pinned_mem_limit {device}"), Some(memory(value)));
                String::new()
            }
            ["set_device_pinned_mem_limit", _, device, value] => {
                self.set(&format!("device_pinned_mem_limit {device}"), Some(memory(value)));
                String::new()
            }
            // Without a value there is no limit any more; the device is the number at the front.
            ["set_default_device_pinned_mem_limit", device] => {
                let number = device.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
                self.set(&format!("default_device_pinned_mem_limit {number}"), Some(String::new()));
                String::new()
            }
            ["get_active_thread_percentage", _] => self.setting("active_thread_percentage", "100.0"),
            ["get_device_pinned_mem_limit", _, device] => {
                self.setting(&format!("device_pinned_mem_limit {device}"), "")
            }
            ["get_default_active_thread_percentage"] => {
                self.setting("default_active_thread_percentage", "100.0")
            }
            ["get_default_device_pinned_mem_limit", device] => {
                self.setting(&format!("default_device_pinned_mem_limit {device}"), "")
            }
            ["terminate_client", _, _] => String::new(),
            // Not of the genuine one: what of its own environment reached the daemon.
            ["standin_environment", name] => self.setting(name, "").trim_end().to_owned() + "\n",
            _ => format!("Unknown command \"{command}\"\n"),
        }
    }

    /// Keeps a value; none leaves the former one.
    fn set(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.settings.insert(name.to_owned(), value);
        }
    }

    /// A setting as a line, or nothing at all.
    fn setting(&self, name: &str, usual: &str) -> String {
        match self.settings.get(name).map_or(usual, String::as_str) {
            "" => String::new(),
            value => format!("{value}\n"),
        }
    }

    /// The server; the first client starts it.
    fn server_pid(&mut self) -> Option<u32> {
        if self.server.is_none() && !self.clients().is_empty() {
            self.start_server();
        }
        self.server.as_ref().map(Child::id)
    }

    fn start_server(&mut self) {
        if self.server.is_none() {
            let exe = env::current_exe().expect("own path");
            self.server = Command::new(exe).arg("--server").stdin(Stdio::null()).spawn().ok();
        }
    }

    fn clients(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| self.is_client(&Path::new("/proc").join(pid.to_string()))).collect()
    }

    fn is_client(&self, process: &Path) -> bool {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let named = environment.split(|byte| *byte == 0).any(|entry| {
            entry
                .strip_prefix(b"CUDA_MPS_PIPE_DIRECTORY=")
                .is_some_and(|value| Path::new(OsStr::from_bytes(value)) == self.pipe)
        });
        let maps = || fs::read_to_string(process.join("maps")).unwrap_or_default();
        named && maps().lines().any(|line| line.contains("cuda.so"))
    }

    fn end(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_file(self.pipe.join("control"));
        let _ = fs::remove_file(self.pipe.join("nvidia-cuda-mps-control.pid"));
    }
}
