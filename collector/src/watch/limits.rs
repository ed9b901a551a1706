//! Limits on memory and their changes.

use radrm_profile::model::MemoryLimit;
use radrm_profile::{Nanos, Record};

use super::Watch;
use crate::source::Source;

impl<S: Source> Watch<S> {
    /// Writes the limits that are not what they were. Those that are met first on a GPU held from the job's start on: they
    /// were brought into force before it.
    pub(super) fn read_limits(&mut self, now: Nanos) {
        let mut changed = Vec::new();
        for (gpu, scope, limit) in self.source.limits() {
            let before = self.limits.insert((gpu, scope), limit);
            if before.unwrap_or(None) != limit {
                let t = if before.is_none() { Nanos::ZERO } else { now };
                changed.push(MemoryLimit { t, gpu, scope, limit });
            }
        }
        if !changed.is_empty() {
            self.write(Record::MemoryLimits(changed));
        }
    }
}
