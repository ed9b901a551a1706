//! The jobs that are not over, and what those of each user take on disk.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;

use crate::store::Entry;

/// By number.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: BTreeMap<u64, Entry>,
    /// Jobs of each user, and their bytes on disk.
    users: HashMap<u32, (u32, u64)>,
}

impl Deref for Entries {
    type Target = BTreeMap<u64, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Entries {
    /// Whose it is and what it takes does not change.
    pub(super) fn get_mut(&mut self, id: &u64) -> Option<&mut Entry> {
        self.all.get_mut(id)
    }

    pub(super) fn insert(&mut self, id: u64, entry: Entry) {
        self.remove(&id);
        let (jobs, bytes) = self.users.entry(entry.uid).or_default();
        (*jobs, *bytes) = (*jobs + 1, *bytes + entry.bytes);
        self.all.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: &u64) {
        let Some(entry) = self.all.remove(id) else { return };
        let Some((jobs, bytes)) = self.users.get_mut(&entry.uid) else { return };
        (*jobs, *bytes) = (*jobs - 1, *bytes - entry.bytes);
        if *jobs == 0 {
            self.users.remove(&entry.uid);
        }
    }

    /// What a user's jobs take on disk.
    pub(super) fn bytes_of(&self, uid: u32) -> u64 {
        self.users.get(&uid).map_or(0, |(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_users_sums_are_those_of_the_jobs() {
        let mut entries = Entries::default();
        let entry = |uid, bytes| Entry { uid, bytes, ..Entry::default() };
        for (id, uid, bytes) in [(1, 7, 10), (2, 8, 20), (3, 7, 30), (3, 7, 40), (4, 9, 0)] {
            entries.insert(id, entry(uid, bytes));
        }
        entries.remove(&2);
        entries.remove(&2);
        assert_eq!([7, 8, 9].map(|uid| entries.bytes_of(uid)), [50, 0, 0]);
        assert_eq!(entries.users.len(), 2, "a user without jobs is forgotten");
        assert_eq!(entries.len(), 3);
    }
}
