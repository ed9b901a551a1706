//! Refused requests: their cause, and the memory holders at that moment.

use super::{BlockSummary, clamped, kind_key};
use radrm_profile::model::postmortem::{Cause, Neighbour, Postmortem, QuotaUse, Scope, Who};
use radrm_profile::model::{Block, FailedRequest, KIND_COUNT, Kind, ProcessKey, Profile, device_total};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// One refused request with what stood around it: of each process and GPU the
/// first, and the latest that was written down.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PostmortemSummary {
    /// Process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The GPU.
    pub gpu: u8,
    /// Its product name.
    pub gpu_name: String,
    /// Time of the refusal.
    pub t_ns: Nanos,
    /// True for the process's first refusal on this GPU.
    pub is_first: bool,
    /// False if the process died while it was writing this down.
    pub is_complete: bool,
    /// The driver's entry point.
    pub call: String,
    /// Kind of memory.
    pub kind: &'static str,
    /// Size asked for.
    pub size_bytes: Bytes,
    /// Free memory that the driver reported, if it did.
    pub free_bytes: Option<Bytes>,
    /// The device's memory.
    pub device_total_bytes: Option<Bytes>,
    /// `job_quota`, `user_quota`, `group_quota`, `device`, `fragmentation`,
    /// `injected` (there was enough, and the run was asked to refuse some), `host` or `unknown`.
    pub cause: &'static str,
    /// The cause as a sentence.
    pub why: String,
    /// The limit that refused, with its figures of that moment.
    pub quota: Option<QuotaSummary>,
    /// All limits that the request had to fit under.
    pub quotas: Vec<QuotaSummary>,
    /// Memory that the process itself held.
    pub own: HeldSummary,
    /// The job's other processes on this GPU, the one with most first; null if
    /// they could not be read.
    pub others: Option<Vec<HeldSummary>>,
    /// Totals of the processes that are not listed.
    pub others_left_out: LeftOutSummary,
    /// False if there were more of them than there was time to read.
    pub others_complete: bool,
    /// Device memory of all of these together.
    pub job_bytes: Bytes,
    /// Largest memory holders under the limit that refused.
    pub holders: Vec<HolderSummary>,
    /// Totals of the holders that are not listed.
    pub holders_left_out: LeftOutSummary,
    /// NVML's list of the GPU's processes; null if it returned none.
    pub nvml: Option<NeighboursSummary>,
    /// Memory in use that neither the job nor a neighbour accounts for:
    /// contexts, code, what changed meanwhile. Null if it is not known.
    pub unaccounted_bytes: Option<Bytes>,
    /// Refusals on this GPU after the first one; null with others than the
    /// first.
    pub later: Option<LaterSummary>,
}

/// A limit and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QuotaSummary {
    /// `job`, `user` or `group`.
    pub scope: &'static str,
    /// The limit.
    pub limit_bytes: Bytes,
    /// Memory reserved under the limit.
    pub used_bytes: Bytes,
}

/// Memory of a GPU that a process of the job held.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldSummary {
    /// Process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Device memory.
    pub held_bytes: Bytes,
    /// By kind, those of which there was any.
    pub kinds: BTreeMap<&'static str, Bytes>,
    /// Largest blocks, largest first. Of other processes than the one that was
    /// refused: those that were still alive when it was read.
    pub largest_blocks: Vec<BlockSummary>,
    /// Blocks that are not listed; of the process that was refused only.
    pub blocks_left_out: LeftOutSummary,
    /// False if there were more blocks than there was time to read.
    pub blocks_complete: bool,
}

/// Entries that a list leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LeftOutSummary {
    /// Number of them.
    pub count: u64,
    /// Sum of the entries' memory.
    pub bytes: Bytes,
}

/// A process with memory under a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HolderSummary {
    /// Process id.
    pub pid: u32,
    /// Name of its program, if known.
    pub program: Option<String>,
    /// Its user, by name or number, if known.
    pub user: Option<String>,
    /// True for a process of this job.
    pub is_of_job: bool,
    /// Memory that it had reserved.
    pub bytes: Bytes,
}

/// NVML's list of a GPU's processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NeighboursSummary {
    /// Time of the list.
    pub t_ns: Nanos,
    /// That less the moment of the refusal; negative: before it.
    pub after_ns: i64,
    /// Memory in use by all processes.
    pub used_bytes: Bytes,
    /// The device's memory.
    pub total_bytes: Bytes,
    /// Memory of processes outside the job, as far as the driver reports it.
    pub others_bytes: Bytes,
    /// The processes, the one with most first.
    pub processes: Vec<NeighbourSummary>,
}

/// A process on a GPU as NVML lists it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NeighbourSummary {
    /// Process id.
    pub pid: u32,
    /// Name of its program, if known.
    pub program: Option<String>,
    /// Its user, by name or number, if known.
    pub user: Option<String>,
    /// True for a process of this job.
    pub is_of_job: bool,
    /// Its memory; null where the driver does not report it.
    pub used_bytes: Option<Bytes>,
}

/// Refusals after the first one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LaterSummary {
    /// Number of them.
    pub count: u64,
    /// Of these, refused for the same cause as the first one.
    pub alike: u64,
    /// By cause, those that occurred.
    pub causes: BTreeMap<&'static str, u64>,
    /// The smallest request.
    pub smallest_bytes: Bytes,
    /// The largest request.
    pub largest_bytes: Bytes,
    /// Time of the last refusal.
    pub last_ns: Nanos,
}

/// All of a profile, by time.
pub(super) fn postmortems(profile: &Profile) -> Vec<PostmortemSummary> {
    let mut all: Vec<_> = profile.postmortems.iter().map(|it| summary(profile, it)).collect();
    all.sort_by_key(|it| (it.t_ns, it.pid, it.gpu));
    all
}

/// The limit that refused a request: as its own record has it, else as that of the first refusal, where all later ones
/// had the same cause.
pub(super) fn quota_of(
    profile: &Profile,
    process: ProcessKey,
    request: &FailedRequest,
) -> Option<QuotaSummary> {
    let records = || profile.postmortems.iter().filter(|it| it.process == process && it.gpu() == request.gpu);
    let own = records().find(|it| it.request.t == request.t && it.request.size == request.size);
    let alike = || records().find(|it| !it.is_latest && it.later.like(&it.cause) == it.later.count());
    match own.or_else(alike)?.cause {
        Cause::Quota(of) => Some(quota(&of)),
        _ => None,
    }
}

fn summary(profile: &Profile, it: &Postmortem) -> PostmortemSummary {
    let is_injected = profile.job.has_injected_oom();
    let process = profile.processes.iter().find(|process| process.key == it.process);
    let own = HeldSummary {
        pid: process.map_or(0, |process| process.identity.pid),
        command: command(profile, |process| process.key == it.process),
        blocks_left_out: left_out(it.blocks_left_out),
        blocks_complete: !it.blocks_cut && it.is_complete,
        ..held(&it.own, &it.blocks)
    };
    let others = it.others.as_ref().map(|others| {
        let other = |other: &radrm_profile::model::postmortem::JobProcess| HeldSummary {
            pid: other.pid,
            command: command(profile, |process| process.key == other.key),
            blocks_complete: true,
            ..held(&other.kinds, &other.blocks)
        };
        others.iter().map(other).collect::<Vec<_>>()
    });
    let listed = others.iter().flatten().map(|other| other.held_bytes).sum::<Bytes>();
    let job_bytes = own.held_bytes + listed + it.others_left_out.bytes;
    let is_of_job = |pid: u32| {
        pid == own.pid
            || it.others.iter().flatten().any(|other| other.pid == pid)
            || profile.processes.iter().any(|process| process.identity.pid == pid)
    };
    let holders = it.holders.iter().map(|holder| HolderSummary {
        pid: holder.pid,
        program: program(profile, holder.pid, &holder.who),
        user: user(&holder.who),
        is_of_job: is_of_job(holder.pid),
        bytes: holder.bytes,
    });
    let holders = holders.collect();
    let nvml = it.nvml.as_ref().map(|nvml| {
        let neighbour = |neighbour: &Neighbour| NeighbourSummary {
            pid: neighbour.pid,
            program: program(profile, neighbour.pid, &neighbour.who),
            user: user(&neighbour.who),
            is_of_job: neighbour.is_own || is_of_job(neighbour.pid),
            used_bytes: neighbour.used,
        };
        let processes: Vec<_> = nvml.processes.iter().map(neighbour).collect();
        NeighboursSummary {
            t_ns: nvml.t,
            after_ns: clamped(i128::from(nvml.t.0) - i128::from(it.request.t.0)),
            used_bytes: nvml.used,
            total_bytes: nvml.total,
            others_bytes: processes.iter().filter(|p| !p.is_of_job).filter_map(|p| p.used_bytes).sum(),
            processes,
        }
    });
    let in_use = it.request.total.zip(it.request.free).map(|(total, free)| total.minus(free));
    let unaccounted_bytes =
        in_use.zip(nvml.as_ref()).map(|(in_use, nvml)| in_use.minus(job_bytes + nvml.others_bytes));
    PostmortemSummary {
        pid: own.pid,
        command: own.command.clone(),
        gpu: it.gpu().0,
        gpu_name: profile.gpu(it.gpu()).map_or(String::new(), |gpu| gpu.name.clone()),
        t_ns: it.request.t,
        is_first: !it.is_latest,
        is_complete: it.is_complete,
        call: it.request.call.clone(),
        kind: kind_key(it.request.kind),
        size_bytes: it.request.size,
        free_bytes: it.request.free,
        device_total_bytes: it.request.total,
        cause: cause(&it.cause, is_injected),
        why: why(it, is_injected),
        quota: match &it.cause {
            Cause::Quota(of) => Some(quota(of)),
            _ => None,
        },
        quotas: it.quotas.iter().map(quota).collect(),
        own,
        others,
        others_left_out: left_out(it.others_left_out),
        others_complete: it.others.is_some() && !it.others_cut && it.is_complete,
        job_bytes,
        holders,
        holders_left_out: left_out(it.holders_left_out),
        nvml,
        unaccounted_bytes,
        later: (!it.is_latest).then(|| later(it, is_injected)),
    }
}

fn held(kinds: &[Bytes; KIND_COUNT], blocks: &[Block]) -> HeldSummary {
    let block = |b: &Block| BlockSummary { size_bytes: b.size, kind: kind_key(b.kind), since_ns: b.since };
    let present = Kind::ALL.into_iter().map(|kind| (kind.key(), kinds[kind.index()]));
    HeldSummary {
        held_bytes: device_total(kinds),
        kinds: present.filter(|(_, bytes)| !bytes.is_zero()).collect(),
        largest_blocks: blocks.iter().map(block).collect(),
        ..HeldSummary::default()
    }
}

fn command(profile: &Profile, is_it: impl Fn(&radrm_profile::model::Process) -> bool) -> String {
    let process = profile.processes.iter().find(|process| is_it(process));
    process.map_or(String::new(), |process| {
        let identity = &process.identity;
        if identity.command.is_empty() { identity.exe.clone() } else { identity.command.clone() }
    })
}

/// The name of a process's program: as the system reports it, else as its own
/// command line has it.
fn program(profile: &Profile, pid: u32, who: &Who) -> Option<String> {
    let known = || {
        let exe = &profile.processes.iter().rfind(|process| process.identity.pid == pid)?.identity.exe;
        exe.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
    };
    who.program.clone().or_else(known)
}

fn user(who: &Who) -> Option<String> {
    who.user.clone().or_else(|| who.uid.map(|uid| format!("uid {uid}")))
}

fn left_out(from: radrm_profile::model::postmortem::LeftOut) -> LeftOutSummary {
    LeftOutSummary { count: from.count, bytes: from.bytes }
}

fn quota(from: &QuotaUse) -> QuotaSummary {
    QuotaSummary { scope: from.scope.key(), limit_bytes: from.limit, used_bytes: from.used }
}

fn cause(cause: &Cause, is_injected: bool) -> &'static str {
    match cause {
        Cause::Quota(quota) => match quota.scope {
            Scope::Job => "job_quota",
            Scope::User => "user_quota",
            Scope::Group => "group_quota",
        },
        Cause::Device => "device",
        Cause::Fragmentation => fragmentation(is_injected),
        Cause::Host => "host",
        Cause::Unknown => "unknown",
    }
}

/// Cause of a refusal although enough memory was free: `injected` if the run requested refusals, else `fragmentation`.
fn fragmentation(is_injected: bool) -> &'static str {
    if is_injected { "injected" } else { "fragmentation" }
}

/// The cause as a sentence.
fn why(it: &Postmortem, is_injected: bool) -> String {
    let size = it.request.size;
    let of = it.request.total.map_or(String::new(), |total| format!(" of {total}"));
    match (&it.cause, it.request.free) {
        (Cause::Quota(quota), _) if quota.scope == Scope::Job && quota.limit == Bytes::ZERO => {
            format!("the GPU is not one of the job's: {size} requested")
        }
        (Cause::Quota(quota), _) => {
            let whose = match quota.scope {
                Scope::Job => "job's",
                Scope::User => "user's",
                Scope::Group => "group's",
            };
            let left = quota.limit.minus(quota.used);
            format!(
                "the {whose} quota of {}: {size} requested, {} reserved, {left} left",
                quota.limit, quota.used
            )
        }
        (Cause::Device, Some(free)) => {
            format!("the GPU: {size} requested, {free}{of} free")
        }
        (Cause::Fragmentation, Some(free)) => {
            let what =
                if is_injected { "a fault injected by --faults" } else { "the GPU, probably fragmented" };
            format!("{what}: {size} requested, {free}{of} free (or freed right after)")
        }
        (Cause::Host, _) => format!("the host: no {size} of memory could be locked for the GPU"),
        (Cause::Device | Cause::Fragmentation | Cause::Unknown, _) => {
            format!("the driver: {size} requested, free memory unknown")
        }
    }
}

fn later(it: &Postmortem, is_injected: bool) -> LaterSummary {
    let later = &it.later;
    let causes = [
        ("job_quota", later.quota[0]),
        ("user_quota", later.quota[1]),
        ("group_quota", later.quota[2]),
        ("device", later.device),
        (fragmentation(is_injected), later.fragmentation),
        ("host", later.host),
        ("unknown", later.unknown),
    ];
    LaterSummary {
        count: later.count(),
        alike: later.like(&it.cause),
        causes: causes.into_iter().filter(|(_, count)| *count > 0).collect(),
        smallest_bytes: later.smallest,
        largest_bytes: later.largest,
        last_ns: later.last,
    }
}
