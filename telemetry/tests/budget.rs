//! A budget on its way from the daemon that sets it to the process that follows it.

mod common;

use common::{fork, join, path, wait};
use radrm_telemetry::SegmentFile;
use radrm_telemetry::budget::Budget;
use radrm_telemetry::layout::{Header, PAGE};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A page of zeros.
fn page() -> NonNull<Header> {
    let layout = std::alloc::Layout::from_size_align(PAGE, PAGE).unwrap();
    // SAFETY: the layout is not empty. Never given back: it is replaced for good.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap().cast()
}

fn word(page: NonNull<Header>) -> u64 {
    // SAFETY: a header of zeros, or the segment's.
    unsafe { page.as_ref() }.budget.load(Relaxed)
}

fn watchdog() {
    // SAFETY: the signal's default action ends the process.
    unsafe { libc::alarm(60) };
}

#[test]
fn a_follower_of_a_budget_sees_it_change_and_so_do_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let (writer, segment) = (join(&file), file.segment().unwrap());
    let slot = segment.slot(writer.slot()).unwrap();
    let page = page();
    assert!(!segment.throttled(&slot).unwrap().obeys, "no process has recorded it yet");
    // SAFETY: a page of this test's own.
    assert!(unsafe { writer.follow_budget(&path(&file), page) });
    assert!(segment.throttled(&slot).unwrap().obeys);
    assert_eq!(word(page), 0);
    let budget = Budget { phase: 700, ..Budget::new(300, 64) };
    segment.set_budget(Some(budget)).unwrap();
    assert_eq!((word(page), segment.budget()), (budget.word(), Some(budget)));
    assert_eq!(segment.job().unwrap().budget, Some(budget));
    assert_eq!(wait(fork(|| assert_eq!(word(page), budget.word()))), 0);
    segment.set_budget(None).unwrap();
    assert_eq!((word(page), segment.budget()), (0, None));
}

#[test]
fn a_page_is_not_laid_over_by_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let other = SegmentFile::create_in(&dir.path().join("r"), 8).unwrap();
    let writer = join(&file);
    let page = page();
    // SAFETY: a page of this test's own.
    assert!(!unsafe { writer.follow_budget(&path(&other), page) });
    let segment = file.segment().unwrap();
    assert!(!segment.throttled(&segment.slot(writer.slot()).unwrap()).unwrap().obeys);
    assert_eq!(word(page), 0);
}

#[test]
fn a_waiting_launch_is_woken_when_its_budget_is_set() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let writer = join(&file);
    let closed = Budget::new(0, 1);
    file.segment().unwrap().set_budget(Some(closed)).unwrap();
    const HOUR_NS: u64 = 3_600_000_000_000;
    let waits: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || writer.wait_for_budget(closed.word(), HOUR_NS))).collect();
    // Most likely they sleep by then; the test holds either way.
    std::thread::sleep(Duration::from_millis(200));
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    file.segment().unwrap().set_budget(None).unwrap();
    waits.into_iter().for_each(|wait| wait.join().unwrap());
    // And not at all where it has been set meanwhile.
    writer.wait_for_budget(closed.word(), HOUR_NS);
}

#[test]
fn what_a_budget_did_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let (writer, segment) = (join(&file), file.segment().unwrap());
    writer.passed(3);
    writer.passed(4);
    writer.held();
    writer.held_for(5);
    writer.held_for(6);
    let slot = segment.slot(writer.slot()).unwrap();
    let seen = segment.throttled(&slot).unwrap();
    assert_eq!((seen.passed, seen.held, seen.held_ns), (7, 1, 11));
    assert_eq!(segment.process(&slot).unwrap().unwrap().throttled, seen);
}

#[test]
fn setting_a_budget_survives_a_truncated_segment() {
    let dir = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
    let segment = file.segment().unwrap();
    std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(0).unwrap();
    let sets = || drop(segment.set_budget(Some(Budget::new(300, 64))));
    assert_eq!(wait(fork(sets)), 0);
}
