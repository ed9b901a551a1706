//! Pace of polling and of writing, and the records that are left out. Everything that a profile keeps over time
//! becomes rarer as the run grows long, so that its size grows with the logarithm of the time.

use radrm_profile::Nanos;
use radrm_profile::model::{Event, EventKind, NvmlSample, TimelinePoint};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two states lies at least this share of the time that has passed:
/// 45 states per doubling.
const STATE_SHARE: u64 = 64;

/// Between two NVML samples in the file, likewise.
const SAMPLE_SHARE: u64 = 512;

/// The first processes of a job keep their timelines as the segment has them.
/// Of further ones a timeline takes a tenth of that: a job of a thousand busy
/// processes stays below 20 MB.
pub(crate) const FINE_TIMELINES: usize = 64;

/// A coarse timeline has at least this many points per doubling of the time.
const COARSE_SHARE: u64 = 16;

/// Events kept of the time between two states.
const EVENTS_PER_STATE: usize = 64;

/// Events held back until the next state; beyond, only those that matter.
const EVENTS_WAITING: usize = 4096;

/// Living processes that are written at this pace; with more, states become
/// rarer in proportion.
const STATE_PROCESSES: u64 = 32;

/// The time of the state after one at `t`: quick at first, so that a run of a
/// second has states too, then at least a second apart.
pub(crate) fn next_state(t: Nanos, living: usize) -> Nanos {
    let gap = if t < Nanos::from_secs(1) {
        t.max(Nanos::from_millis(100))
    } else {
        Nanos::from_secs(1).max(Nanos(t.0 / STATE_SHARE))
    };
    t + Nanos(gap.0.saturating_mul((living as u64).div_ceil(STATE_PROCESSES).max(1)))
}

/// Time to sleep after a poll at `t`.
pub(crate) fn poll_gap(t: Nanos) -> Duration {
    // A short program is polled often, so that its children are seen; a
    // long one four times a second: 1024 events per ring wait for that long.
    Duration::from_nanos((t.0 / 20).clamp(10_000_000, 250_000_000))
}

/// Time for which NVML is left alone after a sample at `t`.
pub(crate) fn sample_gap(t: Nanos) -> Duration {
    Duration::from_nanos((t.0 / 600).clamp(100_000_000, 1_000_000_000))
}

/// Length of a span of load, on the GPU or the host, that begins at `t`: a fixed share of the time that
/// has passed, so that there are some 180 per doubling.
pub(crate) fn span_length(t: Nanos) -> Nanos {
    // A little less than the gap between two samples, or every span would hold two.
    Nanos((t.0 / 256).max(90_000_000))
}

/// Leaves out every second one; the first stays.
pub(crate) fn halve<T>(kept: &mut Vec<T>) {
    let mut number = 0;
    kept.retain(|_| {
        number += 1;
        number % 2 == 1
    });
}

/// Joins points into fewer. Maxima stay exact, and points that were joined
/// before are joined in the same way again when more have followed.
pub(crate) fn coarse(points: &[TimelinePoint]) -> Vec<TimelinePoint> {
    let cell = |t: Nanos| t.0 / (t.0 / (2 * COARSE_SHARE)).next_power_of_two();
    let mut joined: Vec<TimelinePoint> = Vec::new();
    for point in points {
        match joined.last_mut() {
            Some(last) if cell(last.t) == cell(point.t) && point.t.0 < 2 * last.t.0 => {
                last.span = (point.t + point.span).minus(last.t);
                last.last = point.last;
                if point.max_total > last.max_total {
                    last.max_total = point.max_total;
                    last.at_max = point.at_max;
                }
            }
            _ => joined.push(*point),
        }
    }
    joined
}

/// Keeps one sample per GPU and span: the one with the most memory in use.
#[derive(Debug, Default)]
pub(crate) struct SampleThinner {
    open: BTreeMap<u8, (Nanos, NvmlSample)>,
    kept: Vec<NvmlSample>,
}

impl SampleThinner {
    pub(crate) fn add(&mut self, sample: NvmlSample) {
        let t = sample.t;
        match self.open.get_mut(&sample.gpu.0) {
            Some((until, best)) if t < *until => {
                if sample.used > best.used {
                    *best = sample;
                }
            }
            _ => {
                // A little less than the gap, or every other sample would
                // fall into the span of the one before.
                let span = Nanos((t.0 / SAMPLE_SHARE).max(90_000_000));
                if let Some((_, best)) = self.open.insert(sample.gpu.0, (t + span, sample)) {
                    self.kept.push(best);
                }
            }
        }
    }

    /// Samples whose span is over.
    pub(crate) fn take(&mut self) -> Vec<NvmlSample> {
        std::mem::take(&mut self.kept)
    }

    /// All samples: nothing follows.
    pub(crate) fn finish(&mut self) -> Vec<NvmlSample> {
        let open = std::mem::take(&mut self.open);
        self.kept.extend(open.into_values().map(|(_, sample)| sample));
        let mut all = self.take();
        all.sort_by_key(|sample| sample.t);
        all
    }
}

/// Keeps the events that show most.
#[derive(Debug, Default)]
pub(crate) struct EventThinner {
    waiting: Vec<Event>,
    /// Events left out since the job's start.
    pub(crate) thinned: u64,
}

impl EventThinner {
    pub(crate) fn add(&mut self, events: Vec<Event>) {
        self.waiting.extend(events);
        if self.waiting.len() > EVENTS_WAITING {
            self.thin();
        }
    }

    /// At most [`EVENTS_PER_STATE`] of the waiting events, by time.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        self.thin();
        std::mem::take(&mut self.waiting)
    }

    fn thin(&mut self) {
        if self.waiting.len() > EVENTS_PER_STATE {
            self.waiting.sort_by_key(|event| std::cmp::Reverse(weight(&event.kind)));
            self.thinned += (self.waiting.len() - EVENTS_PER_STATE) as u64;
            self.waiting.truncate(EVENTS_PER_STATE);
        }
        self.waiting.sort_by_key(|event| event.t);
    }
}

/// Rare kinds first, then large sizes.
fn weight(kind: &EventKind) -> (u8, u64) {
    match kind {
        EventKind::Refused { size, .. } => (5, size.0),
        EventKind::Joined => (4, 0),
        EventKind::ContextCreated | EventKind::ContextDestroyed => (3, 0),
        EventKind::GraphInstantiated { kernels } => (2, *kernels),
        EventKind::ModuleLoaded => (2, 0),
        EventKind::Other { .. } => (1, 0),
        EventKind::Allocated { size, .. } | EventKind::Freed { size, .. } => (0, size.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::{GpuIndex, ProcessKey};

    fn states_until(end: Nanos) -> usize {
        let mut t = Nanos::ZERO;
        let mut states = 0;
        while t < end {
            t = next_state(t, 1);
            states += 1;
        }
        states
    }

    #[test]
    fn the_number_of_states_grows_with_the_logarithm() {
        assert_eq!(states_until(Nanos::from_secs(1)), 5);
        let (minutes, day, month) = (
            states_until(Nanos::from_secs(600)),
            states_until(Nanos::from_secs(86_400)),
            states_until(Nanos::from_secs(30 * 86_400)),
        );
        assert_eq!(next_state(Nanos::from_secs(10), 32), Nanos::from_secs(11));
        assert_eq!(next_state(Nanos::from_secs(10), 1000), Nanos::from_secs(42));
        assert!(minutes < 220 && day < 540 && month < 760, "{minutes} {day} {month}");
    }

    #[test]
    fn coarse_timelines_lose_no_maximum_and_grow_at_their_end() {
        let point = |i: u64| TimelinePoint {
            t: Nanos(i << 20),
            span: Nanos(1 << 20),
            max_total: Bytes(i * 7919 % 10_007),
            ..TimelinePoint::default()
        };
        let points: Vec<TimelinePoint> = (0..500_000).map(point).collect();
        let joined = coarse(&points);
        assert!((200..700).contains(&joined.len()), "{}", joined.len());
        assert!(joined.is_sorted_by(|a, b| a.t + a.span <= b.t));
        let highest = |points: &[TimelinePoint]| points.iter().map(|point| point.max_total).max();
        assert_eq!(highest(&joined), highest(&points));
        for part in [1, 1_000, 77_777, 499_999] {
            let earlier = coarse(&points[..part]);
            assert_eq!(earlier[..earlier.len() - 1], joined[..earlier.len() - 1]);
            assert_eq!(earlier.last().unwrap().t, joined[earlier.len() - 1].t);
        }
    }

    #[test]
    fn thinned_samples_keep_the_highest() {
        let mut thinner = SampleThinner::default();
        // Ten samples a second for two hours, one peak in the middle.
        for i in 0..72_000u64 {
            thinner.add(NvmlSample {
                t: Nanos::from_millis(100 * i),
                used: Bytes(if i == 40_123 { 500 } else { 7 }),
                ..NvmlSample::default()
            });
        }
        let kept = thinner.finish();
        assert!((1_000..5_000).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().any(|sample| sample.used == Bytes(500)));
        assert!(kept.is_sorted_by_key(|sample| sample.t));
        // None is left out in the beginning.
        assert!(kept[..400].windows(2).all(|pair| pair[1].t.0 - pair[0].t.0 == 100_000_000));
    }

    #[test]
    fn gpus_are_thinned_apart() {
        let mut thinner = SampleThinner::default();
        for gpu in [0, 1] {
            thinner.add(NvmlSample { gpu: GpuIndex(gpu), ..NvmlSample::default() });
        }
        assert_eq!(thinner.finish().len(), 2);
    }

    #[test]
    fn the_events_that_tell_most_stay() {
        let event = |t, kind| Event { t: Nanos(t), process: ProcessKey::default(), gpu: None, kind };
        let mut thinner = EventThinner::default();
        let many = (0..10_000).map(|t| event(t, EventKind::Allocated { kind: 0, size: Bytes(t % 977) }));
        thinner.add(many.collect());
        thinner
            .add(vec![event(3, EventKind::Refused { kind: 0, size: Bytes(1) }), event(2, EventKind::Joined)]);
        let kept = thinner.take();
        assert_eq!(kept.len(), EVENTS_PER_STATE);
        assert_eq!(kept.len() as u64 + thinner.thinned, 10_002);
        assert!(kept.iter().any(|event| matches!(event.kind, EventKind::Refused { .. })));
        assert!(kept.is_sorted_by_key(|event| event.t));
        assert!(
            kept.iter().all(|event| !matches!(event.kind, EventKind::Allocated { size, .. } if size.0 < 960))
        );
        assert_eq!(thinner.take(), []);
    }
}
