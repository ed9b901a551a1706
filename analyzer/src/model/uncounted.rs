//! Activity that no figure contains: processes of the job that were not counted, and failed calls of `cuInit`.

use radrm_profile::model::{Profile, Uncounted, UncountedProcess};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;

/// A code with which `cuInit` failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InitFailureSummary {
    /// The call: `cuInit`.
    pub call: &'static str,
    /// The driver's code.
    pub code: u32,
    /// Its name; empty if it is not known.
    pub name: String,
    /// Its meaning.
    pub meaning: String,
    /// Remedy for the user.
    pub remedy: String,
    /// Process ids of those in which it failed.
    pub pids: Vec<u32>,
    /// Time of the first failure.
    pub first_ns: Nanos,
}

/// A process of the job that no figure contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UncountedSummary {
    /// `outside`: it held memory beside the job's limit; `refused`: it got no memory under the limit; `unseen`: the job has
    /// no limit.
    pub kind: Uncounted,
    /// Process id.
    pub pid: u32,
    /// Command line; empty if unknown.
    pub command: String,
    /// Cause, by the name that `radrm audit` has for it.
    pub reason: String,
    /// The cause as a sentence about the process, without its subject.
    pub explanation: String,
    /// Remedy for the user.
    pub remedy: String,
    /// Time at which it was first seen.
    pub first_ns: Nanos,
    /// Time at which it was last seen.
    pub last_ns: Nanos,
    /// Memory that it held, by GPU.
    pub gpus: Vec<UncountedMemorySummary>,
}

/// Memory of a GPU that a process held beyond what is counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UncountedMemorySummary {
    /// Index in this job; null if no counted process used the GPU.
    pub gpu: Option<u8>,
    /// UUID.
    pub uuid: String,
    /// NVML's number of the GPU.
    pub nvml_index: Option<u32>,
    /// Highest figure of NVML's that nothing counted explains.
    pub peak_bytes: Bytes,
}

impl UncountedMemorySummary {
    fn label(&self) -> String {
        match (self.gpu, self.nvml_index) {
            (Some(index), _) => format!("GPU {index}"),
            (None, Some(index)) => format!("GPU {index}"),
            (None, None) => self.uuid.clone(),
        }
    }
}

/// Failed calls of `cuInit` by code, in the order in which they were first seen.
pub(super) fn init_failures(profile: &Profile) -> Vec<InitFailureSummary> {
    let mut all: Vec<InitFailureSummary> = Vec::new();
    for failure in &profile.init_failures {
        match all.iter_mut().find(|known| known.code == failure.code) {
            Some(known) => known.pids.push(failure.pid),
            None => all.push(InitFailureSummary {
                call: "cuInit",
                code: failure.code,
                name: failure.name.clone(),
                meaning: failure.meaning.clone(),
                remedy: failure.remedy.clone(),
                pids: vec![failure.pid],
                first_ns: failure.t,
            }),
        }
    }
    all
}

/// Processes in no figure, those that held memory beside the limit first.
pub(super) fn processes(profile: &Profile) -> Vec<UncountedSummary> {
    let memory = |process: &UncountedProcess| {
        let of = |on: &radrm_profile::model::UncountedMemory| UncountedMemorySummary {
            gpu: profile.gpus.iter().find(|gpu| gpu.uuid == on.gpu).map(|gpu| gpu.index.0),
            uuid: on.gpu.clone(),
            nvml_index: on.index,
            peak_bytes: on.peak,
        };
        process.gpus.iter().map(of).collect()
    };
    let mut all: Vec<_> = profile
        .uncounted
        .iter()
        .map(|process| UncountedSummary {
            kind: process.kind,
            pid: process.pid,
            command: process.command.clone(),
            reason: process.reason.clone(),
            explanation: process.explanation.clone(),
            remedy: process.remedy.clone(),
            first_ns: process.first,
            last_ns: process.last,
            gpus: memory(process),
        })
        .collect();
    all.sort_by_key(|process| process.kind);
    all
}

/// A sentence for each cause.
pub(super) fn sentences(processes: &[UncountedSummary], failures: &[InitFailureSummary]) -> Vec<String> {
    let mut groups: Vec<Vec<&UncountedSummary>> = Vec::new();
    for process in processes {
        let is_like = |other: &UncountedSummary| {
            (other.kind, &other.explanation, &other.remedy)
                == (process.kind, &process.explanation, &process.remedy)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| is_like(first))) {
            Some(group) => group.push(process),
            None => groups.push(vec![process]),
        }
    }
    let uncounted = groups.iter().filter_map(|group| Some(uncounted_sentence(group.first()?, group)));
    uncounted.chain(failures.iter().map(init_sentence)).collect()
}

fn uncounted_sentence(first: &UncountedSummary, group: &[&UncountedSummary]) -> String {
    let pids: Vec<u32> = group.iter().map(|process| process.pid).collect();
    let (subject, it, is) = match group {
        [one] if one.command.is_empty() => (format!("process {}", one.pid), "it", "is"),
        [one] => (format!("process {} ({})", one.pid, one.command), "it", "is"),
        _ => (format!("{} processes ({})", pids.len(), listed(&pids)), "each", "are"),
    };
    let what = match first.kind {
        Uncounted::Outside => {
            let largest = group.iter().flat_map(|process| &process.gpus).max_by_key(|on| on.peak_bytes);
            let held = largest.map_or_else(
                || "used a GPU".to_owned(),
                |on| format!("held up to {} of {}", on.peak_bytes, on.label()),
            );
            let longest = group.iter().map(|process| process.last_ns.minus(process.first_ns)).max();
            let long = longest
                .filter(|time| *time > Nanos::ZERO)
                .map_or(String::new(), |time| format!(", for {time}"));
            format!("{held} outside of the job's limit{long}")
        }
        Uncounted::Refused => "got no GPU memory under the job's limit".to_owned(),
        Uncounted::Unseen => format!("{is} in no figure"),
    };
    format!("{subject} of this job {what}: {it} {}; remedy: {}", first.explanation, first.remedy)
}

fn init_sentence(failure: &InitFailureSummary) -> String {
    let InitFailureSummary { code, name, meaning, remedy, pids, .. } = failure;
    let code = if name.is_empty() { code.to_string() } else { format!("{code} ({name})") };
    let place = match pids[..] {
        [pid] => format!("process {pid}"),
        _ => format!("{} processes ({})", pids.len(), listed(pids)),
    };
    format!("cuInit failed with {code} in {place}: {meaning}; remedy: {remedy}")
}

/// The first few numbers of a list.
pub(super) fn listed(numbers: &[u32]) -> String {
    const SHOWN: usize = 6;
    let first: Vec<String> = numbers.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if numbers.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", first.join(", "))
}
