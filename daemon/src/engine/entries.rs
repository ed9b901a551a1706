//! The jobs that are not over, and how much of them each user has.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;

use crate::store::Entry;

/// What jobs take of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) jobs: u32,
    /// On disk.
    pub(super) bytes: u64,
}

impl Room {
    pub(super) fn of(entry: &Entry) -> Self {
        Self { jobs: 1, bytes: entry.bytes }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { jobs: self.jobs + other.jobs, bytes: self.bytes + other.bytes }
    }
}

/// By number.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: BTreeMap<u64, Entry>,
    users: HashMap<u32, Room>,
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
        let room = self.users.entry(entry.uid).or_default();
        *room = room.and(Room::of(&entry));
        self.all.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: &u64) {
        let Some(entry) = self.all.remove(id) else { return };
        let Some(room) = self.users.get_mut(&entry.uid) else { return };
        (room.jobs, room.bytes) = (room.jobs - 1, room.bytes - entry.bytes);
        if room.jobs == 0 {
            self.users.remove(&entry.uid);
        }
    }

    /// What a user's jobs take.
    pub(super) fn of_user(&self, uid: u32) -> Room {
        self.users.get(&uid).copied().unwrap_or_default()
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
        let room = |jobs, bytes| Room { jobs, bytes };
        assert_eq!([7, 8, 9].map(|uid| entries.of_user(uid)), [room(2, 50), room(0, 0), room(1, 0)]);
        assert_eq!(entries.len(), 3);
    }
}
