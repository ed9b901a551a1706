//! Energy of users: that of GPUs on which one user alone had jobs and no other process was. What several share has no owner,
//! nor has what a GPU took while it was not polled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Engine;
use super::outbox::Note;

/// Polls that may be missing, and the time that polls may take in any case: other jobs may have come and gone in a longer gap.
const MAX_POLLS: u32 = 5;
const MIN_GAP: Duration = Duration::from_secs(5);

impl Engine {
    /// GPUs were polled: adds up the energy of those that one user alone has.
    pub(super) fn add_energy(&mut self) {
        let mut users: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for entry in self.jobs.on_gpus() {
            for uuid in &entry.devices {
                users.entry(uuid).or_default().insert(entry.uid);
            }
        }
        let is_shared = |uuid: &str, uids: &BTreeSet<u32>| {
            uids.len() > 1 || self.node.outside().get(uuid).is_some_and(|processes| !processes.is_empty())
        };
        let within = (Duration::from_millis(self.config.poll_ms) * MAX_POLLS).max(MIN_GAP);
        let alone = users.into_iter().filter(|(uuid, uids)| !is_shared(uuid, uids));
        let added = alone.filter_map(|(uuid, uids)| {
            Some((uids.into_iter().next()?, self.node.energy_added(uuid, within)?))
        });
        for (uid, mj) in added.collect::<Vec<_>>() {
            *self.user_energy.entry(uid).or_default() += mj;
        }
    }

    /// Has what was added up written down.
    pub(super) fn note_energy(&mut self) {
        for (uid, mj) in std::mem::take(&mut self.user_energy) {
            self.outbox.note(Note::Energy(uid, self.now.at.0, mj));
        }
    }
}
