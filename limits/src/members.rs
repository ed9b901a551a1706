//! Processes of a ledger, of those that the ledger names.
//!
//! A ledger is its owner's to write, and names any process. One that has joined it is its owner's and has this very file
//! mapped.

use std::collections::BTreeSet;

use radrm_os::{Mapped, Process};

/// Looks at ledgers. Each process is read once.
#[derive(Debug, Default)]
pub struct Members {
    mapped: Mapped,
}

/// File of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct LedgerFile {
    /// User id of its owner.
    pub owner: u32,
    /// Device and inode.
    pub id: (u64, u64),
}

impl Members {
    /// Returns true if a process that a ledger names has joined it. `None`, a process of another pid namespace, counts: no
    /// process of this one is named. So does a process that this user may not ask for.
    pub fn have(&mut self, file: LedgerFile, pid: Option<u32>) -> bool {
        let Some(process) = pid.map(Process) else { return true };
        let is_owners = process.users().is_none_or(|(real, _)| real == file.owner);
        is_owners && self.mapped.has(process, file.id) != Some(false)
    }

    /// Users whose processes were not all read.
    #[must_use]
    pub fn beyond(&self) -> &BTreeSet<u32> {
        self.mapped.beyond()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_a_process_of_the_owner_that_maps_the_file_has_joined() {
        let (own, uid) = (std::process::id(), rustix::process::getuid().as_raw());
        let found = std::fs::metadata("/proc/self/exe").unwrap();
        let file = LedgerFile { owner: uid, id: (found.dev(), found.ino()) };
        let other = LedgerFile { id: (found.dev(), found.ino() + 1), ..file };
        let mut members = Members::default();
        assert!(members.have(file, Some(own)));
        assert!(!members.have(other, Some(own)));
        assert!(!members.have(LedgerFile { owner: uid + 1, ..file }, Some(own)));
        assert!(members.have(other, None), "another process has this number elsewhere");
    }
}
