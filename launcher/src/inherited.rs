//! State that this process was started with and that its child must find unchanged: the signal mask, the
//! dispositions, and which standard streams were closed.

use std::io;
use std::mem::MaybeUninit;

/// The signal state at the start of the process.
///
/// `radrm-run` changes three dispositions (SIGPIPE, so that a reader who leaves
/// cannot kill it, SIGXFSZ, so that a limit on file sizes only cuts off the
/// profile, and SIGCHLD, so that an inherited "ignore" does not swallow the
/// exit code) and blocks all signals while it waits. Everything else is never
/// touched, so putting these back is all that a child needs.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: libc::sigset_t,
    actions: [(libc::c_int, libc::sigaction); 3],
}

impl Inherited {
    /// Reads the state and makes this process safe to write reports from.
    ///
    /// Must run before anything opens a file: closed standard streams are
    /// filled with `/dev/null` that a child does not inherit, so that no file
    /// of ours can take their numbers.
    ///
    /// # Errors
    /// The system refused to report the signal state (it never does for these).
    pub fn take() -> io::Result<Self> {
        fill_closed_streams();
        let actions = [
            (libc::SIGPIPE, replace_action(libc::SIGPIPE, libc::SIG_IGN)?),
            (libc::SIGXFSZ, replace_action(libc::SIGXFSZ, libc::SIG_IGN)?),
            (libc::SIGCHLD, replace_action(libc::SIGCHLD, libc::SIG_DFL)?),
        ];
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a null new set only asks for the current mask, written to valid memory.
        let rc = unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), mask.as_mut_ptr()) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: sigprocmask filled it, and it was zeroed before.
        let mask = unsafe { mask.assume_init() };
        Ok(Self { mask, actions })
    }

    /// Puts mask and dispositions back; only async-signal-safe calls, for use between fork and exec.
    pub fn restore_in_child(&self) {
        for (signal, action) in &self.actions {
            // SAFETY: filled by the system at start; sigaction is async-signal-safe.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
        // SAFETY: filled by the system at start; sigprocmask is async-signal-safe.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut()) };
    }

    /// Lets signals act on this process again as they did at its start.
    pub fn unblock(&self) {
        // SAFETY: the mask was filled by the system at start.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut()) };
    }
}

/// Sets a disposition that is one of the two constants and gives the one before.
fn replace_action(signal: libc::c_int, to: libc::sighandler_t) -> io::Result<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction is plain data for which zero (no flags, empty mask) is valid.
    let mut after: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    after.sa_sigaction = to;
    // SAFETY: both structures live here; SIG_IGN and SIG_DFL run no code of ours.
    let rc = unsafe { libc::sigaction(signal, &after, before.as_mut_ptr()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sigaction filled it, and it was zeroed before.
    Ok(unsafe { before.assume_init() })
}

/// Gives descriptors 0 to 2 that are closed to `/dev/null`, with close-on-exec.
fn fill_closed_streams() {
    for fd in 0..=2 {
        // SAFETY: F_GETFD reads a flag; a closed descriptor only gives an error.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1 {
            continue;
        }
        let flags = if fd == 0 { libc::O_RDONLY } else { libc::O_WRONLY };
        // SAFETY: a constant C string. The lowest free number is `fd`, because all below are open.
        unsafe { libc::open(c"/dev/null".as_ptr(), flags | libc::O_CLOEXEC) };
    }
}
