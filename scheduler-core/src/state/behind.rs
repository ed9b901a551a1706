//! Memory under limits of users and groups that is kept for a job that waits for it.
//!
//! No devices are kept for such a job: what others give back does not help it. Those whose jobs count towards the same limit start
//! nothing before it on the devices that it waits for, or they would use up what comes free; on others, and without GPUs, they do.

use std::collections::BTreeSet;

use radrm_base::UserId;

use super::State;
use super::kept_memory::KeptMemory;
use crate::job::JobId;
use crate::place::{eligible, exceeded, waits_for_own};

impl State {
    /// Keeps memory under the limits that a job exceeds, where no devices are kept for it.
    pub(super) fn keep_memory(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(&id).filter(|record| !record.quotas.is_empty()) else { return };
        let (ask, who) = (self.ask_of(record), self.claimant(id));
        let (mut devices, mut over) = (Vec::new(), BTreeSet::new());
        for (at, dev) in self.devices.iter().enumerate() {
            let is_closed = who.as_ref().is_some_and(|who| self.closed_by(at, who, self.now).is_some());
            if dev.drained || is_closed || !eligible(dev, &ask) {
                continue;
            }
            devices.push(at);
            if waits_for_own(&self.settings, dev, &ask) {
                over.extend(
                    exceeded(&self.settings, dev, dev.residents.iter(), &ask).map(|(quota, _)| quota),
                );
            }
        }
        if !over.is_empty() {
            self.kept_memory.push(KeptMemory { job: id, user: ask.user, devices, quotas: ask.quotas, over });
        }
    }

    /// The job for which memory on a device is kept from jobs of a user.
    pub(crate) fn memory_kept_from(&self, user: UserId, at: usize) -> Option<JobId> {
        let is_kept = |kept: &&KeptMemory| kept.devices.binary_search(&at).is_ok() && kept.is_from(user);
        self.kept_memory.iter().find(is_kept).map(|kept| kept.job)
    }

    /// Returns true if memory on any device is.
    pub(super) fn is_behind(&self, user: UserId) -> bool {
        self.kept_memory.iter().any(|kept| kept.is_from(user))
    }
}
