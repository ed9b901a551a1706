//! Signals to the daemon, taken by one thread, which passes them on as messages.

use std::sync::mpsc::Sender;

use super::error::DaemonError;
use super::message::Message;

/// Blocks the daemon's signals, for [`take_signals`]. Called while this process has one thread.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is filled before it is used; this process has one thread.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Starts the thread.
///
/// # Errors
/// There is no thread to be had.
pub(crate) fn take_signals(set: libc::sigset_t, to: Sender<Message>) -> Result<(), DaemonError> {
    let wait = move || loop {
        let mut signal = 0;
        // SAFETY: a filled set and room for a number.
        unsafe { libc::sigwait(&raw const set, &raw mut signal) };
        let message = if signal == libc::SIGHUP { Message::Reload } else { Message::Stop };
        if to.send(message).is_err() {
            return;
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .stack_size(64 << 10)
        .spawn(wait)
        .map(|_| ())
        .map_err(DaemonError::NoThread)
}
