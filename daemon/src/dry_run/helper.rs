//! The helper of one dry run.
//!
//! All that the dry run starts stays below this process: it takes in what loses its parent. So it can end all of it, and
//! does before it ends itself. It notices the daemon's end by its pipe, which has no reader then.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::fchown;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};

use radrm_attempt::{HeldProcess, below};
use radrm_limits::cgroup_v2::Group;
use radrm_os::ProcessIdentity;
use radrm_protocol::trial;
use radrm_protocol::words;
use radrm_scheduler_core::Bytes;
use rustix::event::{PollFd, PollFlags, poll};

use super::inspect::{Found, inspect};
use super::{Answer, Bounds, Order, Outcome, confine, short};
use crate::error::DaemonError;
use crate::host::Snapshot;
use crate::status;
use crate::supervisor::{self, become_user, strings};

/// Interval at which its processes are counted.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time for the launcher to end its program, then time to tidy up once that was killed, then time for all else.
const TERMINATE: Duration = Duration::from_millis(500);
const TIDY_UP: Duration = Duration::from_millis(2000);
const GIVE_UP: Duration = Duration::from_millis(6000);
/// The most bytes of a report.
const MAX_REPORT: usize = 8 << 20;
/// The descriptor of the report's pipe in the launcher.
const REPORT: i32 = 3;

/// Does a helper's work. Standard input is the order, standard output the daemon's pipe, standard error the marker.
pub(crate) fn keep() -> ExitCode {
    let mut text = String::new();
    let order = io::stdin().read_to_string(&mut text).ok().and_then(|_| serde_json::from_str(&text).ok());
    let daemon = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let marker = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let (Some(order), Ok(mut daemon), Ok(marker)) = (order, daemon, marker) else { return ExitCode::FAILURE };
    let order: Order = order;
    supervisor::alone();
    supervisor::adopt_orphans();
    if let Some(who) = ProcessIdentity::of(process::id()) {
        let _ = status::put_supervisor(&marker, who);
    }
    let begun = Instant::now();
    let answer = match take_signals() {
        Ok(signals) => Helper { signals, daemon: &daemon, begun, bounds: order.bounds }.answer(&order),
        Err(error) => Answer::failed(error),
    };
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = serde_json::to_vec(&Answer { took_ms, ..answer }).unwrap_or_default();
    match daemon.write_all(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// From here on SIGTERM and SIGCHLD are read from this.
fn take_signals() -> io::Result<File> {
    // SAFETY: the set is filled before it is used; no other owner has the new descriptor.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGCHLD] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // One that is ignored does not become pending.
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Reason that a dry run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// By the daemon, or as there is none any more.
    NotWanted,
    Time,
    Memory,
    Processes,
    Report,
}

impl Fault {
    /// Outcome of a dry run that was ended for this reason; `None` if it was not wanted.
    fn outcome(self, bounds: &Bounds) -> Option<Outcome> {
        let why = match self {
            Self::NotWanted => return None,
            Self::Time => format!("it was ended after {} s (dry_run.limit_s)", bounds.limit_s),
            Self::Memory => {
                format!(
                    "its processes took more than {} of host memory (dry_run.memory_mib)",
                    Bytes(bounds.memory)
                )
            }
            Self::Processes => {
                format!("it began more than {} processes and threads (dry_run.processes)", bounds.processes)
            }
            Self::Report => "its report is too long".to_owned(),
        };
        Some(Outcome::Failed(why))
    }
}

/// End of a child, and its output.
struct Ended {
    /// Its exit code; `None`: a signal.
    code: Option<i32>,
    wrote: Vec<u8>,
    fault: Option<Fault>,
}

struct Helper<'a> {
    signals: File,
    daemon: &'a File,
    begun: Instant,
    bounds: Bounds,
}

impl Helper<'_> {
    fn answer(&self, order: &Order) -> Answer {
        self.try_answer(order).unwrap_or_else(Answer::failed)
    }

    fn try_answer(&self, order: &Order) -> Result<Answer, DaemonError> {
        let inspected = self.run(order, |order, to| {
            let _ = serde_json::to_writer(to, &look(order));
            // SAFETY: ends this child.
            unsafe { libc::_exit(0) }
        })?;
        if let Some(fault) = inspected.fault {
            return Ok(Answer { outcome: fault.outcome(&self.bounds), ..Answer::default() });
        }
        let digest = match serde_json::from_slice::<Result<Found, String>>(&inspected.wrote) {
            Ok(Ok(Found::Fit(digest))) => digest,
            Ok(Ok(Found::Unfit(why))) => return Ok(Answer { unfit: true, ..Answer::failed(why) }),
            Ok(Err(why)) => return Ok(Answer::failed(why)),
            Err(_) => return Ok(Answer::failed("its files cannot be read")),
        };
        if let Some((_, known)) = order.known.iter().find(|(of, _)| *of == digest) {
            let outcome = Some(known.clone());
            return Ok(Answer { digest: Some(digest), outcome, again: true, ..Answer::default() });
        }
        let ended = self.run(order, |order, to| {
            let why = launch(order, to);
            let _ = serde_json::to_writer(to, &serde_json::json!({"dry_run": {"withheld": why.to_string()}}));
            // SAFETY: ends this child.
            unsafe { libc::_exit(125) }
        })?;
        let outcome = match ended.fault {
            Some(fault) => fault.outcome(&self.bounds),
            None if order.group.as_ref().is_some_and(Group::has_killed) => {
                Fault::Memory.outcome(&self.bounds)
            }
            None => Some(match trial::figure(serde_json::from_slice(&ended.wrote).ok(), ended.code) {
                Ok(found) => Outcome::Held { bytes: found.held.0, kind: found.kind },
                Err(why) => Outcome::Failed(short(&why.to_string())),
            }),
        };
        Ok(Answer { digest: Some(digest), outcome, ..Answer::default() })
    }

    /// Runs a child that writes into a pipe, and waits until nothing of it is left.
    fn run(
        &self,
        order: &Order,
        child: impl FnOnce(&Order, &io::PipeWriter) -> i32,
    ) -> Result<Ended, DaemonError> {
        let (from, to) = io::pipe().map_err(DaemonError::NoProcess)?;
        if let Some(user) = &order.user {
            // It is opened once more, by its name below /proc.
            fchown(&to, Some(user.uid), Some(user.gid)).map_err(DaemonError::NoProcess)?;
        }
        // SAFETY: plain system calls; this process has one thread, so the child may do what it likes.
        let pid = unsafe {
            libc::fcntl(from.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
            libc::fork()
        };
        match pid {
            0 => {
                child(order, &to);
                process::abort()
            }
            pid if pid < 0 => Err(DaemonError::NoProcess(io::Error::last_os_error())),
            pid => {
                drop(to);
                Ok(self.attend(pid, from))
            }
        }
    }

    fn attend(&self, child: libc::pid_t, mut from: io::PipeReader) -> Ended {
        let (mut wrote, mut code, mut fault) = (Vec::new(), None, None);
        let mut checked = Instant::now();
        let mut is_open = true;
        while code.is_none() && fault.is_none() {
            let mut fds = vec![
                PollFd::new(&self.signals, PollFlags::IN),
                // Only whether it has a reader.
                PollFd::new(self.daemon, PollFlags::empty()),
            ];
            if is_open {
                fds.push(PollFd::new(&from, PollFlags::IN));
            }
            let _ = poll(&mut fds, CHECK_INTERVAL.try_into().ok().as_ref());
            let is_left = fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP);
            drop(fds);
            if is_left || self.is_asked_to_end() {
                fault = Some(Fault::NotWanted);
            }
            is_open = is_open && read_some(&mut from, &mut wrote);
            if wrote.len() > MAX_REPORT {
                fault = fault.or(Some(Fault::Report));
            }
            code = reap(child);
            if self.begun.elapsed() > Duration::from_secs(self.bounds.limit_s) {
                fault = fault.or(Some(Fault::Time));
            }
            if checked.elapsed() >= CHECK_INTERVAL {
                fault = fault.or_else(|| self.excess());
                checked = Instant::now();
            }
        }
        let code = end_all(child, code);
        while is_open && wrote.len() <= MAX_REPORT {
            let before = wrote.len();
            is_open = read_some(&mut from, &mut wrote) && wrote.len() > before;
        }
        Ended { code: code.flatten(), wrote, fault }
    }

    /// Takes the signals that came; whether one asks for the end.
    fn is_asked_to_end(&self) -> bool {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut asked = false;
        let mut record = [0; SIZE];
        while let Ok(SIZE) = (&self.signals).read(&mut record) {
            let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            asked |= number == libc::SIGTERM.unsigned_abs();
        }
        asked
    }

    /// Bound that its processes exceed.
    fn excess(&self) -> Option<Fault> {
        let sum = Snapshot::now(None).below(process::id());
        let tasks: u64 = sum.processes().iter().map(|pid| confine::tasks(*pid)).sum();
        if tasks > self.bounds.processes {
            return Some(Fault::Processes);
        }
        (sum.resident > self.bounds.memory && sum.proportional() > self.bounds.memory)
            .then_some(Fault::Memory)
    }
}

/// Reads what is there; false at the end.
fn read_some(from: &mut io::PipeReader, to: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 64 << 10];
    match from.read(&mut bytes) {
        Ok(0) => false,
        Ok(more) => {
            to.extend_from_slice(&bytes[..more]);
            true
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// Waits for what has ended. Gives the child's end if it is among it: its exit code, or none after a signal.
fn reap(child: libc::pid_t) -> Option<Option<i32>> {
    let mut code = None;
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        let got = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if got == child {
            code = Some(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)));
        }
        if got <= 0 {
            return code;
        }
    }
}

/// Ends all that is below this process: the child, if it has not ended, gets time to tidy up.
fn end_all(child: libc::pid_t, mut code: Option<Option<i32>>) -> Option<Option<i32>> {
    let begun = Instant::now();
    if code.is_none() {
        // SAFETY: a plain system call; the child was not waited for.
        unsafe { libc::kill(child, libc::SIGTERM) };
    }
    loop {
        code = code.or(reap(child));
        let left = below(process::id());
        let passed = begun.elapsed();
        if left.is_empty() || passed > GIVE_UP {
            return code;
        }
        let waits = |limit| code.is_none() && passed < limit;
        if !waits(TERMINATE) {
            let is_spared = |who: &ProcessIdentity| waits(TIDY_UP) && who.pid.cast_signed() == child;
            let to_end: Vec<ProcessIdentity> = left.into_iter().filter(|who| !is_spared(who)).collect();
            end_at_once(&to_end, |who, signal| {
                if let Some(held) = HeldProcess::of(who) {
                    held.signal(signal);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills processes of which one may begin another when a third ends: all stand still before the first is killed.
fn end_at_once(processes: &[ProcessIdentity], send: impl Fn(ProcessIdentity, libc::c_int)) {
    for signal in [libc::SIGSTOP, libc::SIGKILL] {
        processes.iter().for_each(|who| send(*who, signal));
    }
}

/// Reads the program as its user; an error is why it could not be read.
fn look(order: &Order) -> Result<Found, String> {
    let entered = become_user(order.user.as_ref()).and_then(|()| enter(order));
    entered.map_err(|why| why.to_string())?;
    let command: Vec<OsString> = order.command.iter().filter_map(|word| words::decode(word)).collect();
    Ok(inspect(&command, &order.cwd))
}

/// Goes where the program is to run.
fn enter(order: &Order) -> Result<(), DaemonError> {
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(order.umask & 0o777) };
    std::env::set_current_dir(&order.cwd).map_err(|error| DaemonError::file(&order.cwd, &error))
}

/// Becomes the launcher; returns why that did not work.
fn launch(order: &Order, to: &io::PipeWriter) -> DaemonError {
    match try_launch(order, to) {
        Err(why) => why,
        Ok(never) => match never {},
    }
}

fn try_launch(order: &Order, to: &io::PipeWriter) -> Result<std::convert::Infallible, DaemonError> {
    if let Some(group) = &order.group {
        let mut entrance = group.entrance().map_err(DaemonError::GroupUnusable)?;
        entrance.write_all(b"0").map_err(DaemonError::GroupUnusable)?;
    }
    let uid = order.user.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    confine::confine(&order.bounds, uid).map_err(DaemonError::GpusNotHidden)?;
    become_user(order.user.as_ref())?;
    enter(order)?;
    let report = format!("--json=/proc/self/fd/{REPORT}");
    let argv = [&order.launcher[..], &[report, "--".to_owned()], &order.command].concat();
    let (argv, environment) = (strings(&argv)?, strings(&order.environment)?);
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, entries) = (list(&argv), list(&environment));
    supervisor::default_signals();
    // SAFETY: plain system calls on this process before it becomes another program; the lists end with null and live
    // here.
    unsafe {
        libc::setpgid(0, 0);
        // A helper that is killed takes the launcher along.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
        match to.as_raw_fd() {
            REPORT => libc::fcntl(REPORT, libc::F_SETFD, 0),
            other => libc::dup2(other, REPORT),
        };
        libc::execve(arguments[0], arguments.as_ptr(), entries.as_ptr());
    }
    Err(DaemonError::NotExecuted(io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_processes_stand_still_before_the_first_is_killed() {
        let sent = RefCell::new(Vec::new());
        let processes = [5, 6, 7].map(|pid| ProcessIdentity { pid, start: 0 });
        end_at_once(&processes, |who, signal| sent.borrow_mut().push((who.pid, signal)));
        let all = |signal| [5, 6, 7].map(|pid| (pid, signal));
        assert_eq!(sent.into_inner(), [all(libc::SIGSTOP), all(libc::SIGKILL)].concat());
    }

    #[test]
    fn the_bound_that_ended_a_dry_run_is_named_and_no_daemon_is_no_result() {
        let bounds = Bounds { limit_s: 7, memory: 300 << 20, cpus: 1, processes: 40 };
        let why = |fault: Fault| match fault.outcome(&bounds) {
            Some(Outcome::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(Fault::NotWanted.outcome(&bounds), None);
        assert!(why(Fault::Time).contains("7 s (dry_run.limit_s)"));
        assert!(why(Fault::Memory).contains("300.0 MiB of host memory (dry_run.memory_mib)"));
        assert!(why(Fault::Processes).contains("40 processes and threads (dry_run.processes)"));
        assert!(why(Fault::Report).contains("too long"));
    }
}
