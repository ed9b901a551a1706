//! Footprint of a run: GPU memory that it needed, or a lower bound, for planning later runs.

use serde::{Deserialize, Serialize};

use super::{FailureSummary, PostmortemSummary, QuotaSummary, Summary};

/// Device memory that a run needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Highest device memory on one GPU, contexts included, bytes.
    pub peak: Option<u64>,
    /// Held and requested, where a refused request ended it, bytes.
    pub oom: Option<u64>,
    /// The part of that which was requested, bytes.
    pub oom_request: Option<u64>,
    /// The limit of the job's user or group that refused it, as a sentence's end.
    pub limited: Option<String>,
    /// Requests for memory of a GPU that is not the job's, which were refused: the last, as a sentence. Nothing that the
    /// job needs follows from them.
    pub elsewhere: Option<String>,
    /// Requests that were refused on the job's own GPUs.
    pub refused: Option<RefusedRequests>,
}

/// Requests for memory of a job's own GPUs that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequests {
    /// Number of them.
    pub count: u64,
    /// The last, as a sentence's end.
    pub last: String,
    /// Held and requested, bytes, where a process was granted nothing more after its last one.
    pub needed: Option<u64>,
    /// The part of that which was requested, bytes.
    pub request: Option<u64>,
}

/// Returns true if a limit leaves nothing: the GPU is not one of the job's.
fn is_elsewhere(quota: Option<&QuotaSummary>) -> bool {
    quota.is_some_and(|quota| quota.scope == "job" && quota.limit_bytes.0 == 0)
}

/// The footprint of the run that a summary is of.
#[must_use]
pub fn footprint(summary: &Summary) -> Footprint {
    // Contexts count under a limit, so they are part of what has to be reserved. A short peak lies between two samples of
    // NVML, and any sample shows the contexts.
    let contexts = |gpu: u8| -> u64 {
        let on_gpu = summary.processes.iter().flat_map(|process| &process.gpus).filter(|on| on.gpu == gpu);
        let known = on_gpu.filter_map(|on| on.context_overhead_bytes).map(|bytes| bytes.0).max();
        let nvml = summary.gpus.iter().filter(|on| on.index == gpu).filter_map(|on| on.nvml.as_ref());
        let seen = nvml.filter_map(|nvml| u64::try_from(nvml.remainder_bytes?).ok()).max();
        known.max(seen).unwrap_or(0)
    };
    let held: Vec<(u8, u64)> = summary
        .gpus
        .iter()
        .map(|gpu| {
            let counted = gpu.peak_bytes.0.saturating_add(contexts(gpu.index));
            let seen = gpu.nvml.as_ref().and_then(|nvml| nvml.job_peak_bytes).map_or(0, |bytes| bytes.0);
            (gpu.index, counted.max(seen))
        })
        .collect();
    // What was asked for earlier, and done without, is not what it needs.
    let lacks = summary.failed_requests.iter().filter(|request| request.out_of_memory);
    let (others, own_gpus): (Vec<_>, Vec<_>) =
        lacks.partition(|request| is_elsewhere(request.quota.as_ref()));
    let elsewhere = others.last().map(|request| {
        let gpu = summary.gpus.iter().find(|gpu| gpu.index == request.gpu);
        let gpu = gpu.map_or_else(|| request.gpu.to_string(), |gpu| gpu.uuid.clone());
        format!(
            "process {} requested memory of GPU {gpu}, which is not one of this job's, and got none: check \
             CUDA_VISIBLE_DEVICES in the program",
            request.pid
        )
    });
    let refused = own_gpus.last().map(|last| {
        let count = summary.failed_requests_total.saturating_sub(others.len() as u64).max(1);
        let by = last.quota.map_or("by the GPU".to_owned(), |quota| {
            format!("by the {}'s quota of {}", quota.scope, quota.limit_bytes)
        });
        let last = format!("{} on GPU {}, {by}", last.size_bytes, last.gpu);
        RefusedRequests { count, last, ..RefusedRequests::default() }
    });
    let standing: Vec<_> = own_gpus.into_iter().filter(|request| request.stands).collect();
    let alike: Vec<_> = summary
        .postmortems
        .iter()
        .filter(|refusal| {
            let of = |request: &&&FailureSummary| (request.pid, request.gpu, request.size_bytes);
            standing.iter().any(|request| of(&request) == (refusal.pid, refusal.gpu, refusal.size_bytes))
        })
        .collect();
    // What the job held and asked for, others that count under the same limit left out.
    let own = |refusal: &PostmortemSummary| {
        let counted = refusal.job_bytes.0.saturating_add(contexts(refusal.gpu));
        let under = refusal.quota.as_ref().filter(|quota| quota.scope == "job");
        let held = under.map_or(0, |quota| quota.used_bytes.0).max(counted);
        (held.saturating_add(refusal.size_bytes.0), refusal.size_bytes.0)
    };
    let limited = limit(&alike, |refusal| own(refusal).0).filter(|_| summary.outcome.out_of_memory);
    let is_own = summary.outcome.out_of_memory && (!standing.is_empty() || elsewhere.is_none());
    let plain = standing.iter().map(|request| {
        // Of a lone request it is not known what was held then: at most the peak.
        let most = held.iter().find(|(gpu, _)| *gpu == request.gpu).map_or(0, |(_, held)| *held);
        (most.saturating_add(request.size_bytes.0), request.size_bytes.0)
    });
    let known = alike.iter().map(|refusal| own(refusal));
    let needed = known.max().or_else(|| plain.max());
    let oom = is_own.then(|| needed.unwrap_or_default());
    let refused = refused.map(|refused| RefusedRequests {
        needed: needed.map(|(needed, _)| needed),
        request: needed.map(|(_, request)| request),
        ..refused
    });
    let peak = held.iter().map(|(_, held)| *held).max().filter(|peak| *peak > 0);
    Footprint {
        peak,
        oom: oom.map(|(needed, _)| needed),
        oom_request: oom.map(|(_, request)| request).filter(|bytes| *bytes > 0),
        limited,
        elsewhere,
        refused,
    }
}

/// The limit of the user or a group that refused all of these, and would also if the job alone counted under it.
fn limit(refusals: &[&PostmortemSummary], own: impl Fn(&PostmortemSummary) -> u64) -> Option<String> {
    let never = |refusal: &&PostmortemSummary| {
        let limit = refusal.quota.as_ref().map_or(0, |quota| quota.limit_bytes.0);
        ["user_quota", "group_quota"].contains(&refusal.cause) && own(refusal) > limit
    };
    refusals.last().filter(|_| refusals.iter().all(never)).map(|refusal| refusal.why.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GpuSummary, NvmlSummary, ProcessGpuSummary, ProcessSummary, QuotaSummary};
    use radrm_profile::Bytes;
    use radrm_profile::model::{Job, Profile};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_peak_between_two_samples_needs_its_context_too() {
        let of = |known: Option<u64>, nvml: Option<(u64, i64)>| {
            let gpu = GpuSummary {
                peak_bytes: Bytes(2816 * MIB),
                nvml: nvml.map(|(seen, beyond)| NvmlSummary {
                    job_peak_bytes: Some(Bytes(seen * MIB)),
                    remainder_bytes: Some(beyond << 20),
                    ..NvmlSummary::default()
                }),
                ..GpuSummary::default()
            };
            let on = ProcessGpuSummary {
                context_overhead_bytes: known.map(|mib| Bytes(mib * MIB)),
                ..ProcessGpuSummary::default()
            };
            let process = ProcessSummary { gpus: vec![on], ..ProcessSummary::default() };
            let summary = Summary::from_profile(&Profile::new(Job::default()));
            let summary = Summary { gpus: vec![gpu], processes: vec![process], ..summary };
            footprint(&summary).peak.map(|bytes| bytes / MIB)
        };
        // NVML saw the process at 1 GiB, 420 MiB of it beyond what its calls account for.
        assert_eq!(of(None, Some((1024, 420))), Some(3236));
        // NVML saw more than that: memory of libraries.
        assert_eq!(of(None, Some((4000, 420))), Some(4000));
        assert_eq!(of(Some(500), Some((1024, 420))), Some(3316), "charged under a limit");
        assert_eq!(of(Some(420), None), Some(3236), "too short for any sample");
        assert_eq!(of(None, Some((1024, -64))), Some(2816), "memory that NVML does not charge");
        assert_eq!(of(None, None), Some(2816));
    }

    #[test]
    fn a_limit_of_the_user_is_told_from_a_full_device() {
        let refusal = |cause: &'static str| PostmortemSummary {
            cause,
            why: format!("the {cause}"),
            quota: Some(QuotaSummary { scope: "user", limit_bytes: Bytes(100), used_bytes: Bytes(90) }),
            ..PostmortemSummary::default()
        };
        for (causes, expected) in [
            (&["user_quota"][..], Some("the user_quota")),
            (&["user_quota", "group_quota"], Some("the group_quota")),
            (&["device"], None),
            (&["job_quota"], None),
            (&["user_quota", "device"], None),
            (&[], None),
        ] {
            let refusals: Vec<_> = causes.iter().map(|cause| refusal(cause)).collect();
            let refusals: Vec<_> = refusals.iter().collect();
            assert_eq!(limit(&refusals, |_| 101).as_deref(), expected, "{causes:?}");
            // Others filled it: there is room when they are gone.
            assert_eq!(limit(&refusals, |_| 100), None, "{causes:?}");
        }
    }
}
