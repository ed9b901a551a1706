//! Post-mortem that a process writes when a request is refused, as a reader finds it.

mod common;

use common::{fork, gpu, join, wait};
use radrm_telemetry::postmortem::{BLOCKS_KEPT, Cause};
use radrm_telemetry::*;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn refused(writer: &Writer, bytes: u64, free: u64) -> FailedRequest {
    FailedRequest {
        ns: writer.now(),
        gpu: gpu(writer),
        kind: Kind::Device,
        entry: 3,
        bytes,
        free,
        total: 80 << 30,
        result: 2,
        quota: None,
    }
}

fn hold(writer: &Writer, key: u64, kind: Kind, bytes: u64) {
    let block = Block { bytes, kind, gpu: gpu(writer), ns: writer.now(), aux: 0 };
    assert_eq!(writer.blocks().insert(BlockKey::pointer(key << 12), &block), Inserted::New);
    writer.charge(block.gpu, kind, bytes, block.ns);
}

fn of(file: &SegmentFile, writer: &Writer) -> Vec<Postmortem> {
    let segment = file.segment().unwrap();
    let slot = segment.slot(writer.slot()).unwrap();
    segment.postmortems(&slot).unwrap()
}

#[test]
fn the_first_refusal_is_kept_and_later_ones_are_counted() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    hold(&writer, 1, Kind::Device, 10 * MIB);
    hold(&writer, 2, Kind::Managed, 5 * MIB);
    hold(&writer, 3, Kind::PinnedHost, 50 * MIB);
    assert_eq!(of(&file, &writer), []);
    let first = refused(&writer, 20 * MIB, MIB);
    let limits = [
        QuotaRefusal { scope: Scope::Job, limit: 9, used: 8 },
        QuotaRefusal { scope: Scope::User, limit: 7, used: 6 },
    ];
    writer.postmortem(&first, SiteId::NONE, |draft| limits.into_iter().for_each(|quota| draft.quota(quota)));
    for (bytes, free) in [(3 * MIB, 30 * MIB), (MIB, 30 * MIB), (40 * MIB, 0)] {
        writer.postmortem(&refused(&writer, bytes, free), SiteId::NONE, |_| {});
    }
    let found = of(&file, &writer);
    assert_eq!(found.len(), 1, "{found:?}");
    let it = &found[0];
    assert_eq!((it.request, it.cause), (first, Cause::Device));
    assert!(it.is_complete && !it.is_latest && !it.blocks_cut && !it.others_cut);
    assert_eq!((it.kinds[0], it.kinds[5], it.kinds[6]), (10 * MIB, 5 * MIB, 50 * MIB));
    let sizes: Vec<_> = it.blocks.iter().map(|block| (block.block.bytes, block.block.kind)).collect();
    assert_eq!(sizes, [(10 * MIB, Kind::Device), (5 * MIB, Kind::Managed)]);
    assert!(it.blocks.iter().all(|block| block.block.ns > 0 && block.block.ns <= first.ns));
    assert_eq!(it.quotas, limits);
    assert_eq!(it.others, Some(vec![]));
    assert_eq!(it.later.causes, [(Cause::Device, 1), (Cause::Fragmentation, 2)]);
    assert_eq!((it.later.smallest, it.later.largest), (MIB, 40 * MIB));
    assert!(it.later.last_ns >= first.ns);
}

#[test]
fn after_a_while_the_latest_refusal_is_written_down_too() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    writer.postmortem(&refused(&writer, 20 * MIB, MIB), SiteId::NONE, |_| {});
    hold(&writer, 1, Kind::Device, 7 * MIB);
    let mut last = refused(&writer, 30 * MIB, MIB);
    last.ns += 3_600_000_000_000;
    writer.postmortem(&last, SiteId::NONE, |_| {});
    let found = of(&file, &writer);
    assert_eq!(found.iter().map(|it| it.is_latest).collect::<Vec<_>>(), [false, true]);
    assert_eq!((found[0].request.bytes, found[0].kinds[0]), (20 * MIB, 0));
    assert_eq!((found[1].request, found[1].kinds[0]), (last, 7 * MIB));
    assert_eq!(found[0].later.causes, [(Cause::Device, 1)]);
}

#[test]
fn of_many_blocks_the_largest_are_listed() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    const BLOCKS: u64 = 30_000;
    for n in 1..=BLOCKS {
        hold(&writer, n, Kind::Device, n * 7 % (BLOCKS + 1) + 1);
    }
    writer.postmortem(&refused(&writer, MIB, 0), SiteId::NONE, |_| {});
    let it = of(&file, &writer).remove(0);
    assert!(!it.blocks_cut);
    let mut sizes: Vec<u64> = (1..=BLOCKS).map(|n| n * 7 % (BLOCKS + 1) + 1).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(*size));
    let listed: Vec<u64> = it.blocks.iter().map(|block| block.block.bytes).collect();
    assert_eq!(listed, sizes[..BLOCKS_KEPT]);
    let left_out = LeftOut { count: BLOCKS - BLOCKS_KEPT as u64, bytes: sizes[BLOCKS_KEPT..].iter().sum() };
    assert_eq!(it.blocks_left_out, left_out);
}

/// A child that joins, holds memory and stays until it is killed.
fn holder(file: &SegmentFile, bytes: u64) -> libc::pid_t {
    let segment = file.segment().unwrap();
    let pid = fork(|| {
        let writer = join(file);
        hold(&writer, 1, Kind::Vmm, bytes);
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    while !segment.processes().unwrap().iter().any(|it| {
        it.slot.pid == Some(pid.unsigned_abs())
            && it.accounts.iter().any(|account| account.total_now == bytes)
    }) {
        std::thread::sleep(Duration::from_millis(1));
    }
    pid
}

fn end(pid: libc::pid_t) {
    // SAFETY: a child of this test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid);
}

#[test]
fn living_processes_of_the_job_are_listed_and_dead_ones_are_not() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    hold(&writer, 1, Kind::Device, MIB);
    let (small, large, dead) = (holder(&file, 3 * MIB), holder(&file, 9 * MIB), holder(&file, 90 * MIB));
    end(dead);
    writer.postmortem(&refused(&writer, 20 * MIB, MIB), SiteId::NONE, |_| {});
    end(small);
    end(large);
    let it = of(&file, &writer).remove(0);
    let others = it.others.unwrap();
    let held: Vec<_> =
        others.iter().map(|other| (other.pid as i32, other.kinds[Kind::Vmm as usize])).collect();
    assert_eq!(held, [(large, 9 * MIB), (small, 3 * MIB)]);
    assert!(others.iter().all(|other| other.generation == 1 && other.slot != writer.slot()));
}

#[test]
fn without_the_segments_file_others_are_unknown_and_the_rest_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = SegmentFile::create_in(&directory.path().join("radrm"), 0).unwrap();
    let segment = file.segment().unwrap();
    let writer = join(&file);
    hold(&writer, 1, Kind::Device, MIB);
    std::fs::remove_file(file.path()).unwrap();
    writer.postmortem(&refused(&writer, 20 * MIB, MIB), SiteId::NONE, |_| {});
    let it = segment.postmortems(&segment.slot(writer.slot()).unwrap()).unwrap().remove(0);
    assert_eq!((it.others, it.kinds[0], it.blocks.len()), (None, MIB, 1));
}

#[test]
fn a_process_that_dies_while_it_writes_leaves_what_it_had() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let segment = file.segment().unwrap();
    wait(fork(|| {
        let writer = join(&file);
        hold(&writer, 1, Kind::Device, 6 * MIB);
        // SAFETY: ends the child at once.
        writer.postmortem(&refused(&writer, 20 * MIB, MIB), SiteId::NONE, |_| unsafe { libc::_exit(0) });
    }));
    let slot = segment.slot(0).unwrap();
    let it = segment.postmortems(&slot).unwrap().remove(0);
    assert!(!it.is_complete);
    assert_eq!((it.request.bytes, it.kinds[0]), (20 * MIB, 6 * MIB));
    assert_eq!(it.blocks, []);
}

#[test]
fn the_next_process_of_a_slot_begins_without_a_post_mortem() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let segment = file.segment().unwrap();
    wait(fork(|| {
        let writer = join(&file);
        writer.postmortem(&refused(&writer, 20 * MIB, MIB), SiteId::NONE, |_| {});
    }));
    let slot = segment.slot(0).unwrap();
    assert_eq!(segment.postmortems(&slot).unwrap().len(), 1);
    segment.harvest(&slot).unwrap();
    while segment.slot(0).is_some_and(|slot| slot.generation == 1) {
        let writer = join(&file);
        assert!(of(&file, &writer).is_empty());
        writer.leave(EndReason::Exited);
        let left = segment.slot(writer.slot()).unwrap();
        if left.slot != 0 {
            break;
        }
    }
}
