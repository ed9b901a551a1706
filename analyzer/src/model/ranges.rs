//! Phases that the program named itself: ranges and marks, of all processes by name.

use radrm_base::step;
use radrm_profile::model::{Process, ProcessKey, Profile, RangeEvent, RangeName};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are listed; a process has 1024 at most.
const LISTED: usize = 1024;
/// Open ranges that are listed.
const OPEN: usize = 32;

/// The ranges and marks of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RangesSummary {
    /// By name, those that took longest together first, then marks.
    pub names: Vec<RangeSummary>,
    /// Names that are not listed.
    pub names_not_listed: u64,
    /// Steps of the process that made the most; null if no range or mark is named like a step.
    pub steps: Option<StepsSummary>,
    /// The same of steps of an optimizer: those that hooks marked, else those that are named so.
    #[serde(skip)]
    pub optimizer_steps: Option<StepsSummary>,
    /// Ranges that were open at the end: of a program that was killed, where it was.
    pub open: Vec<OpenRangeSummary>,
    /// Open ranges that are not listed.
    pub open_not_listed: u64,
    /// Ranges and marks that the profile does not have one by one; they are in the figures.
    pub not_kept_singly: u64,
    /// Of these figures, ranges and marks that are under `(other)`: there were too many names.
    pub under_other: u64,
    /// Ranges in no figure: too many were open at a time, or in too many threads.
    pub not_counted: u64,
    /// Ranges and marks in no figure: they were over before the process used a GPU.
    pub before_gpu: u64,
    /// Ends without a begin.
    pub unbalanced: u64,
}

/// The ranges and marks of a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RangeSummary {
    /// Name, with domain and category behind it.
    pub name: String,
    /// The program's name was longer.
    pub name_cut: bool,
    /// Processes that have it.
    pub processes: u64,
    /// Ranges that have ended.
    pub ranges: u64,
    /// Marks.
    pub marks: u64,
    /// Time that the ranges took together.
    pub total_ns: Nanos,
    /// Mean time of a range.
    pub mean_ns: Nanos,
    /// Time of the shortest.
    pub shortest_ns: Nanos,
    /// Time of the longest.
    pub longest_ns: Nanos,
    /// Start of the first range.
    pub first_ns: Nanos,
    /// End of the last range.
    pub end_ns: Nanos,
    /// Memory of the process that held most inside, by GPU. Of marks there is none.
    pub gpus: Vec<RangeGpuSummary>,
}

/// Device memory of one process in the ranges of a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RangeGpuSummary {
    /// The GPU.
    pub gpu: u8,
    /// Process id.
    pub pid: u32,
    /// Most that the process held inside a range.
    pub peak_bytes: Bytes,
    /// False if the peak inside some ranges is not known: it can be larger.
    pub peak_is_exact: bool,
    /// Held where that range began.
    pub entry_bytes: Bytes,
    /// Held where it ended.
    pub exit_bytes: Bytes,
    /// Mean over the ranges of what they ended with less what they began with.
    pub mean_change_bytes: i64,
}

/// Steps of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepsSummary {
    /// Name of the steps.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Number of steps.
    pub steps: u64,
    /// Steps per second between the first one's begin and the last one's.
    pub per_second: f64,
}

/// A range that was open at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpenRangeSummary {
    /// Name.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Start of the range.
    pub since_ns: Nanos,
    /// Number of the step.
    pub step: Option<u64>,
}

impl RangeSummary {
    /// Returns true if several names share this entry.
    fn is_other(&self) -> bool {
        self.name == "(other)"
    }

    fn add(&mut self, name: &RangeName) {
        let is_first = self.processes == 0;
        self.processes += 1;
        self.name_cut |= name.name_cut;
        self.marks = self.marks.saturating_add(name.marks);
        self.first_ns = if is_first { name.first } else { self.first_ns.min(name.first) };
        self.end_ns = self.end_ns.max(name.end);
        if name.ranges == 0 {
            return;
        }
        self.shortest_ns = if self.ranges == 0 { name.shortest } else { self.shortest_ns.min(name.shortest) };
        self.longest_ns = self.longest_ns.max(name.longest);
        self.ranges = self.ranges.saturating_add(name.ranges);
        self.total_ns = Nanos(self.total_ns.0.saturating_add(name.total.0));
        self.mean_ns = Nanos(self.total_ns.0 / self.ranges);
    }

    fn add_memory(&mut self, process: &Process, name: &RangeName) {
        for memory in &name.gpus {
            let ranges = i64::try_from(memory.ranges).unwrap_or(i64::MAX).max(1);
            let next = RangeGpuSummary {
                gpu: memory.gpu.0,
                pid: process.identity.pid,
                peak_bytes: memory.peak,
                peak_is_exact: name.without_peak == 0,
                entry_bytes: memory.entry_at_peak,
                exit_bytes: memory.exit_at_peak,
                mean_change_bytes: memory.change / ranges,
            };
            match self.gpus.iter_mut().find(|known| known.gpu == next.gpu) {
                // A peak that is only bounded from below may be the largest of all.
                Some(known) => {
                    let peak_is_exact = known.peak_is_exact && next.peak_is_exact;
                    let largest = if known.peak_bytes >= next.peak_bytes { known.clone() } else { next };
                    *known = RangeGpuSummary { peak_is_exact, ..largest };
                }
                None => self.gpus.push(next),
            }
        }
        self.gpus.sort_by_key(|memory| memory.gpu);
    }
}

/// The name; as it is, so that what shows it must escape it.
fn shown(name: &str) -> String {
    if name.is_empty() { "(no name)".to_owned() } else { name.to_owned() }
}

/// Numbers by which views name the threads of a process that has ranges or marks: from 1, by the number that its events have.
pub(crate) fn thread_numbers(profile: &Profile, process: ProcessKey) -> BTreeMap<u32, usize> {
    let own = profile.range_events.iter().filter(|event| event.process == process);
    let threads: BTreeSet<u32> = own.map(|event| event.thread).collect();
    threads.into_iter().zip(1..).collect()
}

/// Name of a range or mark.
pub(crate) fn event_name(profile: &Profile, event: &RangeEvent) -> String {
    let process = profile.processes.iter().rfind(|process| process.key == event.process);
    let ranges = process.and_then(|process| process.ranges.as_ref());
    let name = ranges.and_then(|ranges| ranges.names.iter().find(|name| name.id == event.name));
    name.map_or_else(|| "(unknown)".to_owned(), |name| shown(&name.name))
}

/// Phases as the job's processes named them; `None` if they named none.
pub(super) fn summary(profile: &Profile) -> Option<RangesSummary> {
    let mut all = BTreeMap::<&str, RangeSummary>::new();
    let mut found = RangesSummary::default();
    let mut is_any = false;
    for process in &profile.processes {
        let Some(ranges) = &process.ranges else { continue };
        is_any = true;
        for name in ranges.names.iter().filter(|name| name.ranges > 0 || name.marks > 0) {
            let summary = all
                .entry(&name.name)
                .or_insert_with(|| RangeSummary { name: shown(&name.name), ..RangeSummary::default() });
            summary.add(name);
            summary.add_memory(process, name);
        }
        found.not_kept_singly = found.not_kept_singly.saturating_add(ranges.unlisted);
        found.under_other = found.under_other.saturating_add(ranges.other);
        found.not_counted = found.not_counted.saturating_add(ranges.not_kept);
        found.before_gpu = found.before_gpu.saturating_add(ranges.early);
        found.unbalanced = found.unbalanced.saturating_add(ranges.unbalanced);
        found.open.extend(open(process));
        found.steps = most_steps(found.steps, steps(process, step::is_step));
        found.optimizer_steps = most_steps(found.optimizer_steps, optimizer_steps(process));
    }
    found.names = all.into_values().collect();
    found.names.sort_by_key(|name| (name.is_other(), std::cmp::Reverse(name.total_ns), name.first_ns));
    found.names_not_listed = found.names.len().saturating_sub(LISTED) as u64;
    found.names.truncate(LISTED);
    found.open.sort_by_key(|range| range.since_ns);
    found.open_not_listed = found.open.len().saturating_sub(OPEN) as u64;
    found.open.truncate(OPEN);
    is_any.then_some(found)
}

fn open(process: &Process) -> impl Iterator<Item = OpenRangeSummary> {
    let ranges = process.ranges.as_ref();
    let open = ranges.map_or(&[][..], |ranges| &ranges.open);
    open.iter().map(move |range| {
        let name = ranges.and_then(|ranges| ranges.names.iter().find(|name| name.id == range.name));
        OpenRangeSummary {
            name: shown(name.map_or("", |name| &name.name)),
            pid: process.identity.pid,
            since_ns: range.start,
            step: range.step,
        }
    })
}

fn optimizer_steps(process: &Process) -> Option<StepsSummary> {
    let by_hook = steps(process, |name| name == step::STEP_BY_HOOK);
    by_hook.or_else(|| steps(process, step::is_optimizer_step))
}

/// Steps of a process: of the name that is a wanted step's and has most of them.
fn steps(process: &Process, is_wanted: fn(&str) -> bool) -> Option<StepsSummary> {
    let names = process.ranges.iter().flat_map(|ranges| &ranges.names);
    let steps = names.filter(|name| is_wanted(&name.name)).filter_map(|name| {
        Some(StepsSummary {
            name: shown(&name.name),
            pid: process.identity.pid,
            steps: name.ranges.saturating_add(name.marks),
            per_second: name.steps_per_second()?,
        })
    });
    steps.max_by_key(|steps| steps.steps)
}

fn most_steps(one: Option<StepsSummary>, other: Option<StepsSummary>) -> Option<StepsSummary> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.steps > one.steps { other } else { one }),
        (one, other) => one.or(other),
    }
}
