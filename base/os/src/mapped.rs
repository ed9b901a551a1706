//! Files that processes have mapped, asked for many files at once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Process;

/// Processor time that the lists of one user's processes may take together. The largest list that Linux allows takes a tenth
/// of it, a usual one a thousandth.
const MAX_TIME: Duration = Duration::from_millis(500);

/// Processor time that was spent for each user.
#[derive(Debug, Default)]
pub struct TimeByUser {
    spent: HashMap<Option<u32>, Duration>,
}

impl TimeByUser {
    /// Does `work` for a user, unless as much time as `most` was spent for this user before: then `None`.
    pub fn spend<T>(&mut self, uid: Option<u32>, most: Duration, work: impl FnOnce() -> T) -> Option<T> {
        let spent = self.spent.entry(uid).or_default();
        if *spent >= most {
            return None;
        }
        let began = thread_time();
        let result = work();
        *spent += thread_time().saturating_sub(began);
        Some(result)
    }
}

/// Processor time that this thread has taken.
#[must_use]
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The files that processes have mapped. Each list is read once.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Inodes by process; `None`: the list cannot be read, or the process is about to end.
    lists: HashMap<Process, Option<HashSet<u64>>>,
    time: TimeByUser,
    beyond: BTreeSet<u32>,
}

impl Mapped {
    /// As [`Process::has_mapped_file`]. Where the lists of its user take too long, no.
    pub fn has(&mut self, process: Process, id: (u64, u64)) -> Option<bool> {
        let uid = process.uid();
        let Self { lists, time, beyond } = self;
        let mut read = || {
            let list = lists.entry(process).or_insert_with(|| process.mapped_inodes());
            match list {
                Some(inodes) if !inodes.contains(&id.1) => Some(false),
                Some(_) => process.has_mapped_file(id),
                None => None,
            }
        };
        let found = time.spend(uid, MAX_TIME, &mut read);
        if found.is_none() {
            beyond.extend(uid);
        }
        found.unwrap_or(Some(false))
    }

    /// Users whose processes were not all read.
    #[must_use]
    pub fn beyond(&self) -> &BTreeSet<u32> {
        &self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_process_has_its_own_program_mapped() {
        let own = Process(std::process::id());
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        let mut mapped = Mapped::default();
        assert_eq!(mapped.has(own, (program.dev(), program.ino())), Some(true));
        assert_eq!(mapped.has(own, (program.dev(), u64::MAX)), Some(false));
        assert!(mapped.beyond().is_empty());
    }

    #[test]
    fn one_user_takes_no_more_time_than_allowed_and_nothing_from_others() {
        let mut time = TimeByUser::default();
        let most = Duration::from_millis(5);
        let busy = || {
            let began = thread_time();
            while thread_time().saturating_sub(began) < most {
                std::hint::spin_loop();
            }
        };
        assert!(time.spend(Some(1), most, busy).is_some());
        assert!(time.spend(Some(1), most, busy).is_none());
        assert!(time.spend(Some(2), most, busy).is_some());
    }
}
