//! The processes of a job by /proc: processor time and resident memory of all of them.

use radrm_os::{Process, Stat};
use radrm_profile::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Processes that are read.
const MAX_PROCESSES: usize = 4096;

/// Use of the host by the processes, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeReading {
    /// Processor time since the job's start, as far as it can be seen.
    pub(crate) busy: Nanos,
    /// Resident memory now.
    pub(crate) resident: Bytes,
    /// Living processes.
    pub(crate) processes: u32,
    /// Their threads.
    pub(crate) threads: u32,
}

/// The processes of a job: a first one, those that are named, and whatever they start. One whose parent
/// has ended stays a part of it.
#[derive(Debug)]
pub(crate) struct Tree {
    known: BTreeMap<u32, Known>,
    /// Ticks of processes that ended and that no process of the job can have waited for.
    lost: u64,
    /// The sum never falls: what a parent adds up may come a moment after the child is gone.
    busy: Nanos,
    tick_ns: u64,
    page: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    started: u64,
    parent: u32,
    ticks: u64,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let (page, ticks) = radrm_os::host::page_and_ticks();
        Tree { known: BTreeMap::new(), lost: 0, busy: Nanos::ZERO, tick_ns: 1_000_000_000 / ticks, page }
    }

    /// Adds a process that belongs to the job.
    pub(crate) fn add(&mut self, pid: u32) {
        if pid == 0 || self.known.len() >= MAX_PROCESSES || self.known.contains_key(&pid) {
            return;
        }
        if let Some(stat) = Process(pid).stat() {
            let known = Known { started: stat.start, parent: stat.parent, ticks: ticks(&stat) };
            self.known.insert(pid, known);
        }
    }

    /// Finds processes that were started since. Reads a file for each thread.
    pub(crate) fn find_children(&mut self) {
        let mut unread: Vec<u32> = self.known.keys().copied().collect();
        while let Some(pid) = unread.pop() {
            for Process(child) in Process(pid).children() {
                let before = self.known.len();
                self.add(child);
                if self.known.len() > before {
                    unread.push(child);
                }
            }
        }
    }

    /// Processor time as of the last poll.
    pub(crate) fn busy(&self) -> Nanos {
        self.busy
    }

    /// Reads the figures of all known processes.
    pub(crate) fn poll(&mut self) -> TreeReading {
        let mut reading = TreeReading::default();
        let mut sum = 0u64;
        let mut gone = Vec::new();
        for (&pid, known) in &mut self.known {
            match Process(pid).stat().filter(|stat| stat.start == known.started) {
                Some(stat) => {
                    known.ticks = ticks(&stat);
                    known.parent = stat.parent;
                    sum = sum.saturating_add(known.ticks);
                    if !stat.is_dead() {
                        reading.resident = reading.resident + Bytes(stat.resident.saturating_mul(self.page));
                        reading.processes += 1;
                        reading.threads = reading.threads.saturating_add(stat.threads);
                    }
                }
                None => gone.push((pid, *known)),
            }
        }
        for (pid, _) in &gone {
            self.known.remove(pid);
        }
        for (_, known) in gone {
            // A parent that lives has waited for it and counts it.
            if !self.known.contains_key(&known.parent) {
                self.lost = self.lost.saturating_add(known.ticks);
            }
        }
        let busy = Nanos(sum.saturating_add(self.lost).saturating_mul(self.tick_ns));
        self.busy = self.busy.max(busy);
        reading.busy = self.busy;
        reading
    }
}

/// Processor time of a process and of those that it has waited for.
fn ticks(stat: &Stat) -> u64 {
    stat.own_ticks.saturating_add(stat.children_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn grandchildren_belong_to_it_also_when_their_parent_has_ended() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 > /dev/null & echo $!; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut orphan = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut orphan).unwrap();
        let mut tree = Tree::new();
        tree.add(child.id());
        tree.add(child.id());
        assert_eq!(tree.poll().processes, 1);
        tree.find_children();
        let reading = tree.poll();
        assert_eq!((reading.processes, reading.threads), (2, 2));
        assert!(reading.resident > Bytes(0));
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
        assert_eq!(tree.poll().processes, 1);
        // SAFETY: a signal to a process that this test has started and that has not been waited for.
        unsafe { libc::kill(orphan.trim().parse().unwrap(), libc::SIGKILL) };
    }

    #[test]
    fn the_time_of_the_dead_stays() {
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; read line"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tree = Tree::new();
        tree.add(child.id());
        while tree.poll().busy == Nanos::ZERO {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let before = tree.poll();
        assert_eq!(before.processes, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let after = tree.poll();
        assert_eq!(after.processes, 0);
        assert!(after.busy >= before.busy);
    }
}
