//! Times of launches, from a snapshot to the profile.

use radrm_profile::model::{
    COPY_WAYS, Copies, GpuIndex, GpuTime, KernelActivity, KernelTime, KernelsMode, ProcessKey, Shapes,
    TimedSpan, Timings,
};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry::ProcessSnapshot;
use std::borrow::Cow;
use std::cmp::Reverse;

/// Kernels whose times go into the profile while the process lives: those that
/// took the longest. All follow when it has ended.
const KERNELS_PER_RECORD: usize = 256;

/// Divisor of the known time: the guessed part of a kernel's time counts up to the known time over this. Launches of a
/// size of which none was timed yet are guessed by other sizes, and can turn out to be a small part of that. A program
/// that ends with launches in the queue leaves a guess that no later timing corrects.
const GUESSED: u64 = 5;

/// Kernels of a process that lives took more than what is in the profile by that over this: worth a record.
const MORE_TIME: u64 = 16;

/// The timings of a process.
pub(crate) fn timings(key: ProcessKey, snapshot: &ProcessSnapshot) -> Timings {
    let kernel = |kernel: &radrm_telemetry::KernelSnapshot| {
        let time = kernel.time?;
        Some(KernelTime {
            id: kernel.id.into(),
            total: Nanos(time.total_ns),
            half_width: Nanos(time.half_width_ns),
            samples: time.samples,
        })
    };
    Timings {
        key,
        kernels: snapshot.kernels.iter().filter_map(kernel).collect(),
        gpu_time: gpu_time(snapshot),
        copies: snapshot
            .copies
            .iter()
            .map(|c| Copies { way: c.way.name().to_owned(), count: c.count, bytes: Bytes(c.bytes) })
            .collect(),
        spans: snapshot
            .accounts
            .iter()
            .filter(|account| account.timed_span_ns > 0)
            .map(|account| TimedSpan {
                gpu: GpuIndex(account.gpu.number()),
                span: Nanos(snapshot.used_ns(account)),
                timed: Nanos(account.timed_span_ns),
            })
            .collect(),
        lost: snapshot.timings_lost,
        cost: Nanos(snapshot.timing_cost_ns),
    }
}

/// Recording mode of a process's launches and copies.
pub(crate) fn mode(mode: radrm_telemetry::KernelsMode) -> KernelsMode {
    use radrm_telemetry::KernelsMode as Recorded;
    match mode {
        Recorded::Off => KernelsMode::Off,
        Recorded::Count => KernelsMode::Count,
        Recorded::Sample => KernelsMode::Sample,
        Recorded::All => KernelsMode::All,
    }
}

/// Time that its kernels took, by what is known now; of guesses as much as [`GUESSED`] says.
fn gpu_time(snapshot: &ProcessSnapshot) -> GpuTime {
    let times = || snapshot.kernels.iter().filter_map(|kernel| kernel.time.as_ref());
    let took = |time: &radrm_telemetry::KernelTime| {
        let timed = time.total_ns.saturating_sub(time.untimed_ns);
        timed.saturating_add(time.untimed_ns.min(timed / GUESSED))
    };
    // Launches of which only the time is known fill the GPU as the others do.
    let known = |ppm: fn(&radrm_telemetry::KernelTime) -> Option<u32>| {
        let shares = times().filter_map(|time| Some((took(time) as f64, f64::from(ppm(time)?) / 1e6)));
        let (known, filled) =
            shares.fold((0.0, 0.0), |(known, filled), (ns, share)| (known + ns, filled + ns * share));
        if known > 0.0 { filled / known } else { 0.0 }
    };
    let all = times().map(took).fold(0, u64::saturating_add);
    let filled = |share: f64| Nanos((all as f64 * share) as u64);
    GpuTime {
        kernels: Nanos(all),
        active: filled(known(|time| time.active_ppm)),
        resident: filled(known(|time| time.resident_ppm)),
    }
}

/// Launches and copies of a process so far. Between two snapshots [`KernelActivity::since`] is the increase, and
/// [`KernelActivity::filling`] the share of the GPU that it filled.
pub fn work(snapshot: &ProcessSnapshot) -> KernelActivity {
    let mut shapes = Shapes::default();
    for kernel in &snapshot.kernels {
        let launches = kernel.launches.saturating_add(kernel.graph_launches);
        let attributes = &kernel.attributes;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let each = |sum: &mut u64, of_one: u32| add(sum, launches.saturating_mul(of_one.into()));
        add(&mut shapes.launches, launches);
        add(&mut shapes.blocks, kernel.blocks.saturating_add(kernel.graph_blocks));
        add(&mut shapes.threads, kernel.threads.saturating_add(kernel.graph_threads));
        add(&mut shapes.dynamic_shared, kernel.dynamic_shared_bytes);
        each(&mut shapes.registers, attributes.registers);
        each(&mut shapes.static_shared, attributes.static_shared_bytes);
    }
    let way = |name: &str| {
        let of = snapshot.copies.iter().filter(|copies| copies.way.name() == name);
        Bytes(of.map(|copies| copies.bytes).fold(0, u64::saturating_add))
    };
    let GpuTime { kernels, active, resident } = gpu_time(snapshot);
    KernelActivity {
        launches: snapshot.launches(),
        graph_launches: snapshot.graph_launches,
        copied: Bytes(snapshot.copies.iter().map(|copies| copies.bytes).fold(0, u64::saturating_add)),
        ways: COPY_WAYS.map(way),
        shapes,
        kernels,
        active,
        resident,
    }
}

/// Timings of `now` that are worth a record when `known` is in the profile: the last ones of a process, and before that
/// whenever there are twice as many samples, or copies, or kernels took a part more than what is known, so that a long
/// run writes few.
pub(crate) fn news(known: &Timings, now: &Timings, last: bool) -> Option<Timings> {
    if now.is_empty() {
        return None;
    }
    if last {
        return (known != now).then(|| now.clone());
    }
    // What is known was cut likewise.
    let now = longest(now);
    let copies = |t: &Timings| t.copies.iter().map(|copies| copies.count).fold(0, u64::saturating_add);
    let has_doubled = |of: fn(&Timings) -> u64| of(&now) > of(known).saturating_mul(2);
    let took = known.gpu_time.kernels.0;
    let is_news = has_doubled(Timings::samples)
        || has_doubled(copies)
        || now.gpu_time.kernels.0 > took.saturating_add(took / MORE_TIME);
    is_news.then(|| now.into_owned())
}

/// The same with the kernels that took the longest.
fn longest(timings: &Timings) -> Cow<'_, Timings> {
    if timings.kernels.len() <= KERNELS_PER_RECORD {
        return Cow::Borrowed(timings);
    }
    let mut cut = timings.clone();
    cut.kernels.sort_by_key(|kernel| Reverse(kernel.total));
    cut.kernels.truncate(KERNELS_PER_RECORD);
    cut.kernels.sort_by_key(|kernel| kernel.id);
    Cow::Owned(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::SlotInfo;

    fn timings(kernels: u32, samples: u64) -> Timings {
        let kernel = |id| KernelTime { id, total: Nanos(u64::from(id)), samples, ..KernelTime::default() };
        Timings { kernels: (0..kernels).map(kernel).collect(), ..Timings::default() }
    }

    /// A process that runs, with these kernels.
    fn snapshot(kernels: Vec<radrm_telemetry::KernelSnapshot>) -> ProcessSnapshot {
        let slot = SlotInfo { pid: Some(7), ..SlotInfo::default() };
        ProcessSnapshot { slot, kernels, ..ProcessSnapshot::default() }
    }

    /// A program that ended with launches in the queue: what is guessed of these is the last word.
    #[test]
    fn a_guess_that_is_the_last_word_counts_up_to_a_part_of_what_is_known() {
        let kernel = |timed: u64, untimed_ns| {
            let time = radrm_telemetry::KernelTime {
                total_ns: timed + untimed_ns,
                untimed_ns,
                half_width_ns: untimed_ns,
                samples: 4,
                active_ppm: Some(500_000),
                ..Default::default()
            };
            radrm_telemetry::KernelSnapshot { time: Some(time), ..Default::default() }
        };
        let snapshot = snapshot(vec![kernel(1000, 99_000), kernel(400, 10)]);
        let all = super::timings(ProcessKey::default(), &snapshot);
        assert_eq!((all.gpu_time.kernels, all.gpu_time.active), (Nanos(1200 + 410), Nanos(805)));
        assert_eq!(all.gpu_time, work(&snapshot).gpu_time(), "the same as in the windows");
        // A kernel's own figure is the estimate, and its interval says how little is known.
        assert_eq!((all.kernels[0].total, all.kernels[0].half_width), (Nanos(100_000), Nanos(99_000)));
    }

    #[test]
    fn every_way_of_the_segment_has_its_place() {
        assert_eq!(radrm_telemetry::CopyWay::ALL.map(radrm_telemetry::CopyWay::name), COPY_WAYS);
    }

    #[test]
    fn records_become_rarer_and_the_last_one_is_whole() {
        assert_eq!(news(&timings(0, 0), &timings(0, 0), true), None);
        assert_eq!(news(&timings(0, 0), &timings(3, 5), false), Some(timings(3, 5)));
        assert_eq!(news(&timings(3, 5), &timings(3, 10), false), None);
        assert_eq!(news(&timings(3, 5), &timings(3, 11), false), Some(timings(3, 11)));
        assert_eq!(news(&timings(3, 5), &timings(3, 6), true), Some(timings(3, 6)));
        assert_eq!(news(&timings(3, 5), &timings(3, 5), true), None);
        let cut = news(&timings(0, 0), &timings(1000, 1), false).unwrap();
        assert_eq!((cut.kernels.len(), cut.kernels[0].id), (KERNELS_PER_RECORD, 1000 - 256));
        assert_eq!(news(&cut, &timings(1000, 1), false), None, "what was cut off is no news");
        assert_eq!(news(&cut, &timings(1000, 1), true), Some(timings(1000, 1)));
    }

    /// Each for itself: many copies do not keep what kernels take out of the profile.
    #[test]
    fn samples_copies_and_gpu_time_are_news_by_themselves() {
        let of = |samples, copies, kernels| Timings {
            gpu_time: GpuTime { kernels: Nanos(kernels), ..GpuTime::default() },
            copies: vec![Copies { count: copies, ..Copies::default() }],
            ..timings(1, samples)
        };
        let known = of(10, 47_000, 1000);
        for (now, is_news) in [
            (of(20, 94_000, 1000 + 1000 / MORE_TIME), false),
            (of(21, 47_000, 1000), true),
            (of(10, 94_001, 1000), true),
            (of(10, 47_000, 1001 + 1000 / MORE_TIME), true),
        ] {
            assert_eq!(news(&known, &now, false).is_some(), is_news, "{now:?}");
        }
    }
}
