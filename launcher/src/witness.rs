//! Distinguishing a signal to the whole process group from one to this process alone.
//!
//! Both are the same to the process that they reach: number, sender, code. But a group's signal reaches all
//! its members. So a process that does nothing sits in the group as a witness, with all signals
//! blocked: what is pending there was sent to the group, and has reached the program already. There
//! is no reason to send the witness anything else.
//!
//! The kernel walks a group from its newest member to its oldest. The witness is younger than this
//! process, so what is pending here for the group's sake is pending there before.

use radrm_os::Process;

use super::signals::own_pid;

/// The witness; it goes with this value, and with this process.
pub struct Witness {
    pid: Option<libc::pid_t>,
    /// Signals that were pending at former witnesses and not accounted for yet, by bit.
    seen: u64,
}

impl Witness {
    /// Lets a witness sit down. Where there can be none, every signal is taken to be for this process
    /// alone.
    ///
    /// To be called while all signals are blocked.
    #[must_use]
    pub fn new() -> Self {
        Self { pid: sit_down(), seen: 0 }
    }

    /// Whether `signal`, which this process has just taken, was sent to the group. Answers once.
    pub fn saw(&mut self, signal: i32) -> bool {
        let Some(bit) = u32::try_from(signal - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)) else {
            return false;
        };
        if self.pid.is_some_and(|pid| pending(pid) & bit != 0) {
            // Only its end clears what is pending there. The next one sits down first, so that no
            // signal falls between the two.
            let next = sit_down();
            self.dismiss();
            self.pid = next;
        }
        let seen = self.seen & bit != 0;
        self.seen &= !bit;
        seen
    }

    /// Ends the witness and keeps what it has seen.
    fn dismiss(&mut self) {
        let Some(pid) = self.pid.take() else { return };
        self.seen |= pending(pid);
        // SAFETY: plain system calls on a child that nothing else waits for; __WALL, since its end
        // sends no signal.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Signals that are pending for a process, by bit.
fn pending(pid: libc::pid_t) -> u64 {
    Process(pid.cast_unsigned()).pending_signals()
}

/// Makes the process.
fn sit_down() -> Option<libc::pid_t> {
    let parent = own_pid();
    // Like fork, but the end sends no signal, and waiting for any child does not find this one: the
    // program's own end and those of adopted descendants are all that is waited for.
    //
    // SAFETY: the child has a copy of this memory, and until its end it does nothing but system calls
    // that need no state of the C library.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if pid == 0 {
            sit(parent);
        }
        libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)
    }
}

/// The witness's life. Signals are blocked as they were in its parent; SIGKILL and SIGSTOP do not mind.
fn sit(parent: libc::pid_t) -> ! {
    // SAFETY: plain system calls of this process. No file of its parent's stays open, so that the
    // reader of a pipe of the program sees its end.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent || libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) != 0 {
            // Without a way to close them all there is no witness (Linux before 5.9).
            libc::_exit(0);
        }
        loop {
            libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The behaviour needs a process group of its own: see `radrm/tests/cli/signals.rs`.

    #[test]
    fn a_witness_sees_only_what_reaches_it_and_goes() {
        // SAFETY: all signals are blocked in this thread, and a witness made by it inherits that.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        }
        let mut witness = Witness::new();
        let pid = witness.pid.expect("a witness");
        assert!(!witness.saw(libc::SIGUSR1));
        // SAFETY: a signal to our own child.
        unsafe {
            libc::kill(pid, libc::SIGUSR1);
            libc::kill(pid, libc::SIGTERM);
        }
        assert!(witness.saw(libc::SIGUSR1));
        assert_ne!(witness.pid, Some(pid), "a new one without it");
        assert!(!witness.saw(libc::SIGUSR1), "once");
        assert!(witness.saw(libc::SIGTERM), "what the former one saw is not forgotten");
        let last = witness.pid.expect("a witness");
        drop(witness);
        assert!(!Process(last.cast_unsigned()).exists());
    }
}
