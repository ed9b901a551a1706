//! Step times of a job, as its own segment has them: for jobs with a target.
//!
//! Ranges that the program marks come first: those of the name that the target states, else its steps (of steps that are
//! marks the time from one to the next), else the outermost ranges of each thread. A program that marks none shows the GPU
//! time of its timed launches. A range that is still open and has taken longer than the limit counts with its age: a step
//! that hangs is not a step that was never made.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use radrm_base::step::is_step;
use radrm_os::thread_time;
use radrm_scheduler_core::{LatencyTarget, Permille, Unseen};
use radrm_telemetry::{
    Liveness, NameId, OpenRange, RangeReader, RangeSnapshot, SampleReader, Segment, SlotInfo, monotonic_ns,
};

/// Launches are counted over this long for a speed.
const SPEED_OVER: Duration = Duration::from_secs(2);

/// Kind of a measured time; a later one shows more of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Launch,
    Outer,
    Step,
    Named,
}

/// The names of a process's ranges.
#[derive(Debug, Default)]
struct Names(BTreeMap<u16, String>);

impl Names {
    fn learn(&mut self, found: &RangeSnapshot) {
        self.0 = found.names.iter().map(|name| (name.id.number(), name.name.clone())).collect();
    }

    /// Kind as which a range or mark counts; `None`: it does not count.
    fn kind(&self, name: NameId, is_outer: bool, target: &LatencyTarget) -> Option<Kind> {
        let name = self.0.get(&name.number()).map_or("", String::as_str);
        match &target.of {
            // The domain and the category stand behind the name.
            Some(of) => (name == of || name.split(" [").next() == Some(of)).then_some(Kind::Named),
            None if is_step(name) => Some(Kind::Step),
            None => is_outer.then_some(Kind::Outer),
        }
    }
}

fn is_outer(range: &OpenRange) -> bool {
    range.depth == 0 || !range.is_nested
}

/// Reading of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The time of the steps at the target's quantile, ns; 0: none was made and none is under way.
    pub(crate) latency_ns: u64,
    /// The part of the window in which one was under way; `None`: their begins and ends are not seen.
    pub(crate) under_way: Option<Permille>,
}

/// The times of one kind of steps.
#[derive(Debug, Default)]
struct Times {
    took: Vec<u64>,
    /// From when to when each was under way, segment time.
    spans: Vec<(u64, u64)>,
}

/// Time in at least one of the spans, ns.
fn covered(spans: &mut [(u64, u64)]) -> u64 {
    spans.sort_unstable();
    let mut until = 0;
    let mut sum = 0;
    for (from, to) in spans {
        sum += to.saturating_sub(until.max(*from));
        until = until.max(*to);
    }
    sum
}

/// One process of the job.
#[derive(Debug)]
struct Process {
    ranges: RangeReader,
    samples: SampleReader,
    names: Names,
    /// Time of each lane's last step mark, ns of segment time.
    marks: BTreeMap<(u16, u8), u64>,
}

/// Readings of one job.
#[derive(Debug, Default)]
pub(crate) struct StepWatch {
    processes: BTreeMap<(usize, u32), Process>,
    /// The best kind of time that it has shown.
    best: Option<Kind>,
    /// Up to when it was read, ns of segment time.
    read_until: Option<u64>,
    launches: VecDeque<(Instant, u64)>,
}

impl Process {
    fn new(slot: &SlotInfo) -> Self {
        Self {
            ranges: RangeReader::new(slot),
            samples: SampleReader::new(slot),
            names: Names::default(),
            marks: BTreeMap::new(),
        }
    }
}

impl StepWatch {
    /// Step times since the last call, or at first since `window` ago. Takes so much processor time at most, and what one process
    /// takes: the rest of the processes is not read then.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn latency(
        &mut self,
        segment: Option<&Segment>,
        target: &LatencyTarget,
        window: Duration,
        time: Duration,
    ) -> Result<Steps, Unseen> {
        let begun = thread_time();
        let Some(segment) = segment else { return Err(Unseen::NoShim) };
        let Ok(job) = segment.job() else { return Err(Unseen::NoShim) };
        let now = monotonic_ns().saturating_sub(job.created_mono_ns);
        let first = now.saturating_sub(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
        let from = self.read_until.replace(now).unwrap_or(first);
        let mut times: BTreeMap<Kind, Times> = BTreeMap::new();
        let slots = segment.slots().unwrap_or_default();
        self.processes.retain(|key, _| slots.iter().any(|slot| (slot.slot, slot.generation) == *key));
        for slot in &slots {
            if thread_time().saturating_sub(begun) >= time {
                return Err(Unseen::NoSteps);
            }
            let process =
                self.processes.entry((slot.slot, slot.generation)).or_insert_with(|| Process::new(slot));
            let is_gone = slot.liveness != Liveness::Running;
            process.read(segment, slot, is_gone, target, (from, now), &mut times);
            if target.of.is_none() && self.best.is_none_or(|best| best == Kind::Launch) {
                let launches = process.samples.poll(segment, is_gone);
                let recent = launches.iter().filter(|launch| launch.seen_ns >= from);
                times.entry(Kind::Launch).or_default().took.extend(recent.map(|launch| launch.duration_ns));
            }
        }
        let is_seen = |times: &Times| !times.took.is_empty();
        let seen = times.iter().rev().find(|(_, times)| is_seen(times)).map(|(kind, _)| *kind);
        self.best = self.best.max(seen);
        let Some(best) = self.best else {
            return Err(match (slots.is_empty(), &target.of) {
                (true, _) => Unseen::NoShim,
                (_, Some(_)) => Unseen::NoSuchRange,
                _ => Unseen::NoSteps,
            });
        };
        let Times { mut took, mut spans } = times.remove(&best).unwrap_or_default();
        // Of launches, and of steps that are marks, only the time is known.
        let is_spanned = best != Kind::Launch && (!spans.is_empty() || took.is_empty());
        let part = |ns: u64| Permille::from_fraction(ns as f64 / now.saturating_sub(from).max(1) as f64);
        Ok(Steps {
            latency_ns: target.observed(&mut took).unwrap_or(0),
            under_way: is_spanned.then(|| part(covered(&mut spans))),
        })
    }

    /// The kind of time that counts; `None`: it has shown none.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.best
    }

    /// Its speed, from its launches so far and those in a second alone, as far as it was watched for long enough.
    pub(crate) fn speed(&mut self, now: Instant, launches: u64, alone_per_s: f64) -> Option<f64> {
        self.launches.push_back((now, launches));
        while self.launches.get(1).is_some_and(|(then, _)| now.saturating_duration_since(*then) >= SPEED_OVER)
        {
            self.launches.pop_front();
        }
        let (then, before) = *self.launches.front()?;
        let passed = now.saturating_duration_since(then);
        let rate = launches.saturating_sub(before) as f64 / passed.as_secs_f64();
        (passed >= SPEED_OVER && alone_per_s > 0.0).then(|| (rate / alone_per_s).clamp(0.0, 1.0))
    }
}

impl Process {
    fn read(
        &mut self,
        segment: &Segment,
        slot: &SlotInfo,
        is_gone: bool,
        target: &LatencyTarget,
        (from, now): (u64, u64),
        times: &mut BTreeMap<Kind, Times>,
    ) {
        let records = self.ranges.poll(segment, is_gone);
        let Some(found) = segment.ranges(slot).ok().flatten() else { return };
        self.names.learn(&found);
        for record in &records {
            let is_outer = !record.is_mark && (record.depth == 0 || !record.is_nested);
            let Some(kind) = self.names.kind(record.name, is_outer, target) else { continue };
            let took = match record.is_mark {
                false => record.end_ns - record.start_ns,
                true => match self.marks.insert((record.name.number(), record.lane), record.start_ns) {
                    Some(before) => record.start_ns.saturating_sub(before),
                    None => continue,
                },
            };
            if record.end_ns >= from {
                let times = times.entry(kind).or_default();
                times.took.push(took);
                if !record.is_mark {
                    times.spans.push((record.start_ns.max(from), record.end_ns.min(now)));
                }
            }
        }
        if is_gone {
            return;
        }
        for range in &found.open {
            let age = now.saturating_sub(range.start_ns);
            // One that has never ended is not a step: it may be around all of the program's work.
            let ends = found.names.iter().any(|name| name.id == range.name && name.ranges > 0);
            if let Some(kind) = self.names.kind(range.name, is_outer(range), target)
                && ends
            {
                let times = times.entry(kind).or_default();
                times.spans.push((range.start_ns.max(from), now));
                if age > target.limit_ns {
                    times.took.push(age);
                }
            }
        }
    }
}

/// Reader of the start of a job's latest step that is under way: for a thread that is woken with every range.
#[derive(Debug, Default)]
pub(crate) struct OpenSteps {
    names: BTreeMap<(usize, u32), Names>,
}

impl OpenSteps {
    /// Segment time, ns; `None`: no step of this kind is under way.
    pub(crate) fn latest(
        &mut self,
        segment: &Segment,
        slots: &[SlotInfo],
        target: &LatencyTarget,
        kind: Kind,
    ) -> Option<u64> {
        // Names of processes that are gone would stay for as long as the job runs.
        if self.names.len() > slots.len() {
            self.names.retain(|key, _| slots.iter().any(|slot| (slot.slot, slot.generation) == *key));
        }
        let mut latest: Option<u64> = None;
        for slot in slots {
            let open = segment.open_ranges(slot).unwrap_or_default();
            let names = self.names.entry((slot.slot, slot.generation)).or_default();
            let is_known = |range: &OpenRange| names.0.contains_key(&range.name.number());
            if !open.iter().all(is_known)
                && let Some(found) = segment.ranges(slot).ok().flatten()
            {
                names.learn(&found);
            }
            let counts = |range: &&OpenRange| names.kind(range.name, is_outer(range), target) == Some(kind);
            latest = latest.max(open.iter().filter(counts).map(|range| range.start_ns).max());
        }
        latest
    }
}

#[cfg(test)]
mod tests {
    use radrm_telemetry::{RangeText, SegmentFile, Writer};

    use super::*;

    #[test]
    fn open_steps_are_found_and_names_of_gone_processes_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("segments"), 1).unwrap();
        let path = std::ffi::CString::new(file.path().as_os_str().as_encoded_bytes()).unwrap();
        let (writer, segment) = (Writer::join(&path).unwrap(), file.segment().unwrap());
        let name = writer.range_name(RangeText { message: b"request", ..RangeText::default() }).0;
        let target: LatencyTarget = "request:p99=20ms".parse().unwrap();
        let slot = segment.slot(writer.slot()).unwrap();
        let mut open = OpenSteps::default();
        assert_eq!(open.latest(&segment, &[slot], &target, Kind::Named), None);
        assert!(writer.push_range(writer.lane(1).number(), 0, 0, name, None, Some(5)));
        assert_eq!(open.latest(&segment, &[slot], &target, Kind::Named), Some(5));
        // As processes that follow each other in a slot.
        for generation in 0..100 {
            let _ = open.latest(&segment, &[SlotInfo { generation, ..slot }], &target, Kind::Named);
            assert!(open.names.len() <= 2);
        }
    }

    #[test]
    fn steps_are_read_for_the_time_that_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("segments"), 1).unwrap();
        let path = std::ffi::CString::new(file.path().as_os_str().as_encoded_bytes()).unwrap();
        let (writer, segment) = (Writer::join(&path).unwrap(), file.segment().unwrap());
        let name = writer.range_name(RangeText { message: b"request", ..RangeText::default() }).0;
        assert!(writer.push_range(writer.lane(1).number(), 0, 0, name, None, Some(5)));
        let target: LatencyTarget = "request:p99=20ms".parse().unwrap();
        let window = Duration::from_secs(1);
        let mut watch = StepWatch::default();
        assert_eq!(watch.latency(Some(&segment), &target, window, Duration::ZERO), Err(Unseen::NoSteps));
        assert!(watch.processes.is_empty(), "no process is read");
        let _ = watch.latency(Some(&segment), &target, window, Duration::MAX);
        assert_eq!(watch.processes.len(), 1);
    }

    #[test]
    fn overlapping_steps_cover_their_time_once() {
        assert_eq!(covered(&mut []), 0);
        assert_eq!(covered(&mut [(30, 40), (0, 10), (5, 12), (6, 7)]), 22);
    }
}
