//! The process between `radrm-run` and the ranks of a job: it starts them, passes signals on, and ends as they did.
//!
//! It is a forked copy of `radrm-run` that has one thread and never returns. To its parent it is the program.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::child::{self, Program};
use crate::ending::{Ending, OUT_OF_TIME};
use crate::inherited::Inherited;
use crate::signals::{Held, own_pid};

/// Time for ranks to end after another one failed, as under torchrun.
const GRACE: Duration = Duration::from_secs(30);
/// Between two looks while nothing happens: an end of a rank wakes the agent by SIGCHLD.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A rank's process.
struct Rank {
    pid: libc::pid_t,
    ended: bool,
    stopped: bool,
}

/// Starts one process for each program and waits for all. Errors of the starts go to `errors`, which is closed when all
/// have been started.
pub(crate) fn run(programs: &[Program<'_>], inherited: &Inherited, errors: impl AsRawFd) -> ! {
    let parent = {
        // SAFETY: plain system call.
        unsafe { libc::getppid() }
    };
    let mut ranks = Vec::with_capacity(programs.len());
    for program in programs {
        // SAFETY: one thread, and the child only makes system calls until exec.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: plain system call: a rank does not outlive its agent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
            program.exec(inherited, errors.as_raw_fd());
        }
        if pid < 0 {
            child::report_error(errors.as_raw_fd());
            end_all(&ranks, libc::SIGKILL);
            break;
        }
        ranks.push(Rank { pid, ended: false, stopped: false });
    }
    // SAFETY: the descriptor is this process's own copy, and nothing uses it any more.
    unsafe { libc::close(errors.as_raw_fd()) };
    let ending = wait(&mut ranks, parent);
    match ending {
        // SAFETY: ends this process without the exit handlers of the process that it is a copy of.
        Ending::Exited(code) => unsafe { libc::_exit(code) },
        killed @ Ending::Killed { .. } => killed.imitate(),
    }
}

/// Waits until all have ended. Gives how the first ended that failed.
fn wait(ranks: &mut [Rank], parent: libc::pid_t) -> Ending {
    // They were blocked already in the process that this one is a copy of.
    let held = Held::all().ok();
    let mut failed: Option<Ending> = None;
    let mut kill_at: Option<Instant> = None;
    loop {
        while let Some(ending) = reap(ranks) {
            if ending != Ending::Exited(0) && failed.is_none() {
                failed = Some(ending);
                kill_at = Some(Instant::now() + GRACE);
                if ending != Ending::Exited(OUT_OF_TIME) {
                    end_all(ranks, libc::SIGTERM);
                }
            }
        }
        if ranks.iter().all(|rank| rank.ended) {
            return failed.unwrap_or(Ending::Exited(0));
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            kill_at = None;
            end_all(ranks, libc::SIGKILL);
        }
        if ranks.iter().all(|rank| rank.ended || rank.stopped) {
            ranks.iter_mut().for_each(|rank| rank.stopped = false);
            // SAFETY: a signal to this process: its parent sees that the program stopped.
            unsafe { libc::kill(own_pid(), libc::SIGSTOP) };
        }
        match held.and_then(|held| held.next(POLL_INTERVAL)) {
            // What the whole group got has reached the ranks too. The parent passes on what was meant for the program.
            Some(arrived) if arrived.from == Some(parent) => {
                ranks.iter().filter(|rank| !rank.ended).for_each(|rank| arrived.pass_on(rank.pid));
            }
            Some(_) => {}
            None if held.is_none() => std::thread::sleep(Duration::from_millis(20)),
            None => {}
        }
    }
}

/// Takes the next rank that ended, if there is one, and notes which have stopped.
fn reap(ranks: &mut [Rank]) -> Option<Ending> {
    loop {
        let mut status = 0;
        // SAFETY: children of this process, and the status lives here.
        let pid =
            unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
        if pid <= 0 {
            return None;
        }
        let Some(rank) = ranks.iter_mut().find(|rank| rank.pid == pid) else { continue };
        rank.stopped = libc::WIFSTOPPED(status);
        if let Some(ending) = Ending::from_status(status) {
            rank.ended = true;
            return Some(ending);
        }
    }
}

fn end_all(ranks: &[Rank], signal: i32) {
    for rank in ranks.iter().filter(|rank| !rank.ended) {
        // SAFETY: a child that was not waited for yet.
        unsafe { libc::kill(rank.pid, signal) };
    }
}
