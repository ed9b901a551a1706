//! Steps per second of a run whose steps are known: those of the process that has made most of them.
//!
//! Processes of one training make the same steps, so theirs are not added up.

use std::collections::VecDeque;
use std::time::Duration;

use radrm_base::step;
use radrm_telemetry::{ProcessSnapshot, Segment};
use serde::Serialize;

/// The rate is that of the last ten seconds; of slow steps that of the last minute, or else of all.
const OVER: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// Steps that a time must hold for their rate to be that of the time.
const MIN_STEPS: u64 = 3;

/// Nothing is as slow as a program that makes no steps any more: so many times its usual step, and so many seconds.
const STALLED: (f64, f64) = (10.0, 10.0);

/// Source from which steps are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepSource {
    /// By hooks of PyTorch's optimizers that `radrm-run` has set.
    OptimizerHooks,
    /// The program names them, by NVTX or the Python module.
    #[default]
    Program,
}

impl StepSource {
    /// For people.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::OptimizerHooks => "of optimizers, by hooks",
            Self::Program => "named by the program",
        }
    }
}

/// The steps of a process so far. Times are ns of the segment's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Slot and generation of the process.
    process: (usize, u32),
    steps: u64,
    source: StepSource,
    /// Start time of the first step, ns.
    first_ns: u64,
    /// Start time of the last step, ns.
    last_ns: u64,
}

/// The steps of a run at the polls of the last minute, oldest first.
#[derive(Debug, Default)]
pub(super) struct Steps(VecDeque<(Duration, Count)>);

impl Steps {
    /// Adds what the running processes have done so far.
    pub(super) fn poll(&mut self, segment: &Segment, running: &[&ProcessSnapshot], now: Duration) {
        let counts = running.iter().filter_map(|process| count(segment, process));
        if let Some(most) = counts.max_by_key(|count| (count.steps, count.source)) {
            self.add(now, most);
        }
    }

    fn add(&mut self, now: Duration, count: Count) {
        if self.0.back().is_some_and(|(_, before)| before.process != count.process) {
            self.0.clear();
        }
        // One that is older than the longest time stays: the time begins at it.
        while self.0.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) > OVER[1]) {
            self.0.pop_front();
        }
        self.0.push_back((now, count));
    }

    /// Source of the steps; `None` where there are none.
    pub(super) fn source(&self) -> Option<StepSource> {
        self.0.back().filter(|(_, count)| count.steps > 0).map(|(_, count)| count.source)
    }

    /// Steps so far; 0 where none are known.
    pub(super) fn count(&self) -> u64 {
        self.0.back().map_or(0, |(_, count)| count.steps)
    }

    /// Steps per second, given the time of the segment; `None` before the second step. 0 once no more are made.
    pub(super) fn per_second(&self, now_ns: u64) -> Option<f64> {
        let (at, last) = *self.0.back()?;
        let since = |over: &Duration| {
            let before = self.0.iter().rev().find(|(then, _)| at.saturating_sub(*then) >= *over);
            let (_, before) = *before.or(self.0.front())?;
            let steps = last.steps.saturating_sub(before.steps);
            step::per_second(steps, before.last_ns, last.last_ns).filter(|_| steps >= MIN_STEPS)
        };
        let all = || step::per_second(last.steps.saturating_sub(1), last.first_ns, last.last_ns);
        let rate = OVER.iter().find_map(since).or_else(all)?;
        let idle = now_ns.saturating_sub(last.last_ns) as f64 / 1e9;
        Some(if idle > (STALLED.0 / rate).max(STALLED.1) { 0.0 } else { rate })
    }
}

fn count(segment: &Segment, process: &ProcessSnapshot) -> Option<Count> {
    let ranges = segment.ranges(&process.slot).ok()??;
    let (name, steps) = radrm_collector::steps(&ranges)?;
    let source = match name.name == step::STEP_BY_HOOK {
        true => StepSource::OptimizerHooks,
        false => StepSource::Program,
    };
    let process = (process.slot.slot, process.slot.generation);
    Some(Count { process, steps, source, first_ns: name.first_ns, last_ns: name.last_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Polls once a second, at which so many steps had been made; the last one began `late` ns before the poll.
    fn polled(steps: impl IntoIterator<Item = u64>, late: u64) -> (Steps, u64) {
        let mut all = Steps::default();
        let mut now = 0;
        for (second, steps) in steps.into_iter().enumerate() {
            now = (second as u64 + 1) * SECOND;
            let source = StepSource::Program;
            let count = Count { process: (0, 1), steps, source, first_ns: 0, last_ns: now - late };
            all.add(Duration::from_secs(second as u64), count);
        }
        (all, now)
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        assert_eq!(Steps::default().per_second(0), None);
        // Slow for a minute, then ten times as fast.
        let (steps, now) = polled((0..60).chain((0..11).map(|second| 60 + 10 * second)), 0);
        assert_eq!((steps.count(), steps.per_second(now)), (160, Some(10.0)));
        // Before there are ten seconds it is that of those there are.
        let (steps, now) = polled([5, 9, 13], 0);
        assert_eq!(steps.per_second(now), Some(4.0));
        // A single poll has the mean of all.
        let (steps, now) = polled([5], 0);
        assert_eq!(steps.per_second(now), Some(4.0));
        assert_eq!(polled([1], SECOND).0.per_second(SECOND), None, "one step has no rate");
    }

    #[test]
    fn a_slow_steps_rate_is_that_of_a_longer_time() {
        // A step in five seconds: too few in ten seconds for a rate of theirs.
        let mut steps = Steps::default();
        for second in 0..200u64 {
            let made = second / 5;
            let last_ns = made * 5 * SECOND;
            let count = Count { process: (0, 1), steps: made + 1, last_ns, ..Count::default() };
            steps.add(Duration::from_secs(second), count);
        }
        assert_eq!(steps.per_second(200 * SECOND), Some(0.2));
    }

    #[test]
    fn a_program_that_makes_no_more_steps_has_a_rate_of_zero() {
        let (steps, now) = polled([1, 11, 21], 0);
        assert_eq!(steps.per_second(now + 9 * SECOND), Some(10.0));
        assert_eq!(steps.per_second(now + 11 * SECOND), Some(0.0));
        // Ten of these are 20 s.
        let (mut steps, _) = polled([1], 0);
        let slow = Count { process: (0, 1), steps: 6, last_ns: 11 * SECOND, ..Count::default() };
        steps.add(Duration::from_secs(10), slow);
        assert_eq!(steps.per_second(30 * SECOND), Some(0.5));
        assert_eq!(steps.per_second(32 * SECOND), Some(0.0));
    }

    #[test]
    fn another_process_begins_anew() {
        let (mut steps, now) = polled([100, 200], 0);
        steps.add(
            Duration::from_secs(2),
            Count { process: (0, 2), steps: 3, first_ns: now, last_ns: now + SECOND, ..Count::default() },
        );
        assert_eq!((steps.count(), steps.per_second(now + SECOND)), (3, Some(2.0)));
    }

    #[test]
    fn what_is_kept_is_bounded_and_covers_a_minute() {
        let (steps, _) = polled(0..10_000, 0);
        assert!((61..64).contains(&steps.0.len()), "{}", steps.0.len());
    }
}
