//! Ranges: their memory against a naive model, and what happens when there is no room.
#![cfg(not(loom))]

mod common;

use common::{gpu, join};
use proptest::prelude::*;
use radrm_base::Kind;
use radrm_telemetry::layout::{RANGE_DEPTH, RANGE_NAMES, RANGE_STARTS};
use radrm_telemetry::{
    GpuIndex, NameId, RangeReader, RangeSnapshot, RangeText, Segment, SegmentFile, SlotInfo, Writer,
};

fn named(writer: &Writer, name: &str) -> NameId {
    writer.range_name(RangeText { message: name.as_bytes(), ..RangeText::default() }).0
}

fn slot(file: &SegmentFile) -> (Segment, SlotInfo) {
    let segment = Segment::open(file.path()).unwrap();
    let slot = segment.slots().unwrap()[0];
    (segment, slot)
}

fn snapshot(file: &SegmentFile) -> RangeSnapshot {
    let (segment, slot) = slot(file);
    segment.ranges(&slot).unwrap().unwrap()
}

/// A range that is open in the model: totals of both GPUs at its begin, and the largest since.
#[derive(Clone)]
struct Open {
    domain: u64,
    name: usize,
    entry: [u64; 2],
    peak: [u64; 2],
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_in_ranges_is_what_a_naive_model_says(
        steps in prop::collection::vec((0..6u32, 0..3u64, 1..1000u64, 0..2usize), 1..150)
    ) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let writer = join(&file);
        let gpus = [gpu(&writer), writer.gpu(&[2; 16], b"GPU", 80 << 30, b"").unwrap()];
        let lane = writer.lane(1).number();
        let (mut totals, mut open) = ([0u64; 2], Vec::<Open>::new());
        let mut apart: Vec<(u64, Open)> = Vec::new();
        // Entry, exit and peak of every range that ended, by name.
        let mut ended: Vec<(usize, [[u64; 3]; 2])> = Vec::new();
        let mut next = 0;
        for (step, domain, bytes, on) in steps {
            match step {
                0 | 1 => {
                    writer.charge(gpus[on], Kind::Device, bytes, 0);
                    totals[on] += bytes;
                    for range in open.iter_mut().chain(apart.iter_mut().map(|(_, range)| range)) {
                        range.peak[on] = range.peak[on].max(totals[on]);
                    }
                }
                2 => {
                    let bytes = bytes.min(totals[on]);
                    writer.discharge(gpus[on], Kind::Device, bytes, 0);
                    totals[on] -= bytes;
                }
                3 if open.len() < RANGE_DEPTH => {
                    let name = named(&writer, &format!("range {next} of many"));
                    prop_assert!(writer.push_range(lane, open.len() as u32, domain, name, None, None));
                    open.push(Open { domain, name: next, entry: totals, peak: totals });
                    next += 1;
                }
                4 => {
                    let at = open.iter().rposition(|range| range.domain == domain);
                    prop_assert_eq!(writer.pop_range(lane, open.len() as u32, domain), at.is_some());
                    if let Some(at) = at {
                        let range = open.remove(at);
                        ended.push((range.name, [0, 1].map(|gpu| [range.entry[gpu], totals[gpu], range.peak[gpu]])));
                    }
                }
                _ => match apart.pop() {
                    Some((number, range)) if bytes % 2 == 0 => {
                        prop_assert!(writer.end_range(number));
                        prop_assert!(!writer.end_range(number), "it ends once");
                        ended.push((range.name, [0, 1].map(|gpu| [range.entry[gpu], totals[gpu], range.peak[gpu]])));
                    }
                    last => {
                        apart.extend(last);
                        let name = named(&writer, &format!("range {next} of many"));
                        let number = writer.start_range(lane, name, None).unwrap();
                        apart.push((number, Open { domain, name: next, entry: totals, peak: totals }));
                        next += 1;
                    }
                },
            }
        }
        if next == 0 {
            return Ok(());
        }
        let found = snapshot(&file);
        prop_assert_eq!(found.open.len(), open.len() + apart.len());
        for (name, figures) in ended {
            let text = format!("range {name} of many");
            let name = found.names.iter().find(|known| known.name == text).unwrap();
            prop_assert_eq!((name.ranges, name.unmarked), (1, 0));
            for (gpu, expected) in gpus.iter().zip(figures) {
                // A GPU that was never allocated on has no figures.
                let found = name.gpus.iter().find(|of| of.gpu == *gpu);
                let found = found.map_or([0; 3], |of| [of.entry_at_peak, of.exit_at_peak, of.peak]);
                prop_assert_eq!(found, expected, "{} {:?}", &text, gpu);
            }
        }
    }
}

#[test]
fn names_beyond_the_table_are_other_and_counted() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let all: Vec<NameId> =
        (0..2 * RANGE_NAMES).map(|n| named(&writer, &format!("name {n} of many"))).collect();
    let mut own: Vec<NameId> = all.iter().copied().filter(|name| *name != NameId::OTHER).collect();
    own.sort();
    own.dedup();
    assert_eq!(own.len(), RANGE_NAMES - 1);
    let again: Vec<NameId> =
        (0..2 * RANGE_NAMES).map(|n| named(&writer, &format!("name {n} of many"))).collect();
    assert_eq!(all, again);
    assert_eq!(snapshot(&file).other, 2 * (RANGE_NAMES as u64 + 1));
}

#[test]
fn threads_that_begin_one_name_at_once_count_as_that_name() {
    const THREADS: usize = 4;
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let together = std::sync::Barrier::new(THREADS);
    for round in 0..500 {
        let name = format!("name {round} of all");
        let found: Vec<NameId> = std::thread::scope(|scope| {
            let name = || {
                together.wait();
                named(&writer, &name)
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(name)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found[0] != NameId::OTHER && found.iter().all(|id| *id == found[0]), "{round}: {found:?}");
    }
    assert_eq!(snapshot(&file).other, 0);
}

#[test]
fn records_that_were_overwritten_are_counted() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let lane = writer.lane(1).number();
    let (segment, slot) = slot(&file);
    let mut reader = RangeReader::new(&slot);
    let name = named(&writer, "one of many");
    for _ in 0..10_000 {
        assert!(writer.push_range(lane, 0, 0, name, None, None));
        assert!(writer.pop_range(lane, 1, 0));
    }
    let read = reader.poll(&segment, true).len() as u64;
    assert!(read > 1000 && read + reader.lost() == 10_000, "{read} {}", reader.lost());
    let found = snapshot(&file);
    assert_eq!(found.names.iter().map(|name| name.ranges).sum::<u64>(), 10_000);
}

#[test]
fn what_has_no_room_is_not_kept_and_counted() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let lane = writer.lane(1).number();
    let name = named(&writer, "deep");
    for depth in 0..RANGE_DEPTH as u32 {
        assert!(writer.push_range(lane, depth, 0, name, None, None));
    }
    assert!(!writer.push_range(lane, RANGE_DEPTH as u32, 0, name, None, None));
    assert!(!writer.push_range(u32::MAX, 0, 0, name, None, None), "no such lane");
    assert!(!writer.pop_range(lane, RANGE_DEPTH as u32, 7), "no such domain");
    let numbers: Vec<_> = (0..RANGE_STARTS).map(|_| writer.start_range(lane, name, None).unwrap()).collect();
    assert_eq!(writer.start_range(lane, name, None), None);
    assert!(!writer.end_range(0) && !writer.end_range(u64::MAX) && !writer.end_range(numbers[0] ^ 1 << 50));
    let found = snapshot(&file);
    assert_eq!((found.too_deep, found.not_started), (2, 1));
    assert_eq!(found.open.len(), RANGE_DEPTH + RANGE_STARTS);
}

#[test]
fn threads_that_allocate_raise_the_peaks_of_all() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let gpu: GpuIndex = gpu(&writer);
    let lanes: Vec<u32> =
        (1..=8).map(|tid| tid * 1000 + std::process::id()).map(|tid| writer.lane(tid).number()).collect();
    let name = named(&writer, "thread");
    let together = named(&writer, "together");
    for lane in &lanes {
        assert!(writer.push_range(*lane, 0, 0, together, None, None));
    }
    std::thread::scope(|scope| {
        for lane in &lanes {
            scope.spawn(move || {
                for _ in 0..2000 {
                    assert!(writer.push_range(*lane, 1, 0, name, None, None));
                    writer.charge(gpu, Kind::Device, 10, 0);
                    writer.discharge(gpu, Kind::Device, 10, 0);
                    assert!(writer.pop_range(*lane, 2, 0));
                }
            });
        }
    });
    writer.charge(gpu, Kind::Device, 1000, 0);
    writer.discharge(gpu, Kind::Device, 1000, 0);
    for lane in &lanes {
        assert!(writer.pop_range(*lane, 1, 0));
    }
    let found = snapshot(&file);
    let of = |id: NameId| found.names.iter().find(|name| name.id == id).unwrap();
    assert_eq!(of(together).gpus[0].peak, 1000);
    assert_eq!((of(name).ranges, of(name).gpus[0].ranges), (16_000, 16_000));
    assert!((10..=80).contains(&of(name).gpus[0].peak), "{}", of(name).gpus[0].peak);
}
