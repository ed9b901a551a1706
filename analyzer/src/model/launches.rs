//! Single launches on the host's time axis.
//!
//! A timed launch has a time on the GPU's clock, whose origin is unknown; but it began after the host launched it
//! and was over when the host saw it so. So each launch bounds the difference of the two clocks from both sides, and the
//! launches of a while together bound it closely: from below by the one that began soonest after its launch, from above by
//! the one that was read soonest after its end. Clocks drift apart, so no difference holds for longer than
//! [`WHILE`].

use radrm_profile::Nanos;
use radrm_profile::model::{GpuClock, GpuIndex, ProcessKey, Profile, TimedLaunch};
use std::collections::{BTreeMap, HashMap};

/// Clocks of GPU and host differ by some parts per million: tens of microseconds in this time.
const WHILE: u64 = 10_000_000_000;

/// A launch with its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed<'a> {
    pub(crate) launch: &'a TimedLaunch,
    /// Start of the launch on the host's time axis.
    pub(crate) from: Nanos,
    /// Length that is shown: shorter than the launch's duration if the next one in its stream is known to have begun.
    pub(crate) shown: Nanos,
    /// It began so much earlier or later at most; `None` where the GPU's time is not the host's.
    pub(crate) within: Option<Nanos>,
}

/// Difference of the clocks, host less GPU, ns: at least and at most, and how coarse the GPU's times are.
#[derive(Clone, Copy)]
struct Bounds {
    least: i128,
    most: i128,
    grain: i128,
}

impl Bounds {
    fn of(launch: &TimedLaunch, end: Nanos) -> Bounds {
        let (launched, seen) = (i128::from(launch.launched.0), seen(launch));
        let grain = grain(end);
        let end = i128::from(end.0);
        Bounds { least: launched - (end - i128::from(launch.duration.0)), most: seen - end, grain }
    }

    fn and(self, other: Bounds) -> Bounds {
        Bounds {
            least: self.least.max(other.least),
            most: self.most.min(other.most),
            grain: self.grain.max(other.grain),
        }
    }
}

fn seen(launch: &TimedLaunch) -> i128 {
    i128::from(launch.launched.0) + i128::from(launch.seen_after.0)
}

/// The driver reports times as `f32` of milliseconds: of this many ns at this distance.
fn grain(end: Nanos) -> i128 {
    let ms = end.0 as f32 / 1e6;
    ((ms.next_up() - ms) * 1e6).ceil() as i128
}

/// Launches by process.
pub(crate) fn by_process(profile: &Profile) -> HashMap<ProcessKey, Vec<&TimedLaunch>> {
    let mut processes: HashMap<ProcessKey, Vec<&TimedLaunch>> = HashMap::new();
    for launch in &profile.launches {
        processes.entry(launch.process).or_default().push(launch);
    }
    processes
}

/// Launches of one process by stream and time; those of a stream do not overlap.
pub(crate) fn placed<'a>(
    launches: &[&'a TimedLaunch],
    clock: GpuClock,
) -> BTreeMap<(GpuIndex, u32), Vec<Placed<'a>>> {
    let is_real = clock.is_real();
    // Modelled time has one beginning, and is never near the host's.
    let while_of = |launch: &TimedLaunch| {
        (launch.context, launch.gpu, if is_real { launch.launched.0 / WHILE } else { 0 })
    };
    let mut bounds = BTreeMap::new();
    for launch in launches.iter().copied() {
        if let Some(end) = launch.end {
            let own = Bounds::of(launch, end);
            let known = bounds.entry(while_of(launch)).or_insert(own);
            *known = if is_real { known.and(own) } else { *known };
        }
    }
    let mut streams: BTreeMap<(GpuIndex, u32), Vec<Placed<'a>>> = BTreeMap::new();
    for launch in launches.iter().copied() {
        let shared = launch.end.and_then(|end| Some((end, *bounds.get(&while_of(launch))?)));
        let (from, within) = match shared {
            Some((end, bounds)) if !is_real => {
                (i128::from(end.0) - i128::from(launch.duration.0) + bounds.least, None)
            }
            Some((end, bounds)) => on_host(launch, end, bounds),
            // All that is known is when it was launched and when it was over.
            None => (i128::from(launch.launched.0), Some(slack(launch))),
        };
        let narrow = |ns: i128| Nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX));
        streams.entry((launch.gpu, launch.stream)).or_default().push(Placed {
            launch,
            from: narrow(from),
            shown: launch.duration,
            within: within.filter(|_| is_real).map(narrow),
        });
    }
    for stream in streams.values_mut() {
        stream.sort_by_key(|placed| (placed.from, placed.launch.launched));
        // What is left of errors of placing must not make slices overlap: they run one after the other.
        for at in 1..stream.len() {
            let begins = stream[at].from;
            let before = &mut stream[at - 1];
            before.shown = before.shown.min(begins.minus(before.from));
        }
    }
    streams
}

/// Time between launch and reading that it did not take itself.
fn slack(launch: &TimedLaunch) -> i128 {
    (i128::from(launch.seen_after.0) - i128::from(launch.duration.0)).max(0)
}

/// Start of a launch on the host's clock, ns, and the largest error of it, ns.
fn on_host(launch: &TimedLaunch, end: Nanos, bounds: Bounds) -> (i128, Option<i128>) {
    let Bounds { least, most, grain } = bounds;
    let began = i128::from(end.0) - i128::from(launch.duration.0);
    let (earliest, latest) = (i128::from(launch.launched.0), i128::from(launch.launched.0) + slack(launch));
    if least > most + 2 * grain {
        // The clocks do not agree at all: what the host knows has to do.
        return (earliest, Some(slack(launch)));
    }
    // The GPU begins soon after a launch where it has nothing else to do, while the host may read late: the lower
    // bound is the better one.
    let from = (began + least).clamp(earliest, latest);
    let off = (most - least).max(0) + grain;
    (from, Some(off.min((latest - from).max(from - earliest))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use radrm_profile::model::Job;

    const US: u64 = 1000;

    /// Launched, began on the GPU's clock, took, and was seen, all in us; the GPU's clock began at 5000 us of the host's.
    fn launch(stream: u32, launched: u64, began: u64, took: u64, seen: u64) -> TimedLaunch {
        TimedLaunch {
            stream,
            launched: Nanos(launched * US),
            seen_after: Nanos((seen - launched) * US),
            duration: Nanos(took * US),
            end: Some(Nanos((began + took) * US)),
            ..TimedLaunch::default()
        }
    }

    fn profile(launches: Vec<TimedLaunch>) -> Profile {
        Profile { launches, ..Profile::new(Job::default()) }
    }

    fn stream(profile: &Profile, number: u32) -> Vec<(u64, u64, Option<u64>)> {
        let launches = by_process(profile).remove(&ProcessKey::default()).unwrap_or_default();
        let placed = placed(&launches, profile.gpu_clock);
        let of = placed.get(&(GpuIndex(0), number)).cloned().unwrap_or_default();
        of.iter().map(|p| (p.from.0 / US, p.shown.0 / US, p.within.map(|w| w.0 / US))).collect()
    }

    #[test]
    fn launches_together_bound_each_others_place() {
        // The first begins 3 us after its launch; the second waits for it and is read 2 us after its end.
        let profile = profile(vec![
            launch(0, 5100, 103, 50, 9000),
            launch(0, 5110, 153, 50, 5205),
            launch(1, 5120, 400, 10, 9000),
        ]);
        assert_eq!(stream(&profile, 0), [(5100, 50, Some(5)), (5150, 50, Some(5))]);
        // It could have been anywhere up to the time it was seen: the others show where.
        assert_eq!(stream(&profile, 1), [(5397, 10, Some(5))]);
    }

    #[test]
    fn what_the_host_knows_holds_where_clocks_have_drifted_or_are_not_known() {
        let mut late = launch(0, 5100, 900, 50, 5200);
        let drifted = profile(vec![launch(0, 5000, 100, 50, 5060), late]);
        assert_eq!(stream(&drifted, 0), [(5000, 50, Some(10)), (5100, 50, Some(50))]);
        // After a while each stands for itself.
        let hour = 3_600_000_000;
        let mut apart = launch(0, hour, 900, 50, hour + 70);
        apart.context = 0;
        let fresh = profile(vec![launch(0, 5000, 100, 50, 5060), apart]);
        assert_eq!(stream(&fresh, 0), [(5000, 50, Some(10)), (hour, 50, Some(20))]);
        late.end = None;
        assert_eq!(stream(&profile(vec![late]), 0), [(5100, 50, Some(50))]);
    }

    #[test]
    fn slices_of_a_stream_never_overlap() {
        let mut launches = vec![launch(0, 5000, 100, 50, 5060), launch(0, 5010, 120, 70, 5200)];
        launches[1].end = None;
        assert_eq!(stream(&profile(launches), 0), [(5000, 10, Some(10)), (5010, 70, Some(120))]);
    }

    #[test]
    fn modelled_time_is_shown_as_it_passed_there_from_the_first_launch_on() {
        let mut modelled = profile(vec![launch(0, 5000, 100, 500, 5001), launch(0, 5002, 700, 500, 5003)]);
        modelled.gpu_clock = GpuClock::Modelled;
        assert_eq!(stream(&modelled, 0), [(5000, 500, None), (5600, 500, None)]);
    }

    /// Clocks of GPUs and host stay together for so long.
    const TOGETHER: u64 = 10_000_000_000;

    /// Launch as it happened, in ns of the host's time.
    /// `waited` is the time from the launch to its start on the GPU, `took` its duration, `late` the time from its end
    /// until the host saw it.
    #[derive(Clone, Debug)]
    struct Truth {
        context: u16,
        gpu: u8,
        launched: u64,
        waited: u64,
        took: u64,
        late: u64,
    }

    impl Truth {
        fn any() -> impl Strategy<Value = Truth> {
            let at_once_or_later = || prop_oneof![Just(0), 0..2_000 * US];
            let times = (0..3 * TOGETHER, at_once_or_later(), 1..5_000 * US, at_once_or_later());
            (0..2u16, 0..2u8, times).prop_map(|(context, gpu, (launched, waited, took, late))| Truth {
                context,
                gpu,
                launched: 40_000 * TOGETHER + launched,
                waited,
                took,
                late,
            })
        }

        /// Launches that share a clock.
        fn clock(&self) -> (u16, u8, u64) {
            (self.context, self.gpu, self.launched / TOGETHER)
        }

        fn begun(&self) -> u64 {
            self.launched + self.waited
        }

        /// The launch as a profile contains it.
        /// Its end is on a clock of its own that had run for `age` ns before the first launch, in milliseconds of `f32`
        /// as the driver reports them.
        fn reported(&self, age: u64, number: usize) -> TimedLaunch {
            let (context, gpu, part) = self.clock();
            let own = 3_000 * u64::from(context) + 1_000 * u64::from(gpu) + 70 * (part % 3);
            let end = self.begun() + self.took - 40_000 * TOGETHER + age + own * US;
            let reported = f64::from((end as f64 / 1e6) as f32) * 1e6;
            TimedLaunch {
                context,
                gpu: GpuIndex(gpu),
                launched: Nanos(self.launched),
                seen_after: Nanos(self.waited + self.took + self.late),
                duration: Nanos(self.took),
                end: Some(Nanos(reported as u64)),
                blocks: number as u64,
                ..TimedLaunch::default()
            }
        }
    }

    fn reported(truths: &[Truth], age: u64) -> Vec<TimedLaunch> {
        truths.iter().enumerate().map(|(number, truth)| truth.reported(age, number)).collect()
    }

    /// Places by number.
    fn places<'a>(
        launches: impl IntoIterator<Item = &'a TimedLaunch>,
    ) -> BTreeMap<u64, (Nanos, Option<Nanos>)> {
        let launches: Vec<&TimedLaunch> = launches.into_iter().collect();
        let placed = placed(&launches, GpuClock::Real).into_values().flatten();
        placed.map(|placed| (placed.launch.blocks, (placed.from, placed.within))).collect()
    }

    /// From clocks that have just begun to those of a day.
    fn ages() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(360 * TOGETHER), Just(8_640 * TOGETHER)]
    }

    proptest! {
        #[test]
        fn a_slice_lies_between_launch_and_sight_and_where_it_is_said_to_lie(
            truths in prop::collection::vec(Truth::any(), 1..40), age in ages()
        ) {
            let launches = reported(&truths, age);
            let launches: Vec<&TimedLaunch> = launches.iter().collect();
            for ((gpu, _), placed) in placed(&launches, GpuClock::Real) {
                for (at, slice) in placed.iter().enumerate() {
                    let truth = &truths[slice.launch.blocks as usize];
                    prop_assert_eq!(gpu.0, truth.gpu);
                    let (from, took) = (slice.from.0, truth.took);
                    let seen = truth.begun() + took + truth.late;
                    prop_assert!(truth.launched <= from && from + took <= seen, "{:?} of {:?}", slice, truth);
                    let within = slice.within.expect("real time").0;
                    // The clocks count whole nanoseconds.
                    prop_assert!(from.abs_diff(truth.begun()) <= within + 2, "{:?} of {:?}", slice, truth);
                    let host = (from - truth.launched).max(seen - took - from);
                    prop_assert!(within <= host, "the host knows better: {:?} of {:?}", slice, truth);
                    let next = placed.get(at + 1).map_or(u64::MAX, |next| next.from.0);
                    prop_assert_eq!(slice.shown.0, took.min(next - from));
                }
            }
        }

        #[test]
        fn launches_of_other_contexts_gpus_and_times_do_not_move_a_slice(
            truths in prop::collection::vec(Truth::any(), 1..40), age in ages()
        ) {
            let launches = reported(&truths, age);
            let together = places(&launches);
            for truth in &truths {
                let same = truths.iter().zip(&launches).filter(|(other, _)| other.clock() == truth.clock());
                for (number, place) in places(same.map(|(_, launch)| launch)) {
                    prop_assert_eq!(&place, &together[&number]);
                }
            }
        }
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let most = TimedLaunch {
            launched: Nanos(u64::MAX),
            seen_after: Nanos(u64::MAX),
            duration: Nanos(u64::MAX),
            end: Some(Nanos(u64::MAX)),
            ..TimedLaunch::default()
        };
        let least = TimedLaunch { end: Some(Nanos(0)), duration: Nanos(u64::MAX), ..TimedLaunch::default() };
        for launches in [vec![most, least], vec![least, most], vec![TimedLaunch::default()]] {
            let launches: Vec<&TimedLaunch> = launches.iter().collect();
            assert!(!placed(&launches, GpuClock::Real).is_empty());
        }
    }
}
