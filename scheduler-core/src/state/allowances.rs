//! Limits of users, and what their running jobs hold of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use radrm_base::UserId;

use super::record::Record;
use crate::allowance::{Allowance, DeviceQuota, Holding};
use crate::units::Bytes;

/// Limits of users, and what their running jobs hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowances {
    users: BTreeMap<UserId, Allowance>,
    /// Limits of memory of the users who have any, as all of their jobs share them.
    quotas: BTreeMap<UserId, Arc<[DeviceQuota]>>,
    held: BTreeMap<UserId, Holding>,
}

impl Allowances {
    /// Returns true if no user has limits.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Limits of a user from now on.
    pub(super) fn set(&mut self, user: UserId, allowance: Allowance) {
        match allowance.quotas.is_empty() {
            true => self.quotas.remove(&user),
            false => self.quotas.insert(user, allowance.quotas.as_slice().into()),
        };
        match allowance.is_none() {
            true => self.users.remove(&user),
            false => self.users.insert(user, allowance),
        };
    }

    /// Limits of a user, if the user has any.
    pub(super) fn of(&self, user: UserId) -> Option<&Allowance> {
        self.users.get(&user)
    }

    /// Jobs and GPUs of a user's running jobs.
    pub(super) fn held(&self, user: UserId) -> Holding {
        self.held.get(&user).copied().unwrap_or_default()
    }

    /// A job of the user gets devices.
    pub(super) fn hold(&mut self, user: UserId, gpus: u64) {
        let held = self.held.entry(user).or_default();
        (held.jobs, held.gpus) = (held.jobs + 1, held.gpus + gpus);
    }

    /// It gives them back.
    pub(super) fn give_back(&mut self, user: UserId, gpus: u64) {
        let Some(held) = self.held.get_mut(&user) else { return };
        (held.jobs, held.gpus) = (held.jobs.saturating_sub(1), held.gpus.saturating_sub(gpus));
        if held.jobs == 0 {
            self.held.remove(&user);
        }
    }

    /// The part of the limits that is in the job's own record.
    pub(super) fn apply(&self, record: &mut Record) {
        let allowance = self.of(record.job.user);
        record.allowed = allowance.and_then(|of| of.devices.as_ref()).map(|of| of.devices.clone());
        record.memory_most = allowance.and_then(|of| of.memory.as_ref()).map(|bound| Bytes(bound.most));
        record.quotas = self.quotas.get(&record.job.user).cloned().unwrap_or_default();
    }
}
