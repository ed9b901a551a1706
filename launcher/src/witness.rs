//! Distinguishing a signal to the whole process group from one to this process alone.
//!
//! Both are the same to the process that they reach: number, sender, code. But a group's signal reaches all
//! its members. So a process that does nothing sits in the group as a witness, with all signals
//! blocked: what is pending there was sent to the group, and has reached the program already. There
//! is no reason to send the witness anything else.
//!
//! The kernel walks a group from its newest member to its oldest. The witness is younger than this
//! process, so what is pending here for the group's sake is pending there before.
//!
//! It uses the memory of this process: a copy of the page tables, and of each page that this process writes
//! later, would cost a program's start more than all that a witness does.

use std::ffi::{c_int, c_void};
use std::ptr;

use radrm_os::Process;

use super::child_stack::ChildStack;
use super::signals::own_pid;

/// Bytes of its stack: it makes a few system calls.
const STACK: usize = 16 << 10;

/// The witness; it goes with this value, and with this process.
pub struct Witness {
    seated: Option<Seated>,
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
        Self { seated: Seated::sit_down(), seen: 0 }
    }

    /// Returns true if `signal`, which this process has just taken, was sent to the group. Answers once.
    pub fn saw(&mut self, signal: i32) -> bool {
        let Some(bit) = u32::try_from(signal - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)) else {
            return false;
        };
        if self.seated.as_ref().is_some_and(|witness| witness.pending() & bit != 0) {
            // Only its end clears what is pending there. The next one sits down first, so that no
            // signal falls between the two.
            let former = std::mem::replace(&mut self.seated, Seated::sit_down());
            self.seen |= former.as_ref().map_or(0, Seated::pending);
        }
        let seen = self.seen & bit != 0;
        self.seen &= !bit;
        seen
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self::new()
    }
}

/// A process that sits in the group; it ends with this value.
struct Seated {
    pid: libc::pid_t,
    /// Stack on which it runs.
    _stack: ChildStack,
}

impl Seated {
    /// Makes the process.
    fn sit_down() -> Option<Self> {
        // The witness closes its files, so that the reader of a pipe of the program sees its end. Without a way to
        // close them all there is none (Linux before 5.9). It must not find that out itself: the C library would
        // write the error to the errno of this thread.
        //
        // SAFETY: no file has that number.
        if unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, 0) } != 0 {
            return None;
        }
        let (parent, stack) = (own_pid(), ChildStack::new(STACK).ok()?);
        let argument = ptr::without_provenance_mut(usize::try_from(parent).ok()?);
        // No signal tells its end, and waiting for any child does not find this one: the program's own end and
        // those of adopted descendants are all that is waited for.
        //
        // SAFETY: the stack outlives the process. On it `sit` runs, which writes nothing else.
        let pid = unsafe { libc::clone(sit, stack.top(), libc::CLONE_VM, argument) };
        (pid > 0).then_some(Self { pid, _stack: stack })
    }

    /// Signals that are pending there, by bit.
    fn pending(&self) -> u64 {
        Process(self.pid.cast_unsigned()).pending_signals()
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        // SAFETY: plain system calls on a child that nothing else waits for; __WALL, since its end
        // sends no signal.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL);
        }
    }
}

/// The witness's life. Signals are blocked as they were in its parent; SIGKILL and SIGSTOP do not mind.
///
/// It shares this thread's errno, so it may only make system calls that cannot fail.
extern "C" fn sit(parent: *mut c_void) -> c_int {
    // SAFETY: plain system calls of this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if usize::try_from(libc::getppid()) != Ok(parent.addr()) {
            libc::_exit(0);
        }
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
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
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        }
        let mut witness = Witness::new();
        let pid = witness.seated.as_ref().expect("a witness").pid;
        assert!(!witness.saw(libc::SIGUSR1));
        // SAFETY: a signal to our own child.
        unsafe {
            libc::kill(pid, libc::SIGUSR1);
            libc::kill(pid, libc::SIGTERM);
        }
        assert!(witness.saw(libc::SIGUSR1));
        assert_ne!(witness.seated.as_ref().map(|witness| witness.pid), Some(pid), "a new one without it");
        assert!(!witness.saw(libc::SIGUSR1), "once");
        assert!(witness.saw(libc::SIGTERM), "what the former one saw is not forgotten");
        let last = witness.seated.as_ref().expect("a witness").pid;
        drop(witness);
        assert!(!Process(last.cast_unsigned()).exists());
    }
}
