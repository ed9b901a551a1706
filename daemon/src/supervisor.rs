//! The supervisor of one attempt: a small process between the daemon and `radrm-run`.
//!
//! It becomes the job's user, starts `radrm-run`, waits for it, ends what it left behind, and
//! writes down how it ended. It needs no daemon for any of that, so the daemon may crash and come
//! back while jobs run.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid};
use radrm_analyzer::Footprint;
use radrm_attempt::{Barrier, HeldProcess, below};
use radrm_limits::cgroup_v2::Group;
use radrm_limits::leftovers;
use radrm_limits::machine::Node;
use radrm_limits::setup;
use radrm_os::ProcessIdentity;
use radrm_protocol::words;
use radrm_scheduler_core::Outcome;
use radrm_telemetry::SegmentFile;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::error::DaemonError;
use super::fence::{self, Fence};
use super::hooks::Call;
use super::job_output::{Copying, OutputLimit};
use super::mps::Ready;
use super::outcome::{self, Measured};
use super::status::{self, End};
use super::time;

/// The word on the command line that makes `radrmd` a supervisor.
pub(crate) const WORD: &str = "--keep-one-job";

/// Between two looks at what is left of a job.
const INTERVAL: Duration = Duration::from_millis(20);

/// Longest time between two tries to write how the job ended, and time after which that is given up: a file system that
/// was shut down never takes it.
const MAX_DISK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_DISK_WAIT: Duration = Duration::from_secs(3600);

/// Time between SIGTERM and SIGKILL for processes that a job left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// Owner of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Parameters of a job's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The launcher with all its arguments.
    pub(crate) argv: Vec<String>,
    /// Its whole environment.
    pub(crate) environment: Vec<String>,
    /// Working directory.
    #[serde(with = "words::path")]
    pub(crate) cwd: PathBuf,
    /// As whom; `None`: as the daemon.
    pub(crate) user: Option<User>,
    /// The umask.
    pub(crate) umask: u32,
    /// Standard output, appended to.
    #[serde(with = "words::path")]
    pub(crate) output: PathBuf,
    /// Its room, if the file is the daemon's: the supervisor copies to it then.
    #[serde(default)]
    pub(crate) output_limit: Option<OutputLimit>,
    /// Standard error; `None` is standard output.
    #[serde(with = "words::some_path")]
    pub(crate) error: Option<PathBuf>,
    /// The profile that the launcher writes.
    pub(crate) profile: PathBuf,
    /// Prolog, which runs before, as the daemon's user.
    pub(crate) prolog: Option<Call>,
    /// The control group that the launcher is started in.
    pub(crate) group: Option<Group>,
    /// Barrier at which it waits for the other jobs of its group.
    pub(crate) barrier: Option<Barrier>,
    /// It runs under MPS, and waits until that is there.
    pub(crate) mps: Option<Ready>,
    /// The limit on host memory there, bytes.
    pub(crate) host_memory: Option<u64>,
    /// Limits on GPU memory that the driver keeps for the group, if it can.
    pub(crate) fence: Option<Fence>,
    /// Minor numbers of the device files of other GPUs, which the group cannot open.
    pub(crate) hidden: Vec<u32>,
    /// The time in which its processes end that the daemon asked to stop, ms: the daemon kills them then. Beyond it they are
    /// ended here, as there may be no daemon.
    pub(crate) grace_ms: u64,
}

impl Order {
    /// Returns true if the output goes to a file that the user has named, and not to the daemon's.
    fn has_own_output(&self) -> bool {
        self.output.parent() != self.profile.parent()
    }

    /// The emulated machine that the launcher is given.
    pub(crate) fn machine(&self) -> Option<&Path> {
        let options = self.argv.iter().take_while(|word| *word != "--");
        options.skip_while(|word| *word != "--machine").nth(1).map(Path::new)
    }
}

/// The variable with the path of the file that is there once the attempt is asked to stop.
pub(crate) const ASKED: &str = "RADRM_CHECKPOINT";

/// The variables by which the processes of an attempt know it, and are known.
pub(crate) fn marks(job: u64, attempt: u32) -> [String; 2] {
    [format!("RADRM_JOB={job}"), format!("RADRM_ATTEMPT={attempt}")]
}

/// This program once more, for the work that `word` names: with an order as its input, and nothing of the environment.
pub(crate) fn helper(word: &str, order: &impl Serialize) -> io::Result<process::Command> {
    let mut command = process::Command::new("/proc/self/exe");
    command.arg(word).env_clear().current_dir("/").stdin(in_memory(order)?);
    Ok(command)
}

/// An order as it is handed over: no other user can read it, and no disk has to have room for it.
fn in_memory(order: &impl Serialize) -> io::Result<File> {
    let mut file = File::from(memfd_create("radrm-order", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(order)?)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Does a supervisor's work. Standard input is the order, standard output the status file.
pub fn keep() -> process::ExitCode {
    let mut text = String::new();
    let order = io::stdin().read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let (Some(order), Ok(file)) = (order, file) else { return process::ExitCode::FAILURE };
    drop(text);
    let order: Order = order;
    let begun = write_start_down(&file).and_then(|()| run(&order, &file));
    let mut end = begun.unwrap_or_else(|Failed { why, lost }| End {
        not_started: Some(why.to_string()),
        lost,
        ..End::default()
    });
    end.at_ms = time::now().0;
    match write_down(&file, &end) {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(_) => process::ExitCode::FAILURE,
    }
}

/// Name of a supervisor that has nothing to do but to write the end down: it is not ended for doing nothing.
pub(crate) const WAITS_FOR_DISK: &std::ffi::CStr = c"radrmd-disk";

/// Writes down who supervises the attempt: without that, what it starts could not be ended.
fn write_start_down(file: &File) -> Result<(), Failed> {
    let who = ProcessIdentity::of(process::id()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH));
    let written = who.and_then(|who| status::put_supervisor(file, who));
    written.map_err(|error| Failed { why: DaemonError::StartUnwritten(error), lost: true })
}

/// Writes the end down, as soon as the disk takes it: without a record the job counts as killed.
fn write_down(file: &File, end: &End) -> io::Result<()> {
    let begun = Instant::now();
    let mut pause = INTERVAL;
    loop {
        match status::put_end(file, end) {
            Err(_) if begun.elapsed() < MAX_DISK_WAIT => {
                let _ = rustix::thread::set_name(WAITS_FOR_DISK);
                std::thread::sleep(pause);
            }
            done => return done,
        }
        pause = (pause * 2).min(MAX_DISK_INTERVAL);
    }
}

/// Reason that nothing of a job began.
struct Failed {
    why: DaemonError,
    /// It is the node's fault: the job is tried again.
    lost: bool,
}

impl<E: Into<DaemonError>> From<E> for Failed {
    fn from(why: E) -> Self {
        Self { why: why.into(), lost: false }
    }
}

fn run(order: &Order, file: &File) -> Result<End, Failed> {
    let log = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    alone();
    let of_node = |why| Failed { why, lost: true };
    // Before the user's rights are all that there is. Without the file the others do not start any more.
    let barrier = order.barrier.as_ref().map(Barrier::open).transpose();
    let mut barrier = barrier.map_err(|_| of_node(DaemonError::NotTogether))?;
    if let Some(prolog) = &order.prolog {
        let ran = log.map_err(DaemonError::HookNotRun).and_then(|log| prolog.run(&log));
        ran.map_err(|error| of_node(DaemonError::Hook { hook: "prolog", error: Box::new(error) }))?;
    }
    // What a prolog leaves running is not the job's.
    adopt_orphans();
    // Likewise.
    let mps = order.mps.as_ref().and_then(|ready| Some((ready, ready.open()?)));
    let entrance = order.group.as_ref().map(Group::entrance).transpose();
    let entrance = entrance.map_err(|error| of_node(DaemonError::GroupUnusable(error)))?;
    let mut driver = None;
    if let Some(user) = &order.user {
        // Only root can make what limits of users and groups are kept in.
        let node = Node::of(order.machine()).map_err(|error| of_node(error.into()))?;
        setup::for_job(&node.ledgers, user.uid, &|| node.machine.inventory())
            .map_err(|error| of_node(error.into()))?;
        driver = order.fence.as_ref().map(|fence| (fence, node));
    }
    if let Some(group) = &order.group {
        let driver = driver.as_ref().map(|(fence, node)| (*fence, node));
        if let Some(missing) = fence::set(driver, group, &order.hidden) {
            status::put_missing(file, &missing)
                .map_err(|error| of_node(DaemonError::GroupUnusable(error)))?;
        }
    }
    drop(driver);
    become_user(order.user.as_ref())?;
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(order.umask & 0o777) };
    std::env::set_current_dir(&order.cwd).map_err(|error| DaemonError::file(&order.cwd, &error))?;
    let output = open(&order.output).map_err(|why| match order.has_own_output() {
        true => Failed::from(why),
        false => of_node(why),
    })?;
    let error = order.error.as_ref().map(open).transpose()?;
    let started = output.metadata().map(|found| found.len()).unwrap_or(0);
    if let Some((ready, file)) = &mps {
        ready.wait(file);
    }
    if let Some(barrier) = &mut barrier {
        let goes_on = barrier.pass().map_err(|error| of_node(DaemonError::NoBarrier(error)))?;
        if !goes_on {
            return Err(of_node(DaemonError::NotTogether));
        }
    }
    let pipe = order.output_limit.map(|limit| io::pipe().map(|(from, to)| (limit, from, to))).transpose();
    let (copied, stdout) = match pipe.map_err(|error| of_node(DaemonError::NoProcess(error)))? {
        Some((limit, from, to)) => (Some((limit, from)), File::from(OwnedFd::from(to))),
        None => (None, output.try_clone().map_err(|error| of_node(DaemonError::NoProcess(error)))?),
    };
    let child = start(order, file, &stdout, error.as_ref().unwrap_or(&stdout), entrance.as_ref());
    drop(stdout);
    // From here on there may be two threads: nothing is forked any more.
    let copying = copied.map(|(limit, from)| Copying::start(from, &output, limit, file)).transpose();
    let copying = copying.map_err(|error| {
        end_descendants();
        of_node(DaemonError::NoProcess(error))
    })?;
    let ending = child.map(wait_for);
    if status::is_stopping(file) {
        // Each of them has the signal, and may be at its checkpoint: another one would come on top.
        await_descendants(Duration::from_millis(order.grace_ms));
    }
    end_descendants();
    let lost = copying.map(Copying::finish).unwrap_or_default();
    leftovers::remove_segments(&segments(order));
    let log = error.unwrap_or(output);
    let mut end = match ending? {
        Ok(code) => End { code: Some(code), ..End::default() },
        Err(signal) => End { signal: Some(signal), ..End::default() },
    };
    end.host_oom = order.group.as_ref().is_some_and(Group::has_killed).then_some(order.host_memory).flatten();
    if let Some(Measured { footprint, peaks, unseen, record }) = outcome::of_profile(&order.profile) {
        let Footprint { peak, oom, oom_request, limited, elsewhere, refused } = footprint;
        end = End { peak, peaks, record: Some(Box::new(record)), elsewhere, refused, ..end };
        if matches!(end.outcome(), Outcome::HostOutOfMemory { .. }) {
            return Ok(end);
        }
        end = End { oom, oom_request, limited, ..end };
        if oom.is_none()
            && unseen
            && outcome::log_shows_oom(&(tail(&log, started) + &String::from_utf8_lossy(&lost)))
        {
            end.oom = Some(peak.unwrap_or(0));
            end.from_log = true;
        }
    }
    Ok(end)
}

/// In a session of its own, and not to be ended by the signals that end a shell's jobs.
pub(crate) fn alone() {
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    default_signals();
    last_resort();
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            // SAFETY: three descriptors of this process, which nothing else uses.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

/// The daemon holds back the signals that end it; what it starts must get them.
pub(crate) fn default_signals() {
    // SAFETY: plain system calls on this process; the set is filled before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Becomes the parent of all that the job leaves without one.
pub(crate) fn adopt_orphans() {
    // SAFETY: a plain system call on this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// The daemon may be spared when the host's memory runs out; what jobs take is not. Raising is always allowed.
fn last_resort() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let spared = std::fs::read_to_string(FILE).is_ok_and(|text| text.trim_start().starts_with('-'));
    if spared {
        let _ = std::fs::write(FILE, "0");
    }
}

/// Becomes a user for good; `None` stays who it is.
pub(crate) fn become_user(user: Option<&User>) -> Result<(), DaemonError> {
    let Some(user) = user else { return Ok(()) };
    let failed = |what, why| DaemonError::NotUser { user: user.name.clone(), what, why };
    let name = CString::new(user.name.as_bytes()).map_err(|_| DaemonError::ZeroByteUser)?;
    let gid = Gid::from_raw(user.gid);
    nix::unistd::initgroups(&name, gid).map_err(|error| failed("its groups", error))?;
    nix::unistd::setresgid(gid, gid, gid).map_err(|error| failed("its group", error))?;
    let uid = Uid::from_raw(user.uid);
    nix::unistd::setresuid(uid, uid, uid).map_err(|error| failed("its id", error))
}

fn open(path: &PathBuf) -> Result<File, DaemonError> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o666)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
        .map_err(|error| DaemonError::not(path, " cannot be written", &error))
}

/// Words as the system takes them.
pub(crate) fn strings(words: &[String]) -> Result<Vec<CString>, DaemonError> {
    let wrong = || DaemonError::ZeroByteWord;
    let word = |word: &String| {
        let bytes = words::decode(word).ok_or_else(wrong)?.into_vec();
        CString::new(bytes).map_err(|_| wrong())
    };
    words.iter().map(word).collect()
}

/// Starts the launcher in a process group of its own, which takes the job's signals.
fn start(
    order: &Order,
    file: &File,
    output: &File,
    error: &File,
    entrance: Option<&File>,
) -> Result<libc::pid_t, Failed> {
    let (argv, environment) = (strings(&order.argv)?, strings(&order.environment)?);
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, entries) = (list(&argv), list(&environment));
    // Closed when the program begins; an error comes out of it before.
    let of_node = |error| Failed { why: DaemonError::NoProcess(error), lost: true };
    let (mut failed, fails) = io::pipe().map_err(of_node)?;
    // SAFETY: this process has one thread, so the child may do what it likes.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(of_node(io::Error::last_os_error()));
    }
    if child > 0 {
        drop(fails);
        let mut told = [0; 5];
        return match failed.read_exact(&mut told) {
            Ok(()) => {
                let _ = wait_for(child);
                let [step, code @ ..] = told;
                Err(not_begun(step, io::Error::from_raw_os_error(i32::from_ne_bytes(code))))
            }
            Err(_) => Ok(child),
        };
    }
    // SAFETY: plain system calls on the child, before it becomes another program; the lists end
    // with null and live here.
    unsafe {
        libc::setpgid(0, 0);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::dup2(output.as_raw_fd(), 1);
        libc::dup2(error.as_raw_fd(), 2);
        // The supervisor stays outside: it reports an end for want of host memory.
        if let Some(Err(error)) = entrance.map(|mut group| group.write_all(b"0")) {
            tell(&fails, ENTERS, &error);
        }
        // Written before anything of the job runs: where this is missing, nothing ran.
        let who = ProcessIdentity::of(process::id()).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH));
        if let Err(error) = who.and_then(|who| status::put_program(file, who)) {
            tell(&fails, WRITES_DOWN, &error);
        }
        libc::execve(arguments[0], arguments.as_ptr(), entries.as_ptr());
        let error = io::Error::last_os_error();
        let text = DaemonError::NotExecuted(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0)));
        let _ = writeln!(io::stderr(), "{}: {text}", crate::process::NAME);
        tell(&fails, EXECUTES, &error)
    }
}

/// Steps of the process that becomes the launcher, as it names the one that failed.
const ENTERS: u8 = b'g';
const WRITES_DOWN: u8 = b's';
const EXECUTES: u8 = b'x';

/// Ends this process, which is to become the launcher, once its parent knows which step failed.
fn tell(mut parent: &io::PipeWriter, step: u8, error: &io::Error) -> ! {
    let [a, b, c, d] = error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
    let _ = parent.write_all(&[step, a, b, c, d]);
    // SAFETY: a plain system call that does not return.
    unsafe { libc::_exit(125) }
}

/// Reason that no program began, by the step that failed.
fn not_begun(step: u8, error: io::Error) -> Failed {
    match step {
        ENTERS => Failed { why: DaemonError::GroupUnusable(error), lost: true },
        WRITES_DOWN => Failed { why: DaemonError::StartUnwritten(error), lost: true },
        _ => DaemonError::NotExecuted(error).into(),
    }
}

/// The exit code, or the signal.
fn wait_for(child: libc::pid_t) -> Result<i32, i32> {
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        let got = unsafe { libc::waitpid(-1, &mut status, 0) };
        if got == child {
            return if libc::WIFSIGNALED(status) {
                Err(libc::WTERMSIG(status))
            } else {
                Ok(libc::WEXITSTATUS(status))
            };
        }
        if got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Ok(125);
        }
    }
}

/// Waits until the job has left nothing running, but no longer than so.
fn await_descendants(at_most: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < at_most {
        let mut status = 0;
        // SAFETY: room for a status.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => std::thread::sleep(INTERVAL),
            got if got < 0 => return,
            _ => {}
        }
    }
}

/// Ends what the job left running: all of it is below this process.
fn end_descendants() {
    let begun = Instant::now();
    let mut signalled = false;
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        let got = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
        if got > 0 {
            continue;
        }
        if got < 0 {
            return;
        }
        let late = begun.elapsed() > LEFT_BEHIND;
        if late || !signalled {
            signalled = true;
            let signal = if late { libc::SIGKILL } else { libc::SIGTERM };
            for held in below(process::id()).into_iter().filter_map(HeldProcess::of) {
                held.signal(signal);
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Directories in which the launcher may have made the job's segment: it left it to what lived on.
fn segments(order: &Order) -> Vec<PathBuf> {
    let runtime = order.environment.iter().find_map(|line| line.strip_prefix("XDG_RUNTIME_DIR="));
    let runtime = runtime.and_then(words::decode).map(PathBuf::from);
    SegmentFile::directories_in(runtime)
}

/// The end of what the job wrote, from `from` on.
fn tail(file: &File, from: u64) -> String {
    const MAX_TAIL: u64 = 64 << 10;
    let mut bytes = Vec::new();
    let mut file = file;
    let length = file.metadata().map(|found| found.len()).unwrap_or(0);
    if file.seek(SeekFrom::Start(from.max(length.saturating_sub(MAX_TAIL)))).is_ok() {
        let _ = file.take(MAX_TAIL).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::channel;
    use std::thread;

    /// A disk that takes nothing.
    fn full() -> File {
        File::options().write(true).open("/dev/full").unwrap()
    }

    #[test]
    fn a_start_that_cannot_be_written_down_is_tried_again() {
        let Err(Failed { why, lost }) = write_start_down(&full()) else { panic!("it is written") };
        assert!(lost && matches!(why, DaemonError::StartUnwritten(_)), "{why}");
        let file = tempfile::tempfile().unwrap();
        assert!(write_start_down(&file).is_ok() && file.metadata().unwrap().len() > 0);
        let is_lost = |step| not_begun(step, io::Error::from_raw_os_error(libc::EIO)).lost;
        assert_eq!([ENTERS, WRITES_DOWN, EXECUTES].map(is_lost), [true, true, false]);
    }

    #[test]
    fn a_supervisor_that_waits_for_the_disk_is_known_by_its_name_and_writes_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        let (disk, file) = (status::make(&path).unwrap(), full());
        let descriptor = file.as_raw_fd();
        let (tell, thread_id) = channel();
        let writer = thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            write_down(&file, &End { code: Some(3), ..End::default() })
        });
        let name = format!("/proc/self/task/{}/comm", thread_id.recv().unwrap().as_raw_nonzero());
        let is_known =
            || fs::read(&name).is_ok_and(|name| name.trim_ascii_end() == WAITS_FOR_DISK.to_bytes());
        while !is_known() {
            assert!(!writer.is_finished(), "it does not wait");
            thread::sleep(INTERVAL);
        }
        // The disk takes it again.
        // SAFETY: a plain system call; the descriptor is open while the thread writes.
        assert_eq!(unsafe { libc::dup2(disk.as_raw_fd(), descriptor) }, descriptor);
        writer.join().unwrap().unwrap();
        let end = status::read(&path).unwrap().unwrap().status.end;
        assert_eq!(end.and_then(|end| end.code), Some(3));
    }
}
