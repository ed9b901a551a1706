//! Ending the way the program ended, so that the parent of `radrm-run` sees the same.

use std::process;

/// `radrm-run` itself failed.
pub const FAILED: i32 = 125;
/// The program stopped itself when its time was up, as `timeout` has it.
pub const OUT_OF_TIME: i32 = 124;
/// The program exists and cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;
/// There is no such program.
pub const NOT_FOUND: i32 = 127;

/// End of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It returned this code.
    Exited(i32),
    /// This signal killed it.
    Killed {
        /// The signal's number.
        signal: i32,
        /// The kernel wrote a core file.
        core: bool,
    },
}

impl Ending {
    /// Reads a status of `wait4` that says the process is gone; `None` if it is only stopped or
    /// continued.
    #[must_use]
    pub fn from_status(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Self::Killed { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) })
        } else {
            None
        }
    }

    /// The code a shell would show in `$?`.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Killed { signal, .. } => 128 + signal,
        }
    }

    /// Ends this process likewise: with the same code, or by the same signal (which writes no
    /// core file a second time).
    pub fn imitate(self) -> ! {
        if let Self::Killed { signal, .. } = self {
            die_by(signal);
        }
        process::exit(self.shell_code())
    }
}

/// Kills this process by `signal`; returns only if that is impossible.
fn die_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on this process; the structures live here. Not dumpable also
    // keeps a core handler behind a pipe from being started.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_a_stopped_process_is_no_ending() {
        assert_eq!(Ending::from_status(0x137f), None);
        assert_eq!(Ending::from_status(0xffff), None);
        assert_eq!(Ending::from_status(0x0300), Some(Ending::Exited(3)));
        assert_eq!(Ending::from_status(0x000f), Some(Ending::Killed { signal: 15, core: false }));
        assert_eq!(Ending::from_status(0x0086), Some(Ending::Killed { signal: 6, core: true }));
    }
}
