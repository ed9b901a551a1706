//! Limits on memory, from the job's ledgers.

use crate::postmortem::convert;
use radrm_profile::Bytes;
use radrm_profile::model::GpuIndex;
use radrm_profile::model::postmortem::Scope;
use radrm_telemetry as seg;
use radrm_telemetry::GpuInfo;
use radrm_telemetry::ledger::LedgerView;
use std::collections::BTreeMap;

/// The limits on GPUs that the job has seen, the lowest of each scope.
pub(crate) fn lowest(
    ledgers: &[(seg::Scope, LedgerView)],
    gpus: &[GpuInfo],
) -> Vec<(GpuIndex, Scope, Option<Bytes>)> {
    let mut lowest = BTreeMap::<(GpuIndex, Scope), Option<Bytes>>::new();
    for (scope, ledger) in ledgers {
        for (uuid, limit) in ledger.limits() {
            let Some(gpu) = gpus.iter().find(|gpu| gpu.uuid == uuid) else { continue };
            let place = (GpuIndex(gpu.index.number()), convert::scope(*scope));
            let known = lowest.entry(place).or_default();
            *known = known.iter().copied().chain(limit.map(Bytes)).min();
        }
    }
    lowest.into_iter().map(|((gpu, scope), limit)| (gpu, scope, limit)).collect()
}
