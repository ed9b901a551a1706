//! Memory traffic of processes, as the kernel's resctrl counts it (Intel RDT, AMD QoS; `Documentation/filesystems/resctrl.rst`).
//!
//! A monitoring group counts what its tasks, and whatever these start, move between the last-level cache and memory. One group
//! is made for each job, below `mon_groups`. Nothing is limited: that would be a control group.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use radrm_os::{Process, untrusted};

use super::error::MemoryError;

/// Event that counts all bytes of a domain of the last-level cache, also those of memory at other sockets.
const EVENT: &str = "mbm_total_bytes";

/// Bytes of a list of tasks that are read: a user has 32768 of them at most.
const MAX_TASKS: usize = 1 << 20;

/// Threads of a process that join: a user has 32768 of them at most.
const MAX_THREADS: usize = 1 << 15;

/// Memory traffic of groups of processes.
#[derive(Clone, Debug)]
pub(super) struct Resctrl {
    root: PathBuf,
}

impl Resctrl {
    /// Opens the file system that is mounted at `root`.
    ///
    /// # Errors
    /// It is not there, or does not count.
    pub(super) fn open(root: &Path) -> Result<Self, MemoryError> {
        let Some(features) = text(&root.join("info/L3_MON/mon_features")) else {
            return match root.join("info").is_dir() {
                true => Err(MemoryError::NotCounted(EVENT)),
                false => Err(MemoryError::NotMounted(root.to_owned())),
            };
        };
        match features.lines().any(|feature| feature.trim() == EVENT) {
            true => Ok(Self { root: root.to_owned() }),
            false => Err(MemoryError::NotCounted(EVENT)),
        }
    }

    fn group(&self, name: &str) -> PathBuf {
        self.root.join("mon_groups").join(name)
    }

    /// Makes a group of a process and what it starts from now on.
    ///
    /// # Errors
    /// Too many groups, no rights, or the process is in a control group of another program.
    pub(super) fn begin(&self, name: &str, pid: u32) -> Result<(), MemoryError> {
        let group = self.group(name);
        match fs::create_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(MemoryError::NoGroup)?,
        }
        fs::write(group.join("tasks"), format!("{pid}\n")).map_err(|error| {
            self.end(name);
            MemoryError::NoGroup(error)
        })
    }

    /// Bytes that a group has moved so far, over all domains. `None` if a domain does not say: its value is a word then.
    ///
    /// `members` are the processes that belong to it. Those that were started before it was there join it now, and `None`
    /// says that what they moved before is not in the sum. Once there is a sum all that they start is in the group, and
    /// `members` is better empty.
    pub(super) fn bytes(&self, name: &str, members: &[u32]) -> Option<u64> {
        if self.join(name, members)? > 0 {
            return None;
        }
        let domains = fs::read_dir(self.group(name).join("mon_data")).ok()?;
        let mut sum = None;
        for domain in domains {
            let domain = domain.ok()?;
            if !domain.file_name().to_string_lossy().starts_with("mon_L3_") {
                continue;
            }
            let bytes = text(&domain.path().join(EVENT))?.trim().parse().ok()?;
            sum = Some(sum.unwrap_or(0_u64).saturating_add(bytes));
        }
        sum
    }

    /// Adds the members that a group does not have, with all their threads; returns how many were added. `None` if that
    /// cannot be done.
    fn join(&self, name: &str, members: &[u32]) -> Option<usize> {
        // The kernel walks all threads of the machine for such a list.
        if members.is_empty() {
            return Some(0);
        }
        let tasks = self.group(name).join("tasks");
        let listed = untrusted::read(&tasks, MAX_TASKS).ok()?;
        let listed = std::str::from_utf8(&listed).ok()?;
        let listed: HashSet<u32> = listed.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let mut joined = 0;
        for pid in members.iter().filter(|pid| !listed.contains(pid)) {
            let mut tasks = File::options().append(true).open(&tasks).ok()?;
            // One that has ended since has none, and one that is not there yet may start others beside it.
            let mut known = HashSet::new();
            loop {
                let new: Vec<u32> =
                    Process(*pid).threads().into_iter().filter(|id| known.insert(*id)).collect();
                if new.is_empty() || known.len() > MAX_THREADS {
                    break;
                }
                for thread in new {
                    match tasks.write_all(format!("{thread}\n").as_bytes()) {
                        Ok(()) => joined += 1,
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                        Err(_) => return None,
                    }
                }
            }
        }
        Some(joined)
    }

    /// Removes a group. Its tasks belong to the file system's root then.
    pub(super) fn end(&self, name: &str) {
        let _ = fs::remove_dir(self.group(name));
    }
}

/// A short text of the file system.
fn text(path: &Path) -> Option<String> {
    String::from_utf8(untrusted::read(path, 4096).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with the files and values of the kernel's documentation.
    fn tree(features: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("info/L3_MON")).unwrap();
        fs::write(root.path().join("info/L3_MON/mon_features"), features).unwrap();
        fs::create_dir(root.path().join("mon_groups")).unwrap();
        root
    }

    const FEATURES: &str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";

    fn count(root: &Path, domain: &str, value: &str) {
        let folder = root.join("mon_groups/radrm.5678.1/mon_data").join(domain);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mbm_total_bytes"), value).unwrap();
        fs::write(folder.join("mbm_local_bytes"), "765207488\n").unwrap();
    }

    #[test]
    fn traffic_of_a_group_is_the_sum_over_all_domains() {
        let root = tree(FEATURES);
        let traffic = Resctrl::open(root.path()).unwrap();
        traffic.begin("radrm.5678.1", 5678).unwrap();
        let tasks = root.path().join("mon_groups/radrm.5678.1/tasks");
        assert_eq!(fs::read_to_string(tasks).unwrap(), "5678\n");
        assert_eq!(traffic.bytes("radrm.5678.1", &[5678]), None, "no domain, no figure");
        count(root.path(), "mon_L3_00", "779247936\n");
        assert_eq!(traffic.bytes("radrm.5678.1", &[5678]), Some(779_247_936));
        count(root.path(), "mon_L3_01", "23189832\n");
        assert_eq!(traffic.bytes("radrm.5678.1", &[5678]), Some(779_247_936 + 23_189_832));
        assert_eq!(traffic.bytes("radrm.5679.1", &[]), None);
    }

    #[test]
    fn a_process_that_was_started_before_the_group_joins_and_the_sum_is_unknown_once() {
        let root = tree(FEATURES);
        let traffic = Resctrl::open(root.path()).unwrap();
        traffic.begin("radrm.5678.1", 5678).unwrap();
        count(root.path(), "mon_L3_00", "7\n");
        let tasks = root.path().join("mon_groups/radrm.5678.1/tasks");
        let own = std::process::id();
        // No process has this number.
        let ended = u32::MAX >> 1;
        let bytes = || traffic.bytes("radrm.5678.1", &[5678, own, ended]);
        assert_eq!(bytes(), None);
        let listed = fs::read_to_string(&tasks).unwrap();
        assert!(
            listed.starts_with("5678\n") && listed.lines().any(|line| line == own.to_string()),
            "{listed}"
        );
        assert_eq!(bytes(), Some(7));
        fs::write(&tasks, "").unwrap();
        assert_eq!(traffic.bytes("radrm.5678.1", &[]), Some(7), "none is looked for");
        assert_eq!(fs::read_to_string(&tasks).unwrap(), "");
    }

    #[test]
    fn a_domain_that_does_not_count_makes_the_sum_unknown() {
        let root = tree(FEATURES);
        let traffic = Resctrl::open(root.path()).unwrap();
        traffic.begin("radrm.5678.1", 5678).unwrap();
        for word in ["Unavailable\n", "Unassigned\n", "Error\n", ""] {
            count(root.path(), "mon_L3_00", "779247936\n");
            count(root.path(), "mon_L3_01", word);
            assert_eq!(traffic.bytes("radrm.5678.1", &[5678]), None, "{word}");
        }
    }

    #[test]
    fn a_system_that_counts_nothing_says_why() {
        let none = tempfile::tempdir().unwrap();
        let why = |root: &Path| Resctrl::open(root).unwrap_err().to_string();
        assert!(why(none.path()).contains("is not mounted"));
        let only_occupancy = tree("llc_occupancy\n");
        assert!(why(only_occupancy.path()).contains("no mbm_total_bytes"));
        fs::create_dir_all(none.path().join("info/L3")).unwrap();
        assert!(why(none.path()).contains("no mbm_total_bytes"), "without monitoring");
        let full = tree(FEATURES);
        fs::remove_dir(full.path().join("mon_groups")).unwrap();
        let refused = Resctrl::open(full.path()).unwrap().begin("radrm.1.1", 1).unwrap_err();
        assert!(refused.to_string().starts_with("resctrl takes no group: "), "{refused}");
    }
}
