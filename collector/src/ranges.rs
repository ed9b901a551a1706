//! Ranges and marks of the program, from the segment to the profile.

use crate::pace::{halve, span_length};
use radrm_base::step;
use radrm_profile::model::{GpuIndex, OpenRange, ProcessKey, RangeEvent, RangeMemory, RangeName, Ranges};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry as seg;
use std::collections::BTreeMap;

/// Ranges and marks of one name that a process's span keeps one by one; spans are a share of the time that has passed,
/// some 180 per doubling of it.
const PER_NAME: usize = 3;

/// The first ranges and marks of a process, which are all kept: a short program has a complete picture.
const FIRST_EVENTS: u64 = 2_000;

/// Names of which a process's span keeps any.
const NAMES_PER_SPAN: usize = 12;

/// The same for ranges that are in one other at most, such as steps and their parts.
const OUTER_NAMES_PER_SPAN: usize = 48;

/// Age at which figures are written for the first time, if the process has not ended before; then when it is twice as
/// old.
const FIRST: Nanos = Nanos::from_secs(5);

/// Time at which the figures of a process are written next.
#[derive(Debug)]
pub(crate) struct Due {
    seen: Nanos,
    at: Nanos,
}

impl Due {
    /// For a process that is seen for the first time.
    pub(crate) fn new(now: Nanos) -> Self {
        Self { seen: now, at: now + FIRST }
    }

    /// Returns true if it is time; if so, sets the next time.
    pub(crate) fn is_due(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.at;
        if is_due {
            self.at = now + now.minus(self.seen).max(FIRST);
        }
        is_due
    }
}

/// The name under which a process counts its steps, and how many it has made: the step's name that was met most often, the
/// program's own word before that of the hooks. `None` where it names none.
#[must_use]
pub fn steps(found: &seg::RangeSnapshot) -> Option<(&seg::RangeName, u64)> {
    let steps = found.names.iter().filter(|name| step::is_step(&name.name));
    let counted = steps.map(|name| (name, name.ranges.saturating_add(name.marks)));
    counted.max_by_key(|(name, count)| (*count, name.name != step::STEP_BY_HOOK))
}

/// The figures of a process; `lost`: records that the ring had and that were not read.
pub(crate) fn ranges(key: ProcessKey, found: &seg::RangeSnapshot, lost: u64) -> Ranges {
    Ranges {
        key,
        names: found.names.iter().map(name).collect(),
        open: found.open.iter().map(open).collect(),
        unlisted: lost,
        other: found.other,
        not_kept: found.too_deep.saturating_add(found.not_started),
        early: found.early,
        unbalanced: found.unbalanced,
    }
}

fn name(name: &seg::RangeName) -> RangeName {
    RangeName {
        id: name.id.number().into(),
        name: if name.id == seg::NameId::OTHER { "(other)".to_owned() } else { name.name.clone() },
        name_cut: name.truncated,
        ranges: name.ranges,
        marks: name.marks,
        total: Nanos(name.total_ns),
        shortest: Nanos(name.shortest_ns),
        longest: Nanos(name.longest_ns),
        first: Nanos(name.first_ns),
        last: Nanos(name.last_ns),
        end: Nanos(name.end_ns),
        without_peak: name.unmarked,
        gpus: name.gpus.iter().map(memory).collect(),
    }
}

fn memory(of: &seg::RangeGpu) -> RangeMemory {
    RangeMemory {
        gpu: GpuIndex(of.gpu.number()),
        peak: Bytes(of.peak),
        entry_at_peak: Bytes(of.entry_at_peak),
        exit_at_peak: Bytes(of.exit_at_peak),
        last_entry: Bytes(of.last_entry),
        last_exit: Bytes(of.last_exit),
        change: of.change,
        ranges: of.ranges,
    }
}

fn open(range: &seg::OpenRange) -> OpenRange {
    OpenRange {
        name: range.name.number().into(),
        start: Nanos(range.start_ns),
        thread: range.lane.into(),
        depth: range.depth.into(),
        step: range.step,
    }
}

/// One record of the ring.
pub(crate) fn event(process: ProcessKey, record: &seg::RangeRecord) -> RangeEvent {
    RangeEvent {
        process,
        name: record.name.number().into(),
        start: Nanos(record.start_ns),
        length: Nanos(record.end_ns.saturating_sub(record.start_ns)),
        is_mark: record.is_mark,
        thread: record.lane.into(),
        depth: record.depth.into(),
        is_nested: record.is_nested,
        step: record.step,
        gpu: record.gpu.map(|gpu| GpuIndex(gpu.number())),
        entry: Bytes(record.entry),
        exit: Bytes(record.exit),
        peak: record.peak.map(Bytes),
    }
}

/// Keeps a few ranges of each name and span, evenly: every one at first, every second once there are too many, and so on.
#[derive(Debug, Default)]
pub(crate) struct RangeThinner {
    open: BTreeMap<ProcessKey, Span>,
    kept: Vec<RangeEvent>,
    left_out: BTreeMap<ProcessKey, u64>,
    seen: BTreeMap<ProcessKey, u64>,
}

#[derive(Debug, Default)]
struct Span {
    until: Nanos,
    names: BTreeMap<u32, OfName>,
}

#[derive(Debug)]
struct OfName {
    stride: u64,
    seen: u64,
    kept: Vec<RangeEvent>,
}

impl RangeThinner {
    pub(crate) fn add(&mut self, events: impl IntoIterator<Item = RangeEvent>) {
        for event in events {
            let seen = self.seen.entry(event.process).or_default();
            *seen += 1;
            if *seen <= FIRST_EVENTS {
                self.kept.push(event);
                continue;
            }
            let left_out = self.left_out.entry(event.process).or_default();
            let span = self.open.entry(event.process).or_default();
            let end = event.start + event.length;
            if end >= span.until {
                let names = std::mem::take(&mut span.names);
                self.kept.extend(names.into_values().flat_map(|name| name.kept));
                span.until = end + span_length(end);
            }
            let names = if event.depth <= 1 { OUTER_NAMES_PER_SPAN } else { NAMES_PER_SPAN };
            if span.names.len() >= names && !span.names.contains_key(&event.name) {
                *left_out += 1;
                continue;
            }
            let name =
                span.names.entry(event.name).or_insert(OfName { stride: 1, seen: 0, kept: Vec::new() });
            *left_out += name.add(event);
        }
    }

    /// Ranges whose span is over.
    pub(crate) fn take(&mut self) -> Vec<RangeEvent> {
        std::mem::take(&mut self.kept)
    }

    /// All of a process that is gone.
    pub(crate) fn end(&mut self, process: ProcessKey) {
        let names = self.open.remove(&process).into_iter().flat_map(|span| span.names.into_values());
        self.kept.extend(names.flat_map(|name| name.kept));
    }

    /// Number of ranges and marks of a process that were not kept so far.
    pub(crate) fn left_out(&self, process: ProcessKey) -> u64 {
        self.left_out.get(&process).copied().unwrap_or(0)
    }
}

impl OfName {
    /// Adds one; gives how many are left out for it.
    fn add(&mut self, event: RangeEvent) -> u64 {
        let is_kept = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if !is_kept {
            return 1;
        }
        self.kept.push(event);
        if self.kept.len() <= PER_NAME {
            return 0;
        }
        let before = self.kept.len();
        halve(&mut self.kept);
        self.stride *= 2;
        (before - self.kept.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: u32, start: u64) -> RangeEvent {
        RangeEvent { name, start: Nanos(start), depth: 2, ..RangeEvent::default() }
    }

    #[test]
    fn kept_and_left_out_are_all_there_were() {
        let mut thinner = RangeThinner::default();
        let mut count = 0u64;
        for n in 0..100_000u64 {
            // 100 a second, of 60 names.
            thinner.add([event((n % 60) as u32, n * 10_000_000)]);
            count += 1;
        }
        thinner.end(ProcessKey::default());
        let kept = thinner.take();
        assert_eq!(kept.len() as u64 + thinner.left_out(ProcessKey::default()), count);
        assert!((1_000..60_000).contains(&kept.len()), "{}", kept.len());
        assert!(thinner.take().is_empty() && thinner.open.is_empty());
    }

    #[test]
    fn a_rare_name_keeps_all_beside_a_frequent_one() {
        let mut thinner = RangeThinner::default();
        for n in 0..1_000_000u64 {
            thinner.add([event(1, n * 60_000)]);
            if n % 100_000 == 0 {
                thinner.add([event(2, n * 60_000)]);
            }
        }
        thinner.end(ProcessKey::default());
        let kept = thinner.take();
        assert_eq!(kept.iter().filter(|event| event.name == 2).count(), 10);
        assert!(kept.len() < 20_000, "{}", kept.len());
    }

    #[test]
    fn figures_become_rarer() {
        let mut due = Due::new(Nanos::ZERO);
        let times = (0..86_400).filter(|second| due.is_due(Nanos::from_secs(*second))).count();
        assert!((10..20).contains(&times), "{times}");
    }
}
