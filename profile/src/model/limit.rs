//! Limits on a GPU's memory over time.

use super::postmortem::Scope;
use super::{GpuIndex, Profile};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit on a GPU's memory from a moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The moment.
    pub t: Nanos,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Whom it applies to. Of several limits of one scope it is the lowest.
    pub scope: Scope,
    /// The limit; `None`: there is none any more.
    pub limit: Option<Bytes>,
}

impl Profile {
    /// Limits of a GPU, by scope and time. Each holds until the next of its scope.
    pub fn limits_on(&self, gpu: GpuIndex) -> BTreeMap<Scope, Vec<(Nanos, Option<Bytes>)>> {
        let mut found = BTreeMap::<Scope, Vec<_>>::new();
        for limit in self.memory_limits.iter().filter(|limit| limit.gpu == gpu) {
            found.entry(limit.scope).or_default().push((limit.t, limit.limit));
        }
        found
    }
}
