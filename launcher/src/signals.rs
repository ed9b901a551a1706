//! Signals that are passed on to the program.
//!
//! The program sits in the same process group as `radrm-run`, so a signal that the terminal or
//! anybody sends to the group has reached it already; passing it on would deliver it twice. A signal
//! sent to `radrm-run` alone is meant for the program.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use radrm_telemetry::process::Stat;

/// Sender of a signal, seen from this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The kernel: the terminal, a timer, a limit.
    Kernel,
    /// This process itself.
    Ourselves,
    /// The program, or a process that descends from it.
    Program,
    /// Anybody else, to this process alone.
    Process,
    /// Anybody else, to the whole process group.
    ToGroup,
}

/// Treatment of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send it to the program.
    PassOn,
    /// The program has it already, or it is not meant for it.
    Drop,
    /// Send it to the program if that is still stopped.
    WakeIfStopped,
}

/// Decides about one signal. `leads_session`: this process leads its session, so the kernel sends
/// a hang-up of the terminal to it alone.
#[must_use]
pub fn decide(signal: i32, sender: Sender, leads_session: bool) -> Verdict {
    match (signal, sender) {
        // Children of ours changed state: the wait loop reads that.
        (libc::SIGCHLD, _) | (_, Sender::Ourselves | Sender::Program) => Verdict::Drop,
        // `fg` continues the whole group, `kill -CONT` one process: see whether it arrived.
        (libc::SIGCONT, _) => Verdict::WakeIfStopped,
        (_, Sender::Process) => Verdict::PassOn,
        (_, Sender::ToGroup) => Verdict::Drop,
        // Timers set before exec (`alarm`) and the owner of asynchronous input belong to this
        // process number alone; without `radrm-run` the program would have it.
        (libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF | libc::SIGIO | libc::SIGURG, Sender::Kernel) => {
            Verdict::PassOn
        }
        (libc::SIGHUP, Sender::Kernel) if leads_session => Verdict::PassOn,
        (_, Sender::Kernel) => Verdict::Drop,
    }
}

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Process id of the sender; `None` if the kernel sent it.
    pub from: Option<libc::pid_t>,
    /// The value that came with `sigqueue`.
    pub value: Option<usize>,
}

impl Arrived {
    /// Relation of the sender to a supervisor of `program`; whether it meant the whole group is not known.
    #[must_use]
    pub fn sender(&self, program: libc::pid_t) -> Sender {
        match self.from {
            None => Sender::Kernel,
            Some(pid) if pid == own_pid() => Sender::Ourselves,
            Some(pid) if descends_from(pid, program) => Sender::Program,
            Some(_) => Sender::Process,
        }
    }

    /// Sends the same signal, with the same value, to `program`. A program that is gone is not an error.
    pub fn pass_on(&self, program: libc::pid_t) {
        match self.value {
            Some(value) => {
                let value = libc::sigval { sival_ptr: value as *mut libc::c_void };
                // SAFETY: plain system call; the value is only a number to us.
                unsafe { libc::sigqueue(program, self.signal, value) };
            }
            // SAFETY: plain system call on a child that is not waited for yet.
            None => unsafe {
                libc::kill(program, self.signal);
            },
        }
    }
}

/// All signals that can be taken, held back from this process from now on.
#[derive(Clone, Copy)]
pub struct Held {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Held {
    /// Blocks them all. Faults of our own code still kill: the kernel does not let those wait.
    ///
    /// # Errors
    /// The system refused.
    pub fn all() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigfillset fills the set before it is read.
        let set = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        };
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a filled set, and room for the mask of before.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, before.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: sigprocmask filled it, and it was zeroed before.
        Ok(Self { set, before: unsafe { before.assume_init() } })
    }

    /// Lets signals act on this process again as they did before; also what has arrived meanwhile. May be called
    /// between fork and exec.
    pub fn let_go(&self) {
        // SAFETY: filled by the system when they were held; sigprocmask is async-signal-safe.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }

    /// Waits for a signal, at most so long; `None` when the time is over.
    #[must_use]
    pub fn next(&self, at_most: Duration) -> Option<Arrived> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three structures live here; the signals of the set are blocked.
        let signal = unsafe { libc::sigtimedwait(&self.set, info.as_mut_ptr(), &timeout) };
        if signal <= 0 {
            return None;
        }
        // SAFETY: sigtimedwait filled it, and it was zeroed before.
        let info = unsafe { info.assume_init() };
        // Codes above zero are the kernel's own; of the others, timers and completed
        // asynchronous operations carry no sender.
        let sent = matches!(info.si_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
        // SAFETY: for these codes the pid field of the union is the one that was written.
        let from = sent.then(|| unsafe { info.si_pid() });
        // SAFETY: for SI_QUEUE the value is the field that was written.
        let value = (info.si_code == libc::SI_QUEUE).then(|| unsafe { info.si_value() }.sival_ptr as usize);
        Some(Arrived { signal, from, value })
    }
}

/// The signals that ask a process to end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Returns true if a signal asks a process to end.
#[must_use]
pub fn asks_to_end(signal: i32) -> bool {
    ENDING.contains(&signal)
}

/// A signal that asks this process to end and has not been taken yet.
#[must_use]
pub fn told_to_end() -> Option<i32> {
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: room for a set; zero is an empty one.
    let pending = unsafe {
        libc::sigpending(pending.as_mut_ptr());
        pending.assume_init()
    };
    // SAFETY: a set that is filled, and numbers of signals that there are.
    let is_pending = |signal: i32| unsafe { libc::sigismember(&pending, signal) } == 1;
    ENDING.into_iter().find(|signal| is_pending(*signal) && !is_ignored(*signal))
}

/// Returns true if this process was made to ignore a signal, as `nohup` does.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the structure lives here, and zero is valid for all of it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// This process.
#[must_use]
pub fn own_pid() -> libc::pid_t {
    // SAFETY: getpid always works.
    unsafe { libc::getpid() }
}

/// The parent of a process.
fn parent(pid: libc::pid_t) -> Option<libc::pid_t> {
    Stat::now(pid.unsigned_abs()).map(|stat| stat.ppid.cast_signed())
}

/// Returns true if `pid` is `ancestor` or descends from it. A process that is gone descends from none.
fn descends_from(mut pid: libc::pid_t, ancestor: libc::pid_t) -> bool {
    // The bound stops a walk through parents that change under it.
    for _ in 0..128 {
        if pid == ancestor {
            return true;
        }
        match parent(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_sends_is_not_sent_again() {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH, libc::SIGHUP] {
            assert_eq!(decide(signal, Sender::Kernel, false), Verdict::Drop);
        }
    }

    #[test]
    fn what_is_sent_to_us_alone_is_passed_on() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGTSTP, libc::SIGWINCH, 40] {
            assert_eq!(decide(signal, Sender::Process, false), Verdict::PassOn);
        }
    }

    #[test]
    fn what_is_sent_to_the_whole_group_is_not_sent_again() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGHUP, libc::SIGTSTP] {
            assert_eq!(decide(signal, Sender::ToGroup, true), Verdict::Drop);
        }
        assert_eq!(decide(libc::SIGCONT, Sender::ToGroup, false), Verdict::WakeIfStopped);
    }

    #[test]
    fn a_hang_up_that_only_the_session_leader_gets_reaches_the_program() {
        assert_eq!(decide(libc::SIGHUP, Sender::Kernel, true), Verdict::PassOn);
    }

    #[test]
    fn an_alarm_set_before_exec_reaches_the_program() {
        assert_eq!(decide(libc::SIGALRM, Sender::Kernel, false), Verdict::PassOn);
    }

    #[test]
    fn what_the_program_sends_to_its_group_does_not_come_back() {
        assert_eq!(decide(libc::SIGTERM, Sender::Program, false), Verdict::Drop);
        assert_eq!(decide(libc::SIGTERM, Sender::Ourselves, false), Verdict::Drop);
        assert_eq!(decide(libc::SIGCHLD, Sender::Process, false), Verdict::Drop);
    }

    #[test]
    fn we_descend_from_our_parent_and_from_no_other() {
        let parent = parent(own_pid()).unwrap();
        assert!(descends_from(own_pid(), parent));
        assert!(!descends_from(parent, own_pid()));
        assert!(!descends_from(i32::MAX, own_pid()));
    }
}
