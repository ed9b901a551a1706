//! Exits of processes that are no children of this one.
//!
//! Only a parent can wait for a process. But since Linux 6.15 the holder of a
//! pidfd of a process may ask for its exit status, once its parent has taken
//! note of it. Older kernels do not know the question; then the status stays
//! unknown.

use crate::source::Brief;
use radrm_os::pidfd;
use radrm_profile::model::{Exit, ProcessKey};
use rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

/// Descriptors in use at most, and as a share of those that this process may
/// have: the ends of processes beyond stay unknown.
const MAX_DESCRIPTORS: usize = 256;
const SHARE: u64 = 4;

/// Handles of the processes of a job.
#[derive(Debug)]
pub(crate) struct Exits {
    most: usize,
    living: HashMap<ProcessKey, OwnedFd>,
    gone: Vec<(ProcessKey, OwnedFd)>,
    /// Processes whose id is that of another pid namespace, and none that this one could wait for.
    elsewhere: HashSet<ProcessKey>,
}

impl Exits {
    pub(crate) fn new() -> Exits {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let most = usize::try_from(allowed).map_or(MAX_DESCRIPTORS, |allowed| allowed.min(MAX_DESCRIPTORS));
        Exits { most, living: HashMap::new(), gone: Vec::new(), elsewhere: HashSet::new() }
    }

    /// A process was met for the first time.
    pub(crate) fn met(&mut self, brief: &Brief) {
        match brief.pid {
            Some(pid) if brief.alive => self.watch(brief.key, pid),
            Some(_) => {}
            None => _ = self.elsewhere.insert(brief.key),
        }
    }

    /// Returns true if the id of a process means another process here, or none.
    pub(crate) fn is_elsewhere(&self, key: ProcessKey) -> bool {
        self.elsewhere.contains(&key)
    }

    /// Takes a handle of a process that was alive a moment ago. Its id could
    /// have been given to another one since only if all others had been used
    /// up in that moment.
    fn watch(&mut self, key: ProcessKey, pid: u32) {
        if self.living.len() + self.gone.len() >= self.most || self.living.contains_key(&key) {
            return;
        }
        if let Ok(handle) = pidfd::open(pid) {
            self.living.insert(key, handle);
        }
    }

    /// A process has ended, as far as this job is concerned. `by_exec`: it
    /// became another program, whose exit is none of its own.
    pub(crate) fn ended(&mut self, key: ProcessKey, by_exec: bool) {
        if let Some(handle) = self.living.remove(&key).filter(|_| !by_exec) {
            self.gone.push((key, handle));
        }
    }

    /// The exits that have become known since the last call.
    pub(crate) fn known(&mut self) -> Vec<(ProcessKey, Exit)> {
        let mut known = Vec::new();
        self.gone.retain(|(key, handle)| match exit_of(handle) {
            Some(exit) => {
                known.push((*key, exit));
                false
            }
            None => true,
        });
        known
    }
}

fn exit_of(handle: &OwnedFd) -> Option<Exit> {
    Some(match pidfd::exit(handle.as_fd())? {
        pidfd::Exit::Code(code) => Exit::Code(code),
        pidfd::Exit::Signal(signal) => Exit::Signal(signal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Returns true if this kernel answers at all.
    fn answers() -> bool {
        let version = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(6), Some(15))
    }

    #[test]
    fn exits_of_others_are_known_once_their_parents_know_them() {
        let mut exits = Exits::new();
        for (slot, (script, expected)) in
            [("exit 3", Exit::Code(3)), ("kill -TERM $$", Exit::Signal(15)), ("exit 0", Exit::Code(0))]
                .into_iter()
                .enumerate()
        {
            let key = ProcessKey { slot: slot as u32, generation: 1 };
            let mut child = Command::new("sh")
                .args(["-c", &format!("read x; {script}")])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            exits.watch(key, child.id());
            assert_eq!(exits.known(), []);
            drop(child.stdin.take());
            child.wait().unwrap();
            exits.ended(key, false);
            let expected = if answers() { vec![(key, expected)] } else { Vec::new() };
            assert_eq!(exits.known(), expected);
            assert_eq!(exits.known(), []);
        }
    }

    #[test]
    fn a_program_that_became_another_has_no_exit_of_its_own() {
        let mut exits = Exits::new();
        let key = ProcessKey::default();
        exits.watch(key, std::process::id());
        exits.ended(key, true);
        assert!(exits.living.is_empty() && exits.gone.is_empty());
    }
}
