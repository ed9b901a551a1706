//! A request of one job, seen by the daemon, and launches that wait for it.

mod common;

use common::{fork, join, wait};
use radrm_telemetry::gate::{ARMED, UNWATCHED, WATCHED};
use radrm_telemetry::layout::Header;
use radrm_telemetry::{RangeText, SegmentFile};
use std::cell::Cell;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

const HOUR_NS: u64 = 3_600_000_000_000;

fn watchdog() {
    // SAFETY: the signal's default action ends the process.
    unsafe { libc::alarm(60) };
}

fn watch_of(file: &SegmentFile) -> u64 {
    let mut word = [0; 8];
    let file = std::fs::File::open(file.path()).unwrap();
    file.read_exact_at(&mut word, offset_of!(Header, gate.ranges) as u64).unwrap();
    u64::from_ne_bytes(word)
}

#[test]
fn a_waiting_launch_is_woken_when_the_gate_opens() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let (writer, segment) = (join(&file), file.segment().unwrap());
    segment.set_gate(HOUR_NS).unwrap();
    assert_eq!((writer.gate().load(Relaxed), segment.gate()), (HOUR_NS, HOUR_NS));
    let waits = thread::spawn(move || writer.wait_for_gate(HOUR_NS, HOUR_NS));
    // Most likely it sleeps by then; the test holds either way.
    thread::sleep(Duration::from_millis(200));
    assert!(!waits.is_finished());
    segment.set_gate(0).unwrap();
    waits.join().unwrap();
    writer.wait_for_gate(HOUR_NS, HOUR_NS);
}

#[test]
fn every_begin_and_end_of_a_range_wakes_an_armed_daemon_once() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let (writer, segment) = (join(&file), file.segment().unwrap());
    let slot = segment.slot(writer.slot()).unwrap();
    let name = writer.range_name(RangeText { message: b"request", ..RangeText::default() }).0;
    let lane = writer.lane(1).number();
    let started = Cell::new(None);
    let steps: [(&dyn Fn(), usize); 4] = [
        (&|| assert!(writer.push_range(lane, 0, 0, name, None, None)), 1),
        (&|| assert!(writer.pop_range(lane, 1, 0)), 0),
        (&|| started.set(writer.start_range(lane, name, None)), 1),
        (&|| assert!(writer.end_range(started.get().unwrap())), 0),
    ];
    for (step, open) in steps {
        segment.watch_ranges(ARMED).unwrap();
        let other = segment.try_clone().unwrap();
        let sleeps = thread::spawn(move || other.wait_for_ranges(HOUR_NS).unwrap());
        thread::sleep(Duration::from_millis(50));
        assert!(!sleeps.is_finished());
        step();
        sleeps.join().unwrap();
        assert_eq!(watch_of(&file), WATCHED, "a second one wakes no thread until the daemon sleeps again");
        let found = segment.open_ranges(&slot).unwrap();
        assert_eq!(found.iter().map(|range| range.name).collect::<Vec<_>>(), vec![name; open]);
    }
    segment.watch_ranges(UNWATCHED).unwrap();
    assert!(writer.push_range(lane, 0, 0, name, None, None));
    assert_eq!(watch_of(&file), UNWATCHED);
    segment.wait_for_ranges(HOUR_NS).unwrap();
}

#[test]
fn a_truncated_segment_ends_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let writer = join(&file);
    let segment = file.segment().unwrap();
    let slot = segment.slot(writer.slot()).unwrap();
    std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(0).unwrap();
    let looks = || {
        let _ = segment.wait_for_ranges(HOUR_NS);
        let _ = (segment.open_ranges(&slot), segment.set_gate(1), segment.watch_ranges(ARMED));
        let _ = segment.wait_for_ranges(1_000_000);
    };
    assert_eq!(wait(fork(looks)), 0);
}
