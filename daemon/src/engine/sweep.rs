//! Leftovers of an attempt whose supervisor was killed: nothing waits for it any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{SendError, sync_channel};
use std::thread;
use std::time::Duration;

use radrm_attempt::leftovers;
use radrm_os::{Process, ProcessIdentity};

use crate::attempt::Attempt;
use crate::dry_run;
use crate::hooks;
use crate::supervisor;

/// Time for which the engine waits for a search of leftovers: their user may have thousands of processes, each with an environment
/// of megabytes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Does work on a thread of its own and waits for so long. `None`: it goes on, and `late` gets its result.
fn soon<T: Send + 'static>(
    patience: Duration,
    work: impl Fn() -> T + Send + Sync + 'static,
    late: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    // A channel without room: what is sent was received.
    let (to, done) = sync_channel(0);
    let work = Arc::new(work);
    let of_thread = Arc::clone(&work);
    let run = move || {
        if let Err(SendError(result)) = to.send(of_thread()) {
            late(result);
        }
    };
    match thread::Builder::new().name("leftovers".into()).spawn(run) {
        Ok(_) => done.recv_timeout(patience).ok(),
        // What is left must go, whatever it takes.
        Err(_) => Some(work()),
    }
}

/// Marks by which the processes of an attempt are known.
pub(super) struct Marks {
    uid: u32,
    supervisor: ProcessIdentity,
    /// True if the supervisor's number is no other process's, so that a session of this number is its own.
    session: bool,
    variables: [Vec<u8>; 2],
}

impl Marks {
    pub(super) fn new(uid: u32, supervisor: ProcessIdentity, (job, attempt): Attempt) -> Self {
        Self {
            uid,
            supervisor,
            session: supervisor.lives() || !Process(supervisor.pid).exists(),
            variables: supervisor::marks(job, attempt).map(String::into_bytes),
        }
    }

    /// Kills all processes of the attempt and returns them; `None`: the search takes long, and `late` gets them.
    pub(super) fn kill_all(self, late: impl FnOnce(BTreeSet<u32>) + Send + 'static) -> Option<BTreeSet<u32>> {
        soon(PATIENCE, move || leftovers::kill_all(|process| self.are_of(process)), late)
    }

    /// Returns true if a process is one that the attempt left: its user's (really or in effect), not older than the
    /// supervisor, in the supervisor's session or with the attempt's variables in its environment. Jobs of another
    /// daemon may have the same ones; they are below a supervisor.
    fn are_of(&self, process: Process) -> bool {
        let is_users = process.users().is_some_and(|(real, effective)| [real, effective].contains(&self.uid));
        let is_new = || process.start().is_some_and(|start| start >= self.supervisor.start);
        is_users && is_new() && (self.session && self.is_in_session(process) || self.has(process))
    }

    fn is_in_session(&self, process: Process) -> bool {
        // SAFETY: a plain system call.
        let session = unsafe { libc::getsid(process.0.cast_signed()) };
        session == self.supervisor.pid.cast_signed()
    }

    fn has(&self, process: Process) -> bool {
        let Some(environment) = process.environment() else { return false };
        let has = |variable: &Vec<u8>| environment.entries().any(|entry| entry == variable.as_slice());
        self.variables.iter().all(has) && !is_kept(process)
    }
}

/// Returns true if it is a supervisor, makes a dry run or runs an epilog, or is below such a process.
fn is_kept(process: Process) -> bool {
    let keeps = |process: &Process| {
        process
            .command()
            .split(' ')
            .nth(1)
            .is_some_and(|word| [supervisor::WORD, dry_run::WORD, hooks::WORD].contains(&word))
    };
    std::iter::successors(Some(process), |process| process.parent().filter(|parent| parent.0 > 1))
        .any(|process| keeps(&process))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[test]
    fn a_search_that_takes_long_is_not_waited_for_and_its_result_comes_later() {
        let at_once = soon(Duration::from_secs(600), || vec![7], |found| panic!("{found:?} comes twice"));
        assert_eq!(at_once, Some(vec![7]));
        let (release, hangs) = channel::<()>();
        let (to, late) = channel();
        let hangs = Mutex::new(hangs);
        let search = move || {
            let _ = hangs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            vec![8]
        };
        assert_eq!(soon(Duration::from_millis(1), search, move |found| to.send(found).unwrap()), None);
        drop(release);
        assert_eq!(late.recv(), Ok(vec![8]));
    }
}
