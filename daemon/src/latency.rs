//! What a job's steps take, as its own segment has them: for jobs with a target.
//!
//! Ranges that the program marks come first: those of the name that the target states, else its steps (of steps that are
//! marks the time from one to the next), else the outermost ranges of each thread. A program that marks none shows the GPU
//! time of its timed launches. A range that is still open and has taken longer than the limit counts with its age: a step
//! that hangs is no step that was never made.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use radrm_base::step::is_step;
use radrm_scheduler_core::{LatencyTarget, Unseen};
use radrm_telemetry::{
    Liveness, NameId, RangeReader, RangeSnapshot, SampleReader, Segment, SlotInfo, monotonic_ns,
};

/// Launches are counted over this long for a speed.
const SPEED_OVER: Duration = Duration::from_secs(2);

/// What a time is of; a later one says more of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Launch,
    Outer,
    Step,
    Named,
}

/// One process of the job.
#[derive(Debug)]
struct Process {
    ranges: RangeReader,
    samples: SampleReader,
    names: BTreeMap<u16, String>,
    /// When each lane last marked a step, ns of segment time.
    marks: BTreeMap<(u16, u8), u64>,
}

/// What is read of one job.
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
            names: BTreeMap::new(),
            marks: BTreeMap::new(),
        }
    }

    fn learn_names(&mut self, found: &RangeSnapshot) {
        self.names = found.names.iter().map(|name| (name.id.number(), name.name.clone())).collect();
    }

    /// What a range or mark counts as; `None`: as nothing.
    fn kind(&self, name: NameId, is_outer: bool, target: &LatencyTarget) -> Option<Kind> {
        let name = self.names.get(&name.number()).map_or("", String::as_str);
        match &target.of {
            // The domain and the category stand behind the name.
            Some(of) => (name == of || name.split(" [").next() == Some(of)).then_some(Kind::Named),
            None if is_step(name) => Some(Kind::Step),
            None => is_outer.then_some(Kind::Outer),
        }
    }
}

impl StepWatch {
    /// The time of the steps at the target's quantile since the last call, or at first since `window` ago, ns; 0: none was made and none is under way.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn latency(
        &mut self,
        segment: Option<&Segment>,
        target: &LatencyTarget,
        window: Duration,
    ) -> Result<u64, Unseen> {
        let Some(segment) = segment else { return Err(Unseen::NoShim) };
        let Ok(job) = segment.job() else { return Err(Unseen::NoShim) };
        let now = monotonic_ns().saturating_sub(job.created_mono_ns);
        let first = now.saturating_sub(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
        let from = self.read_until.replace(now).unwrap_or(first);
        let mut times: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        let slots = segment.slots().unwrap_or_default();
        self.processes.retain(|key, _| slots.iter().any(|slot| (slot.slot, slot.generation) == *key));
        for slot in &slots {
            let process =
                self.processes.entry((slot.slot, slot.generation)).or_insert_with(|| Process::new(slot));
            let is_gone = slot.liveness != Liveness::Running;
            process.read(segment, slot, is_gone, target, (from, now), &mut times);
            if target.of.is_none() && self.best.is_none_or(|best| best == Kind::Launch) {
                let launches = process.samples.poll(segment, is_gone);
                let recent = launches.iter().filter(|launch| launch.seen_ns >= from);
                times.entry(Kind::Launch).or_default().extend(recent.map(|launch| launch.duration_ns));
            }
        }
        times.retain(|_, times| !times.is_empty());
        self.best = self.best.max(times.keys().next_back().copied());
        let Some(best) = self.best else {
            return Err(match (slots.is_empty(), &target.of) {
                (true, _) => Unseen::NoShim,
                (_, Some(_)) => Unseen::NoSuchRange,
                _ => Unseen::NoSteps,
            });
        };
        Ok(times.get_mut(&best).and_then(|times| target.observed(times)).unwrap_or(0))
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
        times: &mut BTreeMap<Kind, Vec<u64>>,
    ) {
        let records = self.ranges.poll(segment, is_gone);
        let Some(found) = segment.ranges(slot).ok().flatten() else { return };
        self.learn_names(&found);
        for record in &records {
            let is_outer = !record.is_mark && (record.depth == 0 || !record.is_nested);
            let Some(kind) = self.kind(record.name, is_outer, target) else { continue };
            let took = match record.is_mark {
                false => record.end_ns - record.start_ns,
                true => match self.marks.insert((record.name.number(), record.lane), record.start_ns) {
                    Some(before) => record.start_ns.saturating_sub(before),
                    None => continue,
                },
            };
            if record.end_ns >= from {
                times.entry(kind).or_default().push(took);
            }
        }
        if is_gone {
            return;
        }
        for range in &found.open {
            let is_outer = range.depth == 0 || !range.is_nested;
            let age = now.saturating_sub(range.start_ns);
            // One that has never ended is no step: it may be around all of the program's work.
            let ends = found.names.iter().any(|name| name.id == range.name && name.ranges > 0);
            if let Some(kind) = self.kind(range.name, is_outer, target)
                && ends
                && age > target.limit_ns
            {
                times.entry(kind).or_default().push(age);
            }
        }
    }
}
