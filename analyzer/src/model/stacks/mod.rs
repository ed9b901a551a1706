//! Who holds the memory, by call stack: the stacks that a profile keeps, with names, sums and the line to look at first.

mod fold;
mod frames;

pub use frames::FrameLabel;
#[cfg(test)]
pub use frames::Origin;

use frames::labels;
use radrm_profile::Bytes;
use radrm_profile::model::{GpuIndex, Kind, Process, Profile, Site, Stacks};
use serde::Serialize;
use std::collections::BTreeMap;

/// Sites that the JSON report lists of each process and GPU.
const LISTED: usize = 50;

/// Which figure of a stack is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// At the peak of the GPU's device total in the process.
    AtPeak,
    /// At the process's end, or when it was last read.
    AtEnd,
}

/// A stack with names and what was held from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameStack {
    /// Outermost first.
    pub frames: Vec<FrameLabel>,
    /// Bytes.
    pub bytes: Bytes,
}

/// The stacks of one process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flame {
    /// The process.
    pub pid: u32,
    /// Its program, without directories.
    pub program: String,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Largest first; their sum is the process's device total at that time, to the byte.
    pub stacks: Vec<FlameStack>,
}

impl Flame {
    /// Sum over all stacks.
    pub fn total(&self) -> Bytes {
        Bytes(self.stacks.iter().map(|stack| stack.bytes.0).fold(0, u64::saturating_add))
    }
}

/// The stacks of a profile, of each process and GPU those of its device memory. `all_frames`: also frames of allocators, of
/// the CUDA runtime and of interpreters.
pub fn flames(profile: &Profile, held: Held, all_frames: bool) -> Vec<Flame> {
    let mut flames = Vec::new();
    for process in &profile.processes {
        let Some(stacks) = &process.stacks else { continue };
        for account in &process.state.accounts {
            let total = if held == Held::AtPeak { account.peak } else { account.now };
            let found = flame(process, stacks, account.gpu, held, all_frames, total);
            if !found.stacks.is_empty() {
                flames.push(found);
            }
        }
    }
    flames
}

fn flame(
    process: &Process,
    stacks: &Stacks,
    gpu: GpuIndex,
    held: Held,
    all_frames: bool,
    total: Bytes,
) -> Flame {
    let bytes = |site: &Site| if held == Held::AtPeak { site.at_peak } else { site.held };
    let mut sums = BTreeMap::<Vec<FrameLabel>, u64>::new();
    let mut listed = 0u64;
    for site in stacks.sites.iter().filter(|site| site.gpu == gpu && is_listed(site.kind)) {
        let bytes = bytes(site).0;
        if bytes > 0 {
            listed = listed.saturating_add(bytes);
            let mut frames = labels(stacks, site, all_frames);
            frames.reverse();
            let sum = sums.entry(frames).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    // What pools hold beyond what they handed out, and graphs: the driver reports amounts, no one asked for them.
    let account = process.account(gpu);
    let of_kind = |kind: Kind| {
        account
            .and_then(|account| account.kinds.get(kind.index()))
            .map_or(0, |kind| if held == Held::AtPeak { kind.at_peak.0 } else { kind.now.0 })
    };
    let mut rest = total.0.saturating_sub(listed);
    let pools = of_kind(Kind::PoolReserved).saturating_sub(of_kind(Kind::PoolUsed)).min(rest);
    rest -= pools;
    let graphs = of_kind(Kind::Graph).min(rest);
    rest -= graphs;
    for (name, bytes) in [
        ("[pools: reserved, not handed out]", pools),
        ("[graphs: reserved by the driver]", graphs),
        ("[not attributed]", rest),
    ] {
        if bytes > 0 {
            sums.insert(vec![FrameLabel::note(name)], bytes);
        }
    }
    let mut stacks: Vec<FlameStack> =
        sums.into_iter().map(|(frames, bytes)| FlameStack { frames, bytes: Bytes(bytes) }).collect();
    stacks.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
    Flame { pid: process.identity.pid, program: program(process), gpu, stacks }
}

/// Kinds whose blocks are the device total: what pools handed out stands for what they reserved.
fn is_listed(kind: u8) -> bool {
    Kind::from_raw(kind)
        .is_some_and(|kind| (kind.in_total() && kind != Kind::PoolReserved) || kind == Kind::PoolUsed)
}

fn program(process: &Process) -> String {
    process.identity.exe.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Who holds a process's memory on one GPU, by line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StacksSummary {
    /// The process.
    pub pid: u32,
    /// The GPU.
    pub gpu: u8,
    /// Its device total at the peak: the sum of `sites`, those that are not listed included.
    pub peak_bytes: Bytes,
    /// Largest at the peak first.
    pub sites: Vec<SiteSummary>,
    /// Sites that are not listed.
    pub sites_not_listed: u64,
    /// Requests that were refused, by where they were made, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSite>,
    /// Stacks without a place of their own, or that could not be read.
    pub stacks_not_kept: u64,
    /// True if threads made changes out of turn: figures at the peak may be off by these.
    pub is_approximate: bool,
}

/// Memory that was asked for in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteSummary {
    /// The innermost frame of the program's own code.
    pub site: String,
    /// Held at the peak.
    pub peak_bytes: Bytes,
    /// Held at the end, or when it was last read.
    pub held_bytes: Bytes,
    /// Allocations.
    pub allocations: u64,
    /// The stack that held most of it at the peak, outermost first.
    pub stack: Vec<String>,
}

/// Requests that were refused in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedSite {
    /// As in [`SiteSummary`].
    pub site: String,
    /// How many.
    pub requests: u64,
    /// The largest of them.
    pub largest_bytes: Bytes,
    /// The stack of most of them, outermost first.
    pub stack: Vec<String>,
}

/// Who holds the memory of each process and GPU, by line.
pub(super) fn summaries(profile: &Profile) -> Vec<StacksSummary> {
    let mut all = Vec::new();
    for process in &profile.processes {
        let Some(stacks) = &process.stacks else { continue };
        for account in &process.state.accounts {
            all.extend(summary(process, stacks, account.gpu, account.peak));
        }
    }
    all
}

fn summary(process: &Process, stacks: &Stacks, gpu: GpuIndex, peak: Bytes) -> Option<StacksSummary> {
    let at_peak = flame(process, stacks, gpu, Held::AtPeak, false, peak);
    let mut sites = BTreeMap::<String, SiteSummary>::new();
    // Largest first: the first stack of a site is the one that held most.
    for stack in &at_peak.stacks {
        let site = site_of(&stack.frames);
        let entry = sites.entry(site.clone()).or_insert_with(|| SiteSummary {
            site,
            peak_bytes: Bytes::ZERO,
            held_bytes: Bytes::ZERO,
            allocations: 0,
            stack: stack.frames.iter().map(ToString::to_string).collect(),
        });
        entry.peak_bytes = Bytes(entry.peak_bytes.0.saturating_add(stack.bytes.0));
    }
    let mut refused = BTreeMap::<String, RefusedSite>::new();
    for from in stacks.sites.iter().filter(|site| site.gpu == gpu) {
        let mut frames = labels(stacks, from, false);
        frames.reverse();
        let site = site_of(&frames);
        if let Some(known) = sites.get_mut(&site).filter(|_| is_listed(from.kind)) {
            known.held_bytes = Bytes(known.held_bytes.0.saturating_add(from.held.0));
            known.allocations = known.allocations.saturating_add(from.allocations);
        }
        if from.refused > 0 {
            let entry = refused.entry(site.clone()).or_insert_with(|| RefusedSite {
                site,
                requests: 0,
                largest_bytes: Bytes::ZERO,
                stack: frames.iter().map(ToString::to_string).collect(),
            });
            entry.requests = entry.requests.saturating_add(from.refused);
            entry.largest_bytes = entry.largest_bytes.max(from.refused_size);
        }
    }
    let mut sites: Vec<SiteSummary> = sites.into_values().collect();
    sites.sort_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then_with(|| a.site.cmp(&b.site)));
    let mut refused: Vec<RefusedSite> = refused.into_values().collect();
    refused.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.site.cmp(&b.site)));
    if sites.is_empty() && refused.is_empty() {
        return None;
    }
    let sites_not_listed = sites.len().saturating_sub(LISTED) as u64;
    sites.truncate(LISTED);
    refused.truncate(LISTED);
    Some(StacksSummary {
        pid: process.identity.pid,
        gpu: gpu.0,
        peak_bytes: peak,
        sites,
        sites_not_listed,
        refused,
        stacks_not_kept: stacks.full.saturating_add(stacks.unread),
        is_approximate: stacks.unordered > 0,
    })
}

/// The frame to look at first: the innermost of the program's own code, else the innermost.
fn site_of(frames: &[FrameLabel]) -> String {
    let own = frames.iter().rev().find(|frame| frame.is_own_code());
    own.or(frames.last()).map_or_else(|| "[other stacks]".to_owned(), ToString::to_string)
}
