//! A user's control daemon of the Multi-Process Service, for jobs that were submitted with `--mps` or run under it by the
//! setting `mps`.
//!
//! Everything that a job starts ends with the job: with its control group, or by its supervisor. A control daemon
//! that others use too must not. So a helper beside the jobs holds it: a `radrm-run --mps` whose program waits for
//! the end of a pipe. It starts the control daemon if there is none, and ends it if no other launcher uses it, by
//! the rules of every `radrm-run`. The pipe ends with the radrmd that holds it; the jobs hold the control daemon
//! themselves meanwhile, and the next radrmd starts a helper for those that it adopts.

pub(crate) mod settings;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use radrm_limits::machine::Node;
use radrm_limits::setup;
use radrm_os::ProcessIdentity;
use radrm_protocol::words;
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::supervisor::{self, User, become_user, strings};

/// The word on the command line that makes `radrmd` such a helper.
pub(crate) const WORD: &str = "--serve-mps";

/// Program of the helper: it reports that MPS is there, and waits.
const PROGRAM: [&str; 3] = ["/bin/sh", "-c", "printf +; exec cat > /dev/null"];

/// A control daemon takes less to start. A job whose helper does not answer finds out by itself what is wrong.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two looks at the helper.
const INTERVAL: Duration = Duration::from_millis(10);

/// Clients that a helper serves: a user's jobs on whole GPUs, or on one MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) uid: u32,
    /// UUID of the instance.
    pub(crate) instance: Option<String>,
}

impl Client {
    /// A job of a user on these GPUs.
    pub(crate) fn of(uid: u32, devices: &[String]) -> Self {
        let instance = devices.first().filter(|uuid| uuid.starts_with(MIG)).cloned();
        Self { uid, instance }
    }

    /// Name of its file.
    pub(crate) fn name(&self) -> String {
        let instance = self.instance.iter().map(|uuid| format!("{}.", uuid.replace('/', "-")));
        format!("{}.{}mps", self.uid, instance.collect::<String>())
    }
}

/// Beginning of the UUID of a MIG instance.
const MIG: &str = "MIG-";

/// Variables of a job that are not for the helper. The one that names a MIG instance is.
const NOT_FOR_HELPER: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "RADRM_JOB",
    "RADRM_ATTEMPT",
    supervisor::ASKED,
    "RADRM_KERNELS",
    "RADRM_LOADER",
];

/// Parameters of a helper, from what a job of the user gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    launcher: String,
    environment: Vec<String>,
    user: Option<User>,
    /// The emulated machine.
    machine: Option<PathBuf>,
    /// Option with the newest protocol.
    protocol: Option<String>,
}

impl Order {
    pub(crate) fn of(job: &supervisor::Order) -> Self {
        let is_kept = |line: &&String| {
            let (name, value) = line.split_once('=').unwrap_or_default();
            !NOT_FOR_HELPER.contains(&name) || (name == "CUDA_VISIBLE_DEVICES" && value.starts_with(MIG))
        };
        Self {
            launcher: job.argv.first().cloned().unwrap_or_default(),
            environment: job.environment.iter().filter(is_kept).cloned().collect(),
            user: job.user.clone(),
            machine: job.machine().map(Path::to_owned),
            protocol: job
                .argv
                .iter()
                .take_while(|word| *word != "--")
                .find(|word| word.starts_with("--mps-protocol="))
                .cloned(),
        }
    }

    fn argv(&self) -> Vec<String> {
        let machine =
            self.machine.iter().flat_map(|file| ["--machine".to_owned(), file.display().to_string()]);
        let options = ["--quiet", "--no-profile", "--no-dataset", "--mps"].map(str::to_owned);
        let options = options.into_iter().chain(self.protocol.clone());
        let program = PROGRAM.map(str::to_owned);
        [self.launcher.clone()]
            .into_iter()
            .chain(options)
            .chain(machine)
            .chain(["--".to_owned()])
            .chain(program)
            .collect()
    }
}

/// Sign by which a job's supervisor knows that MPS is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// A file that has a byte then.
    #[serde(with = "words::path")]
    path: PathBuf,
    /// Once it is gone, waiting is in vain.
    helper: ProcessIdentity,
}

impl Ready {
    /// The file, as long as it may be opened.
    pub(crate) fn open(&self) -> Option<File> {
        File::open(&self.path).ok()
    }

    /// Waits until MPS is there, or the helper does not come to it.
    pub(crate) fn wait(&self, file: &File) {
        let begun = Instant::now();
        let is_there = || file.metadata().is_ok_and(|found| found.len() > 0);
        while !is_there() && self.helper.lives() && begun.elapsed() < START_TIMEOUT {
            thread::sleep(INTERVAL);
        }
    }
}

/// A helper under way. It ends when this goes.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    ready: Ready,
    _end: PipeWriter,
}

impl Running {
    /// Starts a helper that writes into this file when MPS is there.
    ///
    /// # Errors
    /// The node's fault.
    pub(crate) fn start(path: &Path, order: &Order) -> Result<Self, DaemonError> {
        let failed = |error: io::Error| DaemonError::file(path, &error);
        // Not the file of an earlier helper, of which a job may still wait for the byte.
        let _ = fs::remove_file(path);
        let mut options = OpenOptions::new();
        let file = options.append(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let (end, _end) = io::pipe().map_err(DaemonError::NoProcess)?;
        let mut command = supervisor::helper(WORD, order).map_err(DaemonError::NoMemory)?;
        let child = command.stdout(file).stderr(end).spawn().map_err(DaemonError::NoProcess)?;
        let gone = || DaemonError::NoProcess(io::ErrorKind::NotFound.into());
        let helper = ProcessIdentity::of(child.id()).ok_or_else(gone)?;
        Ok(Self { child, ready: Ready { path: path.to_owned(), helper }, _end })
    }

    /// Sign that its jobs wait for; `None`: the helper is over.
    pub(crate) fn ready(&mut self) -> Option<Ready> {
        matches!(self.child.try_wait(), Ok(None)).then(|| self.ready.clone())
    }

    /// Lets it end.
    pub(crate) fn end(self) -> Child {
        self.child
    }
}

/// Does a helper's work. Standard input is the order, standard output the file of [`Ready`], standard error the pipe.
pub(crate) fn keep() -> ExitCode {
    let mut text = String::new();
    let order = io::stdin().read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let (ready, end) = (io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned());
    let (Some(order), Ok(ready), Ok(end)) = (order, ready, end) else { return ExitCode::FAILURE };
    let order: Order = order;
    supervisor::alone();
    // SAFETY: plain system calls on this process and its own descriptors. What `alone` has it ignore is not for the
    // programs that it becomes.
    unsafe {
        libc::dup2(end.as_raw_fd(), 0);
        libc::dup2(ready.as_raw_fd(), 1);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    // Its jobs report what is wrong, in their output.
    let _ = become_launcher(&order);
    ExitCode::FAILURE
}

fn become_launcher(order: &Order) -> Result<(), DaemonError> {
    if let Some(user) = &order.user {
        let node = Node::of(order.machine.as_deref())?;
        setup::for_job(&node.ledgers, user.uid, &|| node.machine.inventory())?;
    }
    become_user(order.user.as_ref())?;
    let (argv, environment) = (strings(&order.argv())?, strings(&order.environment)?);
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, entries) = (list(&argv), list(&environment));
    // SAFETY: the lists end with null, and their words live here; there is a program in front.
    unsafe { libc::execve(arguments[0], arguments.as_ptr(), entries.as_ptr()) };
    Err(DaemonError::NotExecuted(io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_knows_its_user_and_no_job() {
        let line = |text: &str| text.to_owned();
        let job = supervisor::Order {
            argv: ["/l", "--quiet", "--machine", "/m", "--mps", "--", "p", "--machine", "x"]
                .map(line)
                .to_vec(),
            environment: ["PATH=/bin", "RADRM_JOB=1", "CUDA_VISIBLE_DEVICES=G", "RADRM_LIB_DIR=/d"]
                .map(line)
                .to_vec(),
            ..supervisor::Order::default()
        };
        let order = Order::of(&job);
        assert_eq!(order.environment, ["PATH=/bin", "RADRM_LIB_DIR=/d"]);
        let argv = order.argv();
        assert_eq!(argv[..7], ["/l", "--quiet", "--no-profile", "--no-dataset", "--mps", "--machine", "/m"]);
        assert_eq!(argv[8..], PROGRAM);
    }

    #[test]
    fn a_mig_instance_has_a_helper_of_its_own_that_sees_it() {
        let job = supervisor::Order {
            argv: ["/l", "--mps", "--mps-protocol=2", "--", "p", "--mps-protocol=3"]
                .map(str::to_owned)
                .to_vec(),
            environment: vec!["CUDA_VISIBLE_DEVICES=MIG-1".to_owned(), "RADRM_JOB=1".to_owned()],
            ..supervisor::Order::default()
        };
        let order = Order::of(&job);
        assert_eq!(order.environment, ["CUDA_VISIBLE_DEVICES=MIG-1"]);
        assert_eq!(order.protocol.as_deref(), Some("--mps-protocol=2"));
        assert!(order.argv().contains(&"--mps-protocol=2".to_owned()));
        let [whole, one, two] = ["GPU-1", "MIG-1", "MIG-2"].map(|uuid| Client::of(7, &[uuid.to_owned()]));
        assert_eq!(whole, Client::of(7, &[]), "one control daemon serves all whole GPUs");
        assert_eq!([&whole, &one, &two].map(Client::name), ["7.mps", "7.MIG-1.mps", "7.MIG-2.mps"]);
    }
}
