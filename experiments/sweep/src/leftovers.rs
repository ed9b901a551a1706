//! Processes of an attempt whose supervisor was killed, and of a program that is ended.

use std::ffi::OsStr;

use radrm_os::{Process, pidfd};
use rustix::process::{Signal, pidfd_send_signal};

use crate::attempt::MARK;

/// Looks at all processes so often: one that is being started while they are listed is found the next time.
const MAX_LOOKS: u32 = 10;

/// Kills the processes of this user whose environment has the mark of an attempt.
pub fn kill(mark: &str) {
    for _ in 0..MAX_LOOKS {
        let found = Process::all().filter(|process| is_marked(*process, mark));
        let killed = found.filter(|process| {
            // The descriptor first: the number can be another process's by now, and the descriptor cannot.
            let Ok(handle) = pidfd::open(process.0) else { return false };
            is_marked(*process, mark) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
        });
        if killed.count() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn is_marked(process: Process, mark: &str) -> bool {
    process.0 != std::process::id()
        && process.variable(MARK).is_some_and(|value| value == OsStr::new(mark))
        && !matches!(process.state(), Some(b'Z' | b'X'))
}
