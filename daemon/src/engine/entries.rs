//! The jobs that are not over, and what those of each user take on disk.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use radrm_collector::dataset::ProgramKey;
use radrm_protocol::spec::Spec;
use radrm_text::Untrusted;

use super::entry_index::EntryIndex;
use super::programs::program;
use crate::store::Entry;

/// Jobs of one program of a user that are resolved alike, by what their needs follow from.
type Alike = BTreeMap<u64, BTreeSet<u64>>;

/// By number.
#[derive(Debug, Default)]
pub(super) struct Entries {
    all: BTreeMap<u64, Entry>,
    /// Jobs of each user, and their bytes on disk.
    users: HashMap<u32, (u32, u64)>,
    /// Jobs by user and program.
    programs: HashMap<(u32, String), Alike>,
    /// Where each job stands there.
    places: HashMap<u64, ((u32, String), u64)>,
    /// Index of the jobs, and those that may have changed since it was read.
    index: RefCell<EntryIndex>,
    changed: RefCell<BTreeSet<u64>>,
}

/// Key of the jobs whose needs follow from the same, beside the runs of its program, and those that it has.
fn place(entry: &Entry) -> ((u32, String), u64) {
    let key = program(&entry.spec).as_str().to_owned();
    // Jobs of an array differ in their place only.
    let spec = Spec { task: None, array: None, name: Untrusted::default(), ..entry.spec.clone() };
    let mut hasher = DefaultHasher::new();
    let texts = [serde_json::to_string(&spec), serde_json::to_string(&entry.needs)];
    texts.into_iter().for_each(|text| text.unwrap_or_default().hash(&mut hasher));
    ((entry.uid, key), hasher.finish())
}

impl Deref for Entries {
    type Target = BTreeMap<u64, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Entries {
    /// Mutable entry of a job. Its owner and its bytes on disk must not change: the sums per user count them.
    pub(super) fn get_mut(&mut self, id: &u64) -> Option<&mut Entry> {
        let entry = self.all.get_mut(id)?;
        self.changed.get_mut().insert(*id);
        Some(entry)
    }

    /// Index of the jobs as they are now.
    pub(super) fn index(&self) -> Ref<'_, EntryIndex> {
        let changed = std::mem::take(&mut *self.changed.borrow_mut());
        if !changed.is_empty() {
            let mut index = self.index.borrow_mut();
            changed.into_iter().for_each(|job| index.update(job, self.all.get(&job)));
        }
        self.index.borrow()
    }

    /// Jobs that do not wait any more, by number.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Entry> {
        let jobs: Vec<u64> = self.index().begun().iter().copied().collect();
        jobs.into_iter().filter_map(|job| self.all.get(&job))
    }

    pub(super) fn insert(&mut self, id: u64, entry: Entry) {
        self.remove(&id);
        let (jobs, bytes) = self.users.entry(entry.uid).or_default();
        (*jobs, *bytes) = (*jobs + 1, *bytes + entry.bytes);
        self.all.insert(id, entry);
        self.changed.get_mut().insert(id);
        self.sort_in(id);
    }

    /// Takes note of changed needs of a job.
    pub(super) fn sort_in(&mut self, id: u64) {
        self.take_out(id);
        let Some(place) = self.all.get(&id).map(place) else { return };
        self.programs.entry(place.0.clone()).or_default().entry(place.1).or_default().insert(id);
        self.places.insert(id, place);
    }

    fn take_out(&mut self, id: u64) {
        let Some((program, hash)) = self.places.remove(&id) else { return };
        let Some(alike) = self.programs.get_mut(&program) else { return };
        if let Some(jobs) = alike.get_mut(&hash) {
            jobs.remove(&id);
            if jobs.is_empty() {
                alike.remove(&hash);
            }
        }
        if alike.is_empty() {
            self.programs.remove(&program);
        }
    }

    /// Jobs of a user's program, those together that are resolved alike.
    pub(super) fn alike(&self, uid: u32, program: &ProgramKey) -> impl Iterator<Item = &BTreeSet<u64>> {
        self.programs.get(&(uid, program.as_str().to_owned())).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn remove(&mut self, id: &u64) {
        let Some(entry) = self.all.remove(id) else { return };
        self.changed.get_mut().insert(*id);
        self.take_out(*id);
        let Some((jobs, bytes)) = self.users.get_mut(&entry.uid) else { return };
        (*jobs, *bytes) = (*jobs - 1, *bytes - entry.bytes);
        if *jobs == 0 {
            self.users.remove(&entry.uid);
        }
    }

    /// Users who have jobs.
    pub(super) fn users(&self) -> impl Iterator<Item = u32> {
        self.users.keys().copied()
    }

    /// Disk use of a user's jobs, bytes.
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

    #[test]
    fn jobs_of_a_program_are_together_as_long_as_their_needs_are_alike() {
        let mut entries = Entries::default();
        let spec = |mem| Spec { command: vec!["p".to_owned()], gpus: 1, mem, ..Spec::default() };
        let entry = |uid, mem| Entry { uid, spec: spec(mem), ..Entry::default() };
        for (id, uid, mem) in [(1, 7, None), (2, 7, None), (3, 7, Some(5)), (4, 8, None)] {
            entries.insert(id, entry(uid, mem));
        }
        let key = program(&spec(None));
        let groups = |entries: &Entries| {
            let mut groups: Vec<Vec<u64>> =
                entries.alike(7, &key).map(|ids| ids.iter().copied().collect()).collect();
            groups.sort();
            groups
        };
        assert_eq!(groups(&entries), [vec![1, 2], vec![3]]);
        entries.get_mut(&2).unwrap().needs = Some(radrm_scheduler_core::Needs::default());
        entries.sort_in(2);
        assert_eq!(groups(&entries), [vec![1], vec![2], vec![3]]);
        [1, 2, 3, 4].iter().for_each(|id| entries.remove(id));
        assert!(entries.programs.is_empty() && entries.places.is_empty());
    }
}
