//! Starting `radrm-run` in a place of its own, with a watchdog.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A program in Python that has the first GPU's context: this, and what follows.
macro_rules! cuda_program {
    ($body:literal) => {
        concat!(
            r#"
import ctypes, sys, time
cuda = ctypes.CDLL('libcuda.so.1')
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code: sys.exit('%s: %d' % (name, code))
call('cuInit', 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call('cuDeviceGet', ctypes.byref(device), 0)
call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
call('cuCtxSetCurrent', context)
"#,
            $body
        )
    };
}

/// After so long a test is taken to hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A private directory, used as current directory, data directory and runtime directory.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `radrm-run`, given these words.
    pub fn run(&self, words: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_radrm-run"), words)
    }

    /// `radrm-run`, silent and leaving nothing behind, running these words.
    pub fn silent(&self, words: &[&str]) -> Command {
        let mut command = self.run(&["--quiet", "--no-profile", "--no-dataset", "--"]);
        command.args(words);
        command
    }

    /// Any program, in this place.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.path())
            .env("XDG_DATA_HOME", self.join("data"))
            .env_remove("LD_PRELOAD")
            .env_remove("RADRM_DISABLE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Names of the profiles that lie here.
    pub fn profiles(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> =
            names.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".radrm")).collect();
        names.sort();
        names
    }
}

/// Exit status and output of a program.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Output {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    #[track_caller]
    pub fn code(&self, expected: i32) -> &Self {
        assert_eq!(self.status.code(), Some(expected), "{self:?}");
        self
    }

    /// One sentence on standard error and nothing else.
    #[track_caller]
    pub fn one_sentence(&self, part: &str) -> &Self {
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.contains(part), "{}", self.stderr);
        self
    }
}

/// Runs to the end and kills what takes too long.
pub fn finish(command: &mut Command) -> Output {
    finish_with(command, Vec::new())
}

/// The same with something on standard input.
pub fn finish_with(command: &mut Command, input: Vec<u8>) -> Output {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    if let Some(mut stdin) = child.stdin.take() {
        // A program that reads nothing breaks the pipe: not our concern here.
        thread::spawn(move || stdin.write_all(&input));
    }
    collect(child)
}

/// Waits for a program that was started before.
pub fn collect(mut child: Child) -> Output {
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                stream.read_to_end(&mut bytes).unwrap();
            }
            let _ = sender.send(bytes);
        });
        receiver
    };
    let stdout = reader(child.stdout.take().map(|stream| Box::new(stream) as _));
    let stderr = reader(child.stderr.take().map(|stream| Box::new(stream) as _));
    let status = wait(&mut child);
    Output {
        status,
        stdout: stdout.recv_timeout(PATIENCE).expect("standard output stays open"),
        stderr: String::from_utf8_lossy(&stderr.recv_timeout(PATIENCE).expect("standard error stays open"))
            .into_owned(),
    }
}

/// Waits with patience, then kills and fails.
pub fn wait(child: &mut Child) -> ExitStatus {
    until("the program's end", || child.try_wait().unwrap())
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(5);
    let mut left = PATIENCE.as_millis() / pause.as_millis();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(left > 0, "waited in vain for {what}");
        left -= 1;
        thread::sleep(pause);
    }
}

/// A Python program as the last words of a command line.
pub fn python(program: &str) -> Vec<&str> {
    vec!["python3", "-c", program]
}
