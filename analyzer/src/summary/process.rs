//! One process.

use super::build::kind_key;
use super::{
    BlockSummary, BypassSummary, EndSummary, FrameworkSummary, HostSummary, KindSummary, ProcessGpuSummary,
    ProcessSummary,
};
use super::{features, window};
use radrm_profile::Bytes;
use radrm_profile::model::{Account, End, KernelsMode, Kind, Process, Profile};
use std::collections::BTreeMap;

pub(super) fn summary(profile: &Profile, process: &Process, host: Option<&HostSummary>) -> ProcessSummary {
    let state = &process.state;
    ProcessSummary {
        pid: process.identity.pid,
        ppid: process.identity.ppid,
        exe: process.identity.exe.clone(),
        command: process.identity.command.clone(),
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
        features: features::features(profile, process, host),
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
        remainder_bytes: remainder.map(|remainder| clamp(remainder.bytes())),
        largest_blocks: state
            .largest_blocks
            .iter()
            .filter(|block| block.gpu == account.gpu)
            .map(|b| BlockSummary { size_bytes: b.size, kind: kind_key(b.kind), since_ns: b.since })
            .collect(),
    }
}

pub(super) fn clamp(bytes: i128) -> i64 {
    i64::try_from(bytes).unwrap_or(if bytes < 0 { i64::MIN } else { i64::MAX })
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
