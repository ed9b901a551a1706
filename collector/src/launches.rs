//! Single launches that were timed: which of them the profile keeps.

use crate::pace::{halve, span_length};
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, ProcessKey, TimedLaunch};
use radrm_telemetry::{KernelId, LaunchSample};
use std::collections::BTreeMap;

/// Launches of a process that are kept of each span; spans are a share of the time that has passed, so that there are
/// some 180 per doubling of it.
const PER_SPAN: usize = 5;

/// Processes of which launches are kept, the first ones: 100 KB for ten minutes of each.
pub(crate) const PROCESSES: usize = 16;

/// Streams that are distinguished in a process; further ones are one.
const STREAMS: usize = 256;

/// Numbers of the streams of one process, by first use: what distinguishes them says nothing to a reader.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<(u8, u64)>);

impl Streams {
    fn number(&mut self, gpu: u8, stream: u64) -> u32 {
        let known = self.0.iter().position(|known| *known == (gpu, stream));
        let at = known.unwrap_or_else(|| {
            if self.0.len() < STREAMS {
                self.0.push((gpu, stream));
            }
            self.0.len() - 1
        });
        at as u32
    }

    /// A record of the segment as the profile has it.
    pub(crate) fn launch(&mut self, process: ProcessKey, sample: &LaunchSample) -> TimedLaunch {
        let gpu = sample.gpu.number();
        TimedLaunch {
            process,
            kernel: (!sample.is_graph).then(|| kernel(sample.kernel)),
            gpu: GpuIndex(gpu),
            stream: self.number(gpu, sample.stream),
            launched: Nanos(sample.launched_ns),
            seen_after: Nanos(sample.seen_ns.saturating_sub(sample.launched_ns)),
            duration: Nanos(sample.duration_ns),
            end: sample.end_ns.map(Nanos),
            context: sample.context,
            blocks: sample.blocks,
            threads: sample.threads.into(),
            dynamic_shared: radrm_profile::Bytes(sample.dynamic_shared.into()),
        }
    }
}

fn kernel(id: KernelId) -> u32 {
    id.number().into()
}

/// Keeps a few launches of each span, evenly: every one at first, every second once there are too many, and so on.
#[derive(Debug, Default)]
pub(crate) struct LaunchThinner {
    open: BTreeMap<ProcessKey, Open>,
    kept: Vec<TimedLaunch>,
}

#[derive(Debug)]
struct Open {
    until: Nanos,
    stride: usize,
    seen: usize,
    kept: Vec<TimedLaunch>,
}

impl Open {
    fn new(t: Nanos) -> Open {
        Open { until: t + span_length(t), stride: 1, seen: 0, kept: Vec::new() }
    }

    fn add(&mut self, launch: TimedLaunch) {
        if self.seen.is_multiple_of(self.stride) {
            self.kept.push(launch);
        }
        self.seen += 1;
        if self.kept.len() > PER_SPAN {
            halve(&mut self.kept);
            self.stride *= 2;
        }
    }
}

impl LaunchThinner {
    pub(crate) fn add(&mut self, launches: impl IntoIterator<Item = TimedLaunch>) {
        for launch in launches {
            let t = launch.launched;
            let open = self.open.entry(launch.process).or_insert_with(|| Open::new(t));
            if t >= open.until {
                self.kept.append(&mut open.kept);
                *open = Open::new(t);
            }
            open.add(launch);
        }
    }

    /// Launches whose span is over.
    pub(crate) fn take(&mut self) -> Vec<TimedLaunch> {
        std::mem::take(&mut self.kept)
    }

    /// All of a process that is gone.
    pub(crate) fn end(&mut self, process: ProcessKey) {
        self.kept.extend(self.open.remove(&process).into_iter().flat_map(|open| open.kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> ProcessKey {
        ProcessKey { slot, generation: 1 }
    }

    fn launch(slot: u32, t: Nanos) -> TimedLaunch {
        TimedLaunch { process: key(slot), launched: t, ..TimedLaunch::default() }
    }

    #[test]
    fn each_span_keeps_every_launch_or_every_second_or_every_fourth_and_so_on() {
        for launches in 0..2_000 {
            let mut thinner = LaunchThinner::default();
            thinner.add((0..launches).map(|n| launch(0, Nanos(n))));
            thinner.end(key(0));
            let kept: Vec<u64> = thinner.take().iter().map(|launch| launch.launched.0).collect();
            let stride = kept.get(1).map_or(1, |second| second - kept[0]);
            let even: Vec<u64> = (0..launches).step_by(stride as usize).collect();
            assert_eq!(kept, even, "of {launches}");
            // As many as there is room for: with half the stride they would be too many.
            assert!(stride.is_power_of_two() && kept.len() <= PER_SPAN, "{kept:?} of {launches}");
            assert!(stride == 1 || launches.div_ceil(stride / 2) > PER_SPAN as u64, "{kept:?} of {launches}");
        }
    }

    #[test]
    fn launches_become_rarer_with_the_time_and_are_spread_over_each_span() {
        let mut thinner = LaunchThinner::default();
        // 160 a second for ten minutes of one process, one a second of another.
        for n in 0..96_000u64 {
            thinner.add([launch(0, Nanos(n * 6_250_000))]);
            if n % 160 == 0 {
                thinner.add([launch(1, Nanos(n * 6_250_000))]);
            }
        }
        thinner.end(key(0));
        thinner.end(key(1));
        let kept = thinner.take();
        let busy: Vec<u64> = kept.iter().filter(|l| l.process.slot == 0).map(|l| l.launched.0).collect();
        assert!((2_000..6_000).contains(&busy.len()), "{}", busy.len());
        assert!(busy.is_sorted());
        // No gap is much longer than a span.
        let gap = |pair: &[u64]| pair[1] - pair[0] <= 2 * span_length(Nanos(pair[1])).0;
        assert!(busy.windows(2).all(gap));
        let rare = kept.iter().filter(|l| l.process.slot == 1).count();
        assert_eq!(rare, 600, "none is left out where there are few");
        assert!(thinner.take().is_empty() && thinner.open.is_empty());
    }

    #[test]
    fn streams_are_numbered_by_first_use_and_are_not_without_bound() {
        let mut streams = Streams::default();
        let numbers: Vec<u32> = [7, 0, 7, 9].iter().map(|handle| streams.number(0, *handle)).collect();
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(streams.number(1, 7), 3, "the same handle on another GPU is another stream");
        for handle in 100..10_000 {
            assert!(streams.number(0, handle) < STREAMS as u32);
        }
        assert_eq!(streams.0.len(), STREAMS);
    }
}
