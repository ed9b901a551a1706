//! Memory under limits of users and groups that one job is to have before others.

use std::collections::BTreeSet;
use std::sync::Arc;

use radrm_base::UserId;

use crate::allowance::DeviceQuota;
use crate::job::JobId;

/// Memory that is kept for a job, during one pass.
#[derive(Clone, Debug)]
pub(super) struct KeptMemory {
    pub(super) job: JobId,
    pub(super) user: UserId,
    /// Indices of the devices that it waits for, in order.
    pub(super) devices: Vec<usize>,
    pub(super) quotas: Arc<[DeviceQuota]>,
    /// Those of the limits that it exceeds on any of these devices.
    pub(super) over: BTreeSet<usize>,
}

impl KeptMemory {
    /// Returns true if jobs of this user count towards one of the limits.
    pub(super) fn is_from(&self, user: UserId) -> bool {
        let counts = |quota: &DeviceQuota| match &quota.group {
            Some(group) => group.users.contains(&user),
            None => user == self.user,
        };
        self.over.iter().any(|at| counts(&self.quotas[*at]))
    }
}
