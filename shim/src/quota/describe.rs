//! The ledgers, for the post-mortem of a refused request.

use super::Quota;
use crate::telemetry::postmortem::Draft;
use crate::telemetry::{GpuIndex, QuotaRefusal};

impl Quota {
    /// Notes the limits on a GPU and what is reserved under each, and for the one that refused its largest holders.
    ///
    /// Cold: finds out whether members that hold something are alive.
    pub(crate) fn describe(&self, gpu: GpuIndex, draft: &Draft<'_>) {
        for (member, row, at) in self.each(gpu) {
            let limit = member.limit(row);
            if limit == u64::MAX {
                continue;
            }
            member.own().sweep(row);
            let quota = QuotaRefusal { scope: self.scope(at), limit, used: member.used(row) };
            draft.quota(quota);
            if draft.wants_holders(quota) {
                member.each_holder(row, |pid, bytes| draft.holder(pid, bytes));
            }
        }
    }
}
