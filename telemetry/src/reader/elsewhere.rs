//! Processes of other pid namespaces: whether they live, and which processes they are here.
//!
//! Their own pids mean nothing here. That they live is known by a lock ([`crate::lock`]); which pid they have here is found in
//! `/proc`, once for each, if their namespace lies inside the reader's and they may be seen.

use crate::layout::{SlotNamespace, entry_at};
use crate::lock;
use crate::pids::PidView;
use crate::process::{self, Stat};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// More are not remembered: a segment is not trusted.
const KNOWN: usize = 4096;

/// Searches in a second, all segments together: those of other users could ask the daemon for any number.
const SEARCHES: u32 = 64;

/// A slot and the generation of its process.
type Key = (usize, u32);

/// Processes that live, asked once for all segments that are looked at together: what they say of their processes is not
/// trusted, and a thousand slots may name one process.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<HashMap<(u32, u64), bool>>>);

impl Answers {
    fn is_running(&self, pid: u32, start: u64) -> bool {
        let Ok(mut known) = self.0.lock() else { return process::is_running(pid, start) };
        *known.entry((pid, start)).or_insert_with(|| process::is_running(pid, start))
    }
}

/// View that the reader of a segment has of its processes.
#[derive(Debug)]
pub(super) struct Sight {
    /// `None`: asked anew each time.
    answers: Option<Answers>,
    pids: PidView,
    /// Pid namespace of the launcher; 0: not known.
    launchers: u64,
    /// Pids here of processes of other namespaces; `None`: none was found.
    known: Mutex<HashMap<Key, Option<u32>>>,
}

/// A process as its slot has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whereabouts {
    pub key: Key,
    /// In its own namespace.
    pub pid: u32,
    pub start: u64,
    pub namespace: SlotNamespace,
}

impl Sight {
    pub fn of(launchers: u64) -> Self {
        Self { answers: None, pids: PidView::now(), launchers, known: Mutex::default() }
    }

    /// Takes from here on what is known of processes.
    pub fn share(&mut self, answers: &Answers) {
        self.answers = Some(answers.clone());
    }

    /// The same, with nothing found yet.
    pub fn anew(&self) -> Self {
        Self::of(self.launchers)
    }

    /// Returns true if the process's own pid is its pid here.
    fn sees(&self, it: Whereabouts) -> bool {
        let namespace = it.namespace.inode().unwrap_or(self.launchers);
        namespace == 0 || self.pids.sees(namespace)
    }

    /// Returns true if a process lives, as far as can be known: by its pid, by its lock. A process of another namespace
    /// than the launcher's that could take no lock may live.
    pub fn lives(&self, file: &File, it: Whereabouts) -> bool {
        if !self.sees(it) && it.namespace.is_locked() {
            return lock::is_held(file, entry_at(it.key.0)) != Ok(false);
        }
        match self.pid(it, true) {
            Some(pid) => match &self.answers {
                Some(answers) => answers.is_running(pid, it.start),
                None => process::is_running(pid, it.start),
            },
            None => it.namespace.inode().is_some(),
        }
    }

    /// Its pid here; `None`: not known. `lives`: it can be found now.
    pub fn pid(&self, it: Whereabouts, lives: bool) -> Option<u32> {
        if self.sees(it) {
            return Some(it.pid);
        }
        let Ok(mut known) = self.known.lock() else { return None };
        if let Some(pid) = known.get(&it.key) {
            return *pid;
        }
        if !lives
            || known.len() >= KNOWN
            || !SEARCHED.lock().is_ok_and(|mut searched| searched.may(Instant::now()))
        {
            return None;
        }
        let pid = find(it, it.namespace.inode().unwrap_or(self.launchers));
        known.insert(it.key, pid);
        pid
    }
}

/// Start of the second, and the number of searches in it.
struct Searches(Option<(Instant, u32)>);

static SEARCHED: Mutex<Searches> = Mutex::new(Searches(None));

impl Searches {
    /// Counts a search; returns true if it fits into this second.
    fn may(&mut self, now: Instant) -> bool {
        let this_second = self.0.filter(|(began, _)| now.duration_since(*began).as_secs() == 0);
        let (began, count) = this_second.unwrap_or((now, 0));
        self.0 = Some((began, count.saturating_add(1)));
        count < SEARCHES
    }
}

/// Looks for a process of a namespace that lies inside this one.
fn find(it: Whereabouts, namespace: u64) -> Option<u32> {
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let is_inside =
            fs::metadata(format!("/proc/{pid}/ns/pid")).is_ok_and(|found| found.ino() == namespace);
        is_inside
            && own_pid(*pid) == Some(it.pid)
            && Stat::now(*pid).is_some_and(|stat| stat.start == it.start)
    })
}

/// The pid that a process has in its own namespace.
fn own_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    pids.split_whitespace().next_back()?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    fn own(namespace: SlotNamespace) -> Whereabouts {
        let start = Stat::now(std::process::id()).expect("this process").start;
        Whereabouts { key: (3, 1), pid: std::process::id(), start, namespace }
    }

    #[test]
    fn a_process_of_the_launchers_namespace_is_known_by_its_pid() {
        let pid = Some(std::process::id());
        let here = PidView::now().namespace;
        for sight in [Sight::of(here), Sight::of(0)] {
            assert_eq!(sight.pid(own(SlotNamespace::LAUNCHERS), true), pid);
        }
        assert_eq!(Sight::of(1).pid(own(SlotNamespace::other(here, true)), true), pid, "the reader's");
    }

    #[test]
    fn a_process_that_is_nowhere_here_has_no_pid_and_is_looked_for_once() {
        let sight = Sight::of(PidView::now().namespace);
        let elsewhere = own(SlotNamespace::other(1, true));
        assert!(!sight.sees(elsewhere));
        assert_eq!((sight.pid(elsewhere, true), sight.known.lock().unwrap().len()), (None, 1));
        // One that has ended cannot be found, and is not looked for.
        let ended = Whereabouts { key: (4, 1), ..elsewhere };
        assert_eq!((sight.pid(ended, false), sight.known.lock().unwrap().len()), (None, 1));
    }

    #[test]
    fn searches_are_bounded() {
        let (mut searches, now) = (Searches(None), Instant::now());
        let mut allowed = |now| (0..2 * SEARCHES).filter(|_| searches.may(now)).count();
        assert_eq!(allowed(now), SEARCHES as usize);
        assert_eq!(allowed(now + Duration::from_millis(900)), 0);
        assert_eq!(allowed(now + Duration::from_secs(1)), SEARCHES as usize);
    }

    #[test]
    fn only_the_process_that_a_slot_means_is_found() {
        let here = PidView::now().namespace;
        let it = own(SlotNamespace::LAUNCHERS);
        assert_eq!(find(it, here), Some(std::process::id()));
        assert_eq!(find(Whereabouts { start: it.start + 1, ..it }, here), None);
    }

    #[test]
    fn a_lock_says_that_a_process_elsewhere_lives() {
        let file = tempfile::tempfile().unwrap();
        let here = PidView::now().namespace;
        let lives = |launchers, namespace| Sight::of(launchers).lives(&file, own(namespace));
        assert!(lives(here, SlotNamespace::other(1, false)), "one that could take no lock may live");
        assert!(!lives(here, SlotNamespace::other(1, true)), "its lock is free");
        // Of a launcher that is not here either: what is not found is gone.
        assert!(lives(here, SlotNamespace::LAUNCHERS) && !lives(1, SlotNamespace::LAUNCHERS));
    }
}
