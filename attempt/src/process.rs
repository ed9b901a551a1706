//! Signals by descriptor.
//!
//! A number may be given to another process as soon as its owner has been waited for. A descriptor cannot: it is opened
//! first, then the process is compared with the one that is meant, and the signal goes through the descriptor.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};

use radrm_os::{Process, ProcessIdentity, pidfd};

/// `PIDFD_SIGNAL_PROCESS_GROUP`, from Linux 6.9 on.
const PROCESS_GROUP: libc::c_uint = 1 << 2;

/// A process that a descriptor holds.
#[derive(Debug)]
pub struct HeldProcess {
    who: ProcessIdentity,
    handle: OwnedFd,
}

impl HeldProcess {
    /// Holds this process; `None` if it is gone, or no descriptor is left.
    #[must_use]
    pub fn of(who: ProcessIdentity) -> Option<Self> {
        let handle = pidfd::open(who.pid).ok()?;
        // Compared after the descriptor was opened: it cannot be a later process's.
        who.lives().then_some(Self { who, handle })
    }

    /// The process.
    #[must_use]
    pub const fn identity(&self) -> ProcessIdentity {
        self.who
    }

    /// Sends a signal. Returns false if the process has been waited for, or belongs to another user.
    pub fn signal(&self, number: i32) -> bool {
        self.send(number, 0).is_ok()
    }

    fn send(&self, number: i32, flags: libc::c_uint) -> Result<(), rustix::io::Errno> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        let handle = self.handle.as_raw_fd();
        // SAFETY: a plain system call; the descriptor is open as long as `self` is there.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, number, no_info, flags) };
        match sent {
            0 => Ok(()),
            _ => Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::SRCH)),
        }
    }
}

/// Sends a signal to the process group that this process leads. Returns false if the process is gone.
pub fn signal_group(leader: ProcessIdentity, number: i32) -> bool {
    let Some(held) = HeldProcess::of(leader) else { return false };
    match held.send(number, PROCESS_GROUP) {
        Err(rustix::io::Errno::INVAL) => {
            // SAFETY: a plain system call. An older kernel has no other; the leader was just seen to live.
            unsafe { libc::kill(-leader.pid.cast_signed(), number) == 0 }
        }
        sent => sent.is_ok(),
    }
}

/// All processes below this one, parents first.
#[must_use]
pub fn below(pid: u32) -> Vec<ProcessIdentity> {
    let mut children: BTreeMap<u32, Vec<ProcessIdentity>> = BTreeMap::new();
    for process in Process::all() {
        if let Some(stat) = process.stat() {
            let who = ProcessIdentity { pid: process.0, start: stat.start };
            children.entry(stat.parent).or_default().push(who);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut at = 0;
    while at < found.len() {
        let more = children.remove(&found[at].pid).unwrap_or_default();
        found.extend(more);
        at += 1;
    }
    found
}

/// Kills everything below this process for which `spare` is false; returns the numbers of what was killed.
pub fn kill_below(root: ProcessIdentity, spare: impl Fn(u32) -> bool) -> BTreeSet<u32> {
    let found = below(root.pid);
    // Listed below this very process, and not below a later one of its number.
    if !root.lives() {
        return BTreeSet::new();
    }
    let held = found.into_iter().filter(|who| !spare(who.pid)).filter_map(HeldProcess::of);
    held.filter(|held| held.signal(libc::SIGKILL)).map(|held| held.who.pid).collect()
}

/// Kills a process and everything below it; returns the numbers of what was killed.
pub fn kill_tree(root: ProcessIdentity) -> BTreeSet<u32> {
    let mut killed = kill_below(root, |_| false);
    if HeldProcess::of(root).is_some_and(|held| held.signal(libc::SIGKILL)) {
        killed.insert(root.pid);
    }
    killed
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").process_group(0).spawn().unwrap()
    }

    /// A process whose number was given to this child: the start time is an earlier one's.
    fn earlier(child: &Child) -> ProcessIdentity {
        let now = ProcessIdentity::of(child.id()).unwrap();
        ProcessIdentity { start: now.start - 1, ..now }
    }

    fn ends_by_own_kill(mut child: Child) -> bool {
        let untouched = matches!(child.try_wait(), Ok(None));
        child.kill().unwrap();
        child.wait().unwrap();
        untouched
    }

    #[test]
    fn a_reused_pid_is_never_signalled() {
        let other = sleeper();
        let gone = earlier(&other);
        assert!(HeldProcess::of(gone).is_none());
        assert!(!signal_group(gone, libc::SIGKILL));
        assert!(kill_tree(gone).is_empty());
        // Nor is what is below the later process.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        assert!(kill_below(earlier(&shell), |_| false).is_empty());
        assert!(Process(below).stat().is_some_and(|stat| !stat.is_dead()));
        kill_below(ProcessIdentity::of(shell.id()).unwrap(), |_| false);
        shell.wait().unwrap();
        assert!(ends_by_own_kill(other));
    }

    #[test]
    fn a_held_process_that_was_waited_for_gets_no_signal() {
        let mut child = sleeper();
        let held = HeldProcess::of(ProcessIdentity::of(child.id()).unwrap()).unwrap();
        assert!(held.signal(libc::SIGTERM));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(!held.signal(libc::SIGTERM));
    }

    #[test]
    fn a_signal_to_a_group_reaches_all_of_it_and_nothing_else() {
        let mut leader = Command::new("sh").args(["-c", "sleep 60 & wait"]).process_group(0).spawn().unwrap();
        let other = sleeper();
        assert!(signal_group(ProcessIdentity::of(leader.id()).unwrap(), libc::SIGTERM));
        assert_eq!(leader.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(ends_by_own_kill(other));
    }

    #[test]
    fn a_tree_is_killed_as_a_whole_but_for_what_is_spared() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; sleep 61 & echo $!; exec sleep 62"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut pid = || lines.next().unwrap().unwrap().parse::<u32>().unwrap();
        let (first, second) = (pid(), pid());
        let root = ProcessIdentity::of(shell.id()).unwrap();
        let listed: BTreeSet<u32> = below(root.pid).into_iter().map(|who| who.pid).collect();
        assert_eq!(listed, BTreeSet::from([first, second]));
        assert_eq!(kill_below(root, |pid| pid == second), BTreeSet::from([first]));
        let killed = kill_tree(root);
        assert!(killed.contains(&second) && killed.contains(&root.pid), "{killed:?}");
        assert_eq!(shell.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
