//! One process.

use super::profiled::Profiled;
use super::{Feature, HostSummary, KindSummary, WindowSummary};
use super::{clamped, features, kind_key, window};
use radrm_profile::model::{Account, End, KernelsMode, Kind, Process, Profile};
use radrm_profile::{Bytes, Nanos};
use radrm_text::Untrusted;
use serde::Serialize;
use std::collections::BTreeMap;

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// The executable.
    pub exe: Untrusted,
    /// Command line.
    pub command: Untrusted,
    /// Time at which the process joined the job.
    pub joined_ns: Nanos,
    /// Time at which its end was detected.
    pub ended_ns: Option<Nanos>,
    /// End status.
    pub end: EndSummary,
    /// Frameworks and runtimes seen.
    pub frameworks: Vec<FrameworkSummary>,
    /// Per GPU that it touched.
    pub gpus: Vec<ProcessGpuSummary>,
    /// Recording of its launches and copies: `off`, `count`, `sample` or `all`; null if that is not known.
    /// `off` records nothing, so zeros mean nothing. `sample` and `all` are the launches that were timed.
    pub kernels_mode: Option<&'static str>,
    /// Kernel launches by the program.
    pub launches: u64,
    /// Graph launches.
    pub graph_launches: u64,
    /// Reasons for which calls were passed through uncounted.
    pub bypasses: Vec<BypassSummary>,
    /// Events lost in the ring.
    pub events_dropped: u64,
    /// Features for models of interference, each with how it was obtained.
    pub features: Vec<Feature>,
    /// Activity over time, by windows; later windows are longer.
    pub windows: Vec<WindowSummary>,
}

impl ProcessSummary {
    /// The command line; the executable where it is not known.
    pub fn command_or_exe(&self) -> &Untrusted {
        if self.command.is_empty() { &self.exe } else { &self.command }
    }
}

/// End status of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EndSummary {
    /// `running`, `exited`, `signaled`, `exec` or `vanished`.
    pub status: &'static str,
    /// Exit code, if known.
    pub exit_code: Option<i32>,
    /// Signal, if one killed it.
    pub signal: Option<i32>,
}

/// A framework or runtime library.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FrameworkSummary {
    /// Its name.
    pub name: String,
    /// Its version, if known.
    pub version: Option<String>,
}

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessGpuSummary {
    /// The GPU.
    pub gpu: u8,
    /// Highest device total (exact).
    pub peak_bytes: Bytes,
    /// Time of the peak.
    pub peak_at_ns: Nanos,
    /// Device total at the end, if it was still running.
    pub now_bytes: Bytes,
    /// Device total when it ended: never freed by it, then taken back by the
    /// driver.
    pub unfreed_bytes: Bytes,
    /// True if the kinds at the peak need not add up to it: other threads
    /// were allocating at that moment.
    pub kinds_approximate: bool,
    /// By kind; all kinds are always there.
    pub kinds: BTreeMap<&'static str, KindSummary>,
    /// Refused memory requests.
    pub failed_requests: u64,
    /// Memory that the driver itself takes for the process (its contexts, code), as charged under a quota.
    /// Without a quota: as known of the GPU's model, where it was not measured; else null.
    pub context_overhead_bytes: Option<Bytes>,
    /// NVML's highest figure for the process.
    pub nvml_peak_bytes: Option<Bytes>,
    /// NVML's figure less what was accounted.
    pub remainder_bytes: Option<i64>,
    /// Live blocks at its end, largest first.
    pub largest_blocks: Vec<BlockSummary>,
}

/// A live block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockSummary {
    /// Its size.
    pub size_bytes: Bytes,
    /// Its kind.
    pub kind: &'static str,
    /// Time of the allocation.
    pub since_ns: Nanos,
}

/// Reason that calls were passed through uncounted, with their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BypassSummary {
    /// The reason.
    pub reason: String,
    /// Number of calls.
    pub count: u64,
    /// True if figures may be incomplete for it.
    pub matters: bool,
}

pub(super) fn summary(
    profile: &Profile,
    process: &Process,
    host: Option<&HostSummary>,
    profiled: Option<&Profiled<'_>>,
) -> ProcessSummary {
    let state = &process.state;
    ProcessSummary {
        pid: process.identity.pid,
        ppid: process.identity.ppid,
        exe: process.identity.exe.as_str().into(),
        command: process.identity.command.as_str().into(),
        joined_ns: process.identity.joined,
        ended_ns: state.ended,
        end: end(state.end),
        frameworks: state
            .frameworks
            .iter()
            .map(|f| FrameworkSummary { name: f.name.clone(), version: f.version.clone() })
            .collect(),
        gpus: state.accounts.iter().map(|account| on_gpu(process, account)).collect(),
        kernels_mode: process.kernels_mode.map(KernelsMode::name),
        launches: state.launches,
        graph_launches: state.graph_launches,
        bypasses: state
            .bypasses
            .iter()
            .map(|b| BypassSummary { reason: b.reason.clone(), count: b.count, matters: b.matters })
            .collect(),
        events_dropped: state.events_dropped,
        features: features::features(profile, process, host, profiled),
        windows: window::windows(profile, process),
    }
}

fn end(end: End) -> EndSummary {
    let (status, exit_code, signal) = match end {
        End::Running => ("running", None, None),
        End::Exited(code) => ("exited", code, None),
        End::Signal(signal) => ("signaled", None, Some(signal)),
        End::Exec => ("exec", None, None),
        End::Vanished => ("vanished", None, None),
    };
    EndSummary { status, exit_code, signal }
}

fn on_gpu(process: &Process, account: &Account) -> ProcessGpuSummary {
    let state = &process.state;
    let remainder = state.remainders.iter().find(|remainder| remainder.gpu == account.gpu);
    ProcessGpuSummary {
        gpu: account.gpu.0,
        peak_bytes: account.peak,
        peak_at_ns: account.peak_at,
        now_bytes: if state.end == End::Running { account.now } else { Bytes::ZERO },
        unfreed_bytes: if state.end == End::Running { Bytes::ZERO } else { account.now },
        kinds_approximate: account.kinds_approximate,
        kinds: kinds(account, state.end),
        failed_requests: account.failed,
        context_overhead_bytes: account.context_overhead,
        nvml_peak_bytes: remainder.map(|remainder| remainder.nvml_peak),
        remainder_bytes: remainder.map(|remainder| clamped(remainder.bytes())),
        largest_blocks: state
            .largest_blocks
            .iter()
            .filter(|block| block.gpu == account.gpu)
            .map(|b| BlockSummary { size_bytes: b.size, kind: kind_key(b.kind), since_ns: b.since })
            .collect(),
    }
}

fn kinds(account: &Account, end: End) -> BTreeMap<&'static str, KindSummary> {
    Kind::ALL
        .iter()
        .map(|kind| {
            let k = &account.kinds[kind.index()];
            let mut summary = KindSummary {
                at_peak_bytes: k.at_peak,
                peak_bytes: k.peak,
                peak_exact: true,
                peak_at_least_bytes: k.peak,
                ..KindSummary::default()
            };
            summary.add(k, end);
            (kind.key(), summary)
        })
        .collect()
}
