//! Memory holders by line of the program's own code.

use super::fold;
use super::frames::FrameLabel;
use super::job::job_stacks;
use super::memory::Memory;
use super::table::{Refusal, StackRow, StackTable, tables, tables_of};
use radrm_profile::model::{Kind, Process, Profile};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// Sites that the JSON report lists of each process and GPU.
const LISTED: usize = 50;
/// Callers that it lists of each.
const CALLERS: usize = 16;

/// Memory holders of a process on one GPU, by line.
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
    /// Requests that were refused, by where they were made: the line that asked first comes first, as far as that was
    /// written down, and then the one that asked most often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSite>,
    /// Refused requests with what was held at that moment, by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalSummary>,
    /// Memory that is not a part of the device total.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_memory: Vec<OtherMemorySummary>,
    /// Stacks without a place of their own, or that could not be read.
    pub stacks_not_kept: u64,
    /// Stacks that were not read on purpose, and the reason of each such count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks_bypassed: Vec<(u64, &'static str)>,
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
    /// Callers of the line's function if it had several, largest at the peak first.
    /// A helper through which a program requests all its memory has several. A caller is the next function of the
    /// program's own code. Their sums are those of the line, except for callers that are not listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallerSummary>,
}

/// Memory that a line holds for one of its callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallerSummary {
    /// The caller's line.
    pub site: String,
    /// Held at the peak.
    pub peak_bytes: Bytes,
    /// Held at the end, or when it was last read.
    pub held_bytes: Bytes,
}

/// Requests that were refused in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedSite {
    /// As in [`SiteSummary`].
    pub site: String,
    /// Number of refused requests.
    pub requests: u64,
    /// The largest of them.
    pub largest_bytes: Bytes,
    /// Time of the first of them; null if it was not written down.
    pub first_ns: Option<Nanos>,
    /// The stack of most of them, outermost first.
    pub stack: Vec<String>,
}

/// A refused request, and who held the memory at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalSummary {
    /// Its number among those of the profile, by time, from 1: `radrm report --stacks=folded --at=refusal:NUMBER`.
    pub number: usize,
    /// Time of the refusal.
    pub t_ns: Nanos,
    /// Kind of memory asked for.
    pub kind: &'static str,
    /// Size asked for.
    pub size_bytes: Bytes,
    /// The line that asked, as in [`SiteSummary`].
    pub site: String,
    /// The functions of the program's own code that led to it, innermost first.
    pub callers: Vec<String>,
    /// Its stack, outermost first.
    pub stack: Vec<String>,
    /// Device total of the process at that moment: the sum of `held`, those that are not listed included.
    pub held_bytes: Bytes,
    /// Largest memory holders at that moment.
    pub held: Vec<HeldSite>,
    /// Lines that are not listed.
    pub held_not_listed: u64,
}

/// Memory that a line held at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldSite {
    /// As in [`SiteSummary`].
    pub site: String,
    /// Bytes.
    pub bytes: Bytes,
}

/// Holders of memory that is not a part of the device total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherMemorySummary {
    /// Kind of memory.
    pub kind: &'static str,
    /// Held when the device total was at its peak: the sum of `sites`, those that are not listed included.
    pub peak_bytes: Bytes,
    /// Largest at the peak first.
    pub sites: Vec<SiteSummary>,
    /// Sites that are not listed.
    pub sites_not_listed: u64,
}

/// Memory holders of a job of several processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobStacksSummary {
    /// The moment: of those at which all processes were read, the one at which most was held. The job's peak can lie in
    /// between.
    pub t_ns: Nanos,
    /// Processes that held anything then.
    pub processes: u64,
    /// Device memory on all GPUs: the sum of `sites`, those that are not listed included.
    pub held_bytes: Bytes,
    /// Largest first.
    pub sites: Vec<HeldSite>,
    /// Lines that are not listed.
    pub sites_not_listed: u64,
}

/// The lines of one process and GPU.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Largest at the peak first; last those that held something at other moments only.
    pub sites: Vec<SiteSummary>,
    /// Of each row of the table the number of its site.
    pub of_row: Vec<Option<usize>>,
}

impl Lines {
    /// The lines of a table.
    pub fn of(table: &StackTable<'_>) -> Self {
        let mut order: Vec<(usize, &StackRow)> = table.rows.iter().enumerate().collect();
        // Largest first: the first stack of a site is the one that held most.
        order.sort_by(|(_, a), (_, b)| b.at_peak.cmp(&a.at_peak).then_with(|| a.frames.cmp(&b.frames)));
        let mut known = BTreeMap::<String, Known>::new();
        for (at, row) in order {
            let was_held = || table.moments.iter().any(|moment| !moment.held[at].is_zero());
            if row.at_peak.is_zero() && row.at_end.is_zero() && !was_held() {
                continue;
            }
            let site = site_of(&row.frames);
            let entry = known.entry(site.clone()).or_insert_with(|| {
                let stack = row.frames.iter().map(ToString::to_string).collect();
                let (peak_bytes, held_bytes) = (Bytes::ZERO, Bytes::ZERO);
                let site =
                    SiteSummary { site, peak_bytes, held_bytes, allocations: 0, stack, callers: Vec::new() };
                Known { site, callers: BTreeMap::new(), rows: Vec::new() }
            });
            entry.add(row, at);
        }
        let mut sites: Vec<(SiteSummary, Vec<usize>)> = known.into_values().map(Known::finish).collect();
        sites.sort_by(|(a, _), (b, _)| {
            b.peak_bytes
                .cmp(&a.peak_bytes)
                .then_with(|| b.held_bytes.cmp(&a.held_bytes))
                .then_with(|| a.site.cmp(&b.site))
        });
        let mut lines = Self { sites: Vec::new(), of_row: vec![None; table.rows.len()] };
        for (site, rows) in sites {
            for row in rows {
                lines.of_row[row] = Some(lines.sites.len());
            }
            lines.sites.push(site);
        }
        lines
    }
}

/// A line while its stacks are added up.
struct Known {
    site: SiteSummary,
    /// At the peak and at the end.
    callers: BTreeMap<String, (Bytes, Bytes)>,
    rows: Vec<usize>,
}

impl Known {
    fn add(&mut self, row: &StackRow, at: usize) {
        let sum = |to: &mut Bytes, bytes: Bytes| *to = Bytes(to.0.saturating_add(bytes.0));
        sum(&mut self.site.peak_bytes, row.at_peak);
        sum(&mut self.site.held_bytes, row.at_end);
        self.site.allocations = self.site.allocations.saturating_add(row.allocations);
        let caller = self.callers.entry(caller_of(&row.frames)).or_default();
        sum(&mut caller.0, row.at_peak);
        sum(&mut caller.1, row.at_end);
        self.rows.push(at);
    }

    fn finish(mut self) -> (SiteSummary, Vec<usize>) {
        if self.callers.len() > 1 {
            let caller = |(site, (peak_bytes, held_bytes))| CallerSummary { site, peak_bytes, held_bytes };
            let mut callers: Vec<CallerSummary> = self.callers.into_iter().map(caller).collect();
            callers.sort_by_key(|of| std::cmp::Reverse((of.peak_bytes, of.held_bytes)));
            callers.truncate(CALLERS);
            self.site.callers = callers;
        }
        (self.site, self.rows)
    }
}

/// Memory holders of each process and GPU, by line.
pub(in crate::model) fn summaries(profile: &Profile) -> Vec<StacksSummary> {
    let other: Vec<StackTable<'_>> = Memory::ALL
        .into_iter()
        .filter(|memory| *memory != Memory::Device)
        .flat_map(|memory| tables_of(profile, memory, false))
        .collect();
    let mut device = tables(profile, false);
    // A process can have pinned memory beside a GPU on which it has nothing.
    for table in &other {
        let is_of = |known: &StackTable<'_>| is_same(known, table);
        if !device.iter().any(is_of) {
            device.push(StackTable {
                memory: Memory::Device,
                rows: Vec::new(),
                refusals: Vec::new(),
                ..table.clone()
            });
        }
    }
    device.iter().map(|table| summary(table, &other)).collect()
}

fn is_same(a: &StackTable<'_>, b: &StackTable<'_>) -> bool {
    (a.process.key, a.account.gpu) == (b.process.key, b.account.gpu)
}

fn summary(table: &StackTable<'_>, other: &[StackTable<'_>]) -> StacksSummary {
    let (sites, sites_not_listed) = held(table);
    let other = other.iter().filter(|other| is_same(other, table)).map(|other| {
        let (sites, sites_not_listed) = held(other);
        let kind = other.memory.kind().map_or("device", Kind::key);
        OtherMemorySummary { kind, peak_bytes: other.peak(), sites, sites_not_listed }
    });
    let stacks = table.process.stacks.as_ref();
    StacksSummary {
        pid: table.pid(),
        gpu: table.account.gpu.0,
        peak_bytes: table.account.peak,
        sites,
        sites_not_listed,
        refused: refused(table),
        refusals: table.refusals.iter().map(|of| refusal(table, of)).collect(),
        other_memory: other.filter(|of| !of.sites.is_empty()).collect(),
        stacks_not_kept: stacks.map_or(0, |stacks| stacks.full.saturating_add(stacks.unread)),
        stacks_bypassed: bypassed(table.process).collect(),
        is_approximate: stacks.is_some_and(|stacks| stacks.unordered > 0),
    }
}

/// Stacks of a process that were not read on purpose, with the reason.
pub(crate) fn bypassed(process: &Process) -> impl Iterator<Item = (u64, &'static str)> {
    const REASONS: [(&str, &str); 2] = [
        ("small_signal_stack", "the stack of a signal handler has no room for it; give sigaltstack 64 KiB"),
        ("seccomp_filter", "the process is under a seccomp filter that may forbid process_vm_readv"),
    ];
    process.state.bypasses.iter().filter(|bypass| bypass.count > 0).filter_map(|bypass| {
        let (_, reason) = REASONS.iter().find(|(name, _)| *name == bypass.reason)?;
        Some((bypass.count, *reason))
    })
}

/// The lines that held something at the peak or at the end.
fn held(table: &StackTable<'_>) -> (Vec<SiteSummary>, u64) {
    let mut sites = Lines::of(table).sites;
    sites.retain(|site| !site.peak_bytes.is_zero() || !site.held_bytes.is_zero());
    listed(sites)
}

/// As many as are listed, and how many are not.
fn listed<T>(mut all: Vec<T>) -> (Vec<T>, u64) {
    let more = all.len().saturating_sub(LISTED) as u64;
    all.truncate(LISTED);
    (all, more)
}

fn refused(table: &StackTable<'_>) -> Vec<RefusedSite> {
    let mut refused = BTreeMap::<String, RefusedSite>::new();
    let mut order: Vec<(usize, &StackRow)> =
        table.rows.iter().enumerate().filter(|(_, row)| row.refused > 0).collect();
    order.sort_by_key(|(_, row)| std::cmp::Reverse(row.refused));
    for (at, row) in order {
        let site = site_of(&row.frames);
        let entry = refused.entry(site.clone()).or_insert_with(|| RefusedSite {
            site,
            requests: 0,
            largest_bytes: Bytes::ZERO,
            first_ns: None,
            stack: row.frames.iter().map(ToString::to_string).collect(),
        });
        entry.requests = entry.requests.saturating_add(row.refused);
        entry.largest_bytes = entry.largest_bytes.max(row.refused_largest);
        let first = table.refusals.iter().filter(|refusal| refusal.row == at).map(|refusal| refusal.t).min();
        entry.first_ns = entry.first_ns.into_iter().chain(first).min();
    }
    let mut refused: Vec<RefusedSite> = refused.into_values().collect();
    let first = |of: &RefusedSite| of.first_ns.unwrap_or(Nanos(u64::MAX));
    refused.sort_by(|a, b| {
        first(a).cmp(&first(b)).then_with(|| b.requests.cmp(&a.requests)).then_with(|| a.site.cmp(&b.site))
    });
    listed(refused).0
}

fn refusal(table: &StackTable<'_>, of: &Refusal) -> RefusalSummary {
    let rows = table.rows.iter().zip(&of.held);
    let (held, held_not_listed) = listed(by_site(rows.map(|(row, bytes)| (&row.frames[..], *bytes))));
    let frames = table.rows.get(of.row).map_or(&[][..], |row| &row.frames);
    RefusalSummary {
        number: of.number,
        t_ns: of.t,
        kind: Kind::from_raw(of.kind).map_or("unknown", Kind::key),
        size_bytes: of.size,
        site: site_of(frames),
        callers: callers_of(frames).map(ToString::to_string).collect(),
        stack: frames.iter().map(ToString::to_string).collect(),
        held_bytes: of.total,
        held,
        held_not_listed,
    }
}

/// Memory of stacks by line, largest first.
fn by_site<'f>(stacks: impl Iterator<Item = (&'f [FrameLabel], Bytes)>) -> Vec<HeldSite> {
    let mut sums = BTreeMap::<String, Bytes>::new();
    for (frames, bytes) in stacks.filter(|(_, bytes)| !bytes.is_zero()) {
        let sum = sums.entry(site_of(frames)).or_default();
        *sum = Bytes(sum.0.saturating_add(bytes.0));
    }
    let mut held: Vec<HeldSite> = sums.into_iter().map(|(site, bytes)| HeldSite { site, bytes }).collect();
    held.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    held
}

/// Memory holders of a job, by line.
/// `None` if fewer than two processes have call stacks, or no moment is known at which all were read.
pub(in crate::model) fn job_summary(profile: &Profile) -> Option<JobStacksSummary> {
    if profile.processes.iter().filter(|process| process.stacks.is_some()).count() < 2 {
        return None;
    }
    let job = job_stacks(profile, false)?;
    let stacks = job.flames.iter().flat_map(|flame| &flame.stacks);
    let (sites, sites_not_listed) = listed(by_site(stacks.map(|stack| (&stack.frames[..], stack.bytes))));
    Some(JobStacksSummary {
        t_ns: job.t,
        processes: job.processes as u64,
        held_bytes: job.total(),
        sites,
        sites_not_listed,
    })
}

/// The frame to look at first: the innermost of the program's own code, else the innermost; in a thread of the backward pass
/// the function that is differentiated.
pub(crate) fn site_of(frames: &[FrameLabel]) -> String {
    if let Some(own) = frames.iter().rev().find(|frame| frame.is_own_code()) {
        return own.to_string();
    }
    match frames {
        [root, inner @ ..] if root.is_backward() => {
            let function = inner.iter().find_map(|frame| fold::differentiated(&frame.function));
            function.map_or_else(|| root.to_string(), |function| format!("{root} {function}"))
        }
        _ => frames.last().map_or_else(|| "[other stacks]".to_owned(), ToString::to_string),
    }
}

/// Whom the function of [`site_of`] was called by, innermost first: frames of the program's own code, of a function that
/// calls itself once.
fn callers_of(frames: &[FrameLabel]) -> impl Iterator<Item = &FrameLabel> {
    let mut own = frames.iter().rev().filter(|frame| frame.is_own_code());
    let mut called = own.next();
    own.filter(move |frame| {
        let called = called.replace(frame);
        called.is_some_and(|called| (&called.function, &called.file) != (&frame.function, &frame.file))
    })
}

/// The first of [`callers_of`].
fn caller_of(frames: &[FrameLabel]) -> String {
    callers_of(frames)
        .next()
        .map_or_else(|| "[no caller in the program's own code]".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::frames::Origin;

    fn frame(function: &str, line: u32, is_installed: bool) -> FrameLabel {
        FrameLabel {
            origin: Origin::Interpreted,
            function: function.into(),
            file: Some("/home/u/train.py".into()),
            line: Some(line),
            is_installed,
        }
    }

    fn row(frames: &[(&str, u32, bool)], at_peak: u64) -> StackRow {
        let frames = frames.iter().map(|(function, line, is)| frame(function, *line, *is)).collect();
        StackRow { frames, at_peak: Bytes(at_peak), ..StackRow::default() }
    }

    fn add_up(rows: &[StackRow]) -> SiteSummary {
        let site = SiteSummary {
            site: String::new(),
            peak_bytes: Bytes::ZERO,
            held_bytes: Bytes::ZERO,
            allocations: 0,
            stack: Vec::new(),
            callers: Vec::new(),
        };
        let mut known = Known { site, callers: BTreeMap::new(), rows: Vec::new() };
        for (at, row) in rows.iter().enumerate() {
            known.add(row, at);
        }
        known.finish().0
    }

    #[test]
    fn what_a_helper_holds_is_told_apart_by_its_callers() {
        let helper = ("allocate", 17, false);
        let rows = [
            row(&[("main", 6, false), ("weights", 2, false), helper], 500),
            row(&[("main", 7, false), ("optimizer", 4, false), ("call", 1, true), helper], 700),
            row(&[("main", 9, false), ("weights", 2, false), helper], 300),
            row(&[helper], 20),
        ];
        let site = add_up(&rows);
        let found: Vec<(&str, u64)> =
            site.callers.iter().map(|of| (of.site.as_str(), of.peak_bytes.0)).collect();
        let expected = [
            ("weights (train.py:2)", 800),
            ("optimizer (train.py:4)", 700),
            ("[no caller in the program's own code]", 20),
        ];
        assert_eq!((found.as_slice(), site.peak_bytes), (&expected[..], Bytes(1520)));
        // A function that calls itself is not its own caller, and one caller says nothing that the stack does not.
        let deep = [("main", 6, false), ("forward", 5, false), ("forward", 4, false)];
        assert_eq!(add_up(&[row(&deep, 8), row(&deep[..2], 9)]).callers, []);
    }

    #[test]
    fn callers_are_the_programs_own_functions_from_the_inside_out() {
        let frames = row(
            &[
                ("main", 9, false),
                ("fit", 7, false),
                ("call", 1, true),
                ("forward", 5, false),
                ("forward", 4, false),
                ("empty", 2, true),
            ],
            1,
        )
        .frames;
        let found: Vec<String> = callers_of(&frames).map(ToString::to_string).collect();
        assert_eq!(
            (site_of(&frames).as_str(), &found[..]),
            ("forward (train.py:4)", &["fit (train.py:7)".to_owned(), "main (train.py:9)".into()][..])
        );
        assert_eq!(callers_of(&frames[2..3]).count(), 0, "nothing of the program's own");
    }
}
