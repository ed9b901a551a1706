//! From the segment's post-mortems to the profile's.

use radrm_profile::model::postmortem::{
    Cause, Holder, JobProcess, Later, LeftOut, Postmortem, QuotaUse, Scope, Who,
};
use radrm_profile::model::{Block, FailedRequest, GpuIndex, KIND_COUNT, ProcessKey};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry as seg;

/// A post-mortem as the segment has it, without what only others know.
pub(crate) fn postmortem(process: ProcessKey, from: &seg::Postmortem, request: FailedRequest) -> Postmortem {
    let other = |other: &seg::OtherProcess| JobProcess {
        key: ProcessKey { slot: other.slot as u32, generation: other.generation.into() },
        pid: other.pid,
        kinds: kinds(&other.kinds),
        blocks: Vec::new(),
    };
    let holder =
        |holder: &seg::Holder| Holder { pid: holder.pid, who: Who::default(), bytes: Bytes(holder.bytes) };
    Postmortem {
        process,
        is_latest: from.is_latest,
        is_complete: from.is_complete,
        cause: cause(from),
        request,
        quotas: from.quotas.iter().map(quota).collect(),
        own: kinds(&from.kinds),
        blocks: from.blocks.iter().map(|live| block(&live.block)).collect(),
        blocks_left_out: left_out(from.blocks_left_out),
        blocks_cut: from.blocks_cut,
        others: from.others.as_ref().map(|others| others.iter().map(other).collect()),
        others_left_out: left_out(from.others_left_out),
        others_cut: from.others_cut,
        holders: from.holders.iter().map(holder).collect(),
        holders_left_out: left_out(from.holders_left_out),
        nvml: None,
        later: later(&from.later),
    }
}

/// A block of the segment.
pub(crate) fn block(from: &seg::Block) -> Block {
    Block {
        size: Bytes(from.bytes),
        kind: from.kind as u8,
        gpu: GpuIndex(from.gpu.number()),
        since: Nanos(from.ns),
    }
}

fn kinds(from: &[u64; KIND_COUNT]) -> [Bytes; KIND_COUNT] {
    from.map(Bytes)
}

fn left_out(from: seg::LeftOut) -> LeftOut {
    LeftOut { count: from.count, bytes: Bytes(from.bytes) }
}

fn quota(from: &seg::QuotaRefusal) -> QuotaUse {
    QuotaUse { scope: scope(from.scope), limit: Bytes(from.limit), used: Bytes(from.used) }
}

/// Whom a limit applies to.
pub(crate) fn scope(from: seg::Scope) -> Scope {
    match from {
        seg::Scope::Job => Scope::Job,
        seg::Scope::User => Scope::User,
        seg::Scope::Group => Scope::Group,
    }
}

fn cause(from: &seg::Postmortem) -> Cause {
    use seg::postmortem::Cause as C;
    match (from.request.quota, from.cause) {
        (Some(refusal), _) => Cause::Quota(quota(&refusal)),
        (None, C::Device) => Cause::Device,
        (None, C::Fragmentation) => Cause::Fragmentation,
        (None, C::Host) => Cause::Host,
        (None, C::Unknown | C::JobQuota | C::UserQuota | C::GroupQuota) => Cause::Unknown,
    }
}

fn later(from: &seg::Later) -> Later {
    use seg::postmortem::Cause as C;
    let of = |cause: C| from.causes.iter().find(|(it, _)| *it == cause).map_or(0, |(_, count)| *count);
    Later {
        quota: [C::JobQuota, C::UserQuota, C::GroupQuota].map(of),
        device: of(C::Device),
        fragmentation: of(C::Fragmentation),
        host: of(C::Host),
        unknown: of(C::Unknown),
        smallest: Bytes(from.smallest),
        largest: Bytes(from.largest),
        last: Nanos(from.last_ns),
    }
}
