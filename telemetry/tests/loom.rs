//! Model checks of everything that several threads touch at once.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p radrm-telemetry --test loom --release --target-dir target/loom`
//!
//! The checker finds nothing in a thread whose first operation is a load: every thread is warmed up with a
//! read-modify-write, the number of executions is asserted, and a ring that is broken on purpose must fail.
#![cfg(loom)]

mod checker;

use checker::{explore, spawn, zero};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU64, fence};
use radrm_telemetry::layout::{BlockBucket, BlockCell, Cell};
use radrm_telemetry::ring::{CellSource, Ring, RingCursor, write_cell};
use radrm_telemetry::{Block, BlockKey, GpuIndex, Inserted, Kind, ledger::words};
use std::array::from_fn;

fn zeros<const N: usize>() -> [AtomicU64; N] {
    from_fn(|_| zero())
}

const W: usize = 2;

struct Memory<const CELLS: usize> {
    head: AtomicU64,
    dropped: AtomicU64,
    cells: [Cell<W>; CELLS],
}

impl<const CELLS: usize> Memory<CELLS> {
    fn new() -> Arc<Self> {
        let cell = |_| Cell { seq: zero(), words: zeros() };
        Arc::new(Self { head: zero(), dropped: zero(), cells: from_fn(cell) })
    }

    fn ring(&self) -> Ring<'_, W> {
        Ring::new(&self.head, &self.dropped, &self.cells)
    }

    fn poll(&self, cursor: &mut RingCursor, last: bool) -> Vec<u64> {
        let mut records = Vec::new();
        let polled = cursor.poll(&mut &*self, CELLS as u64, last, |[a, b]| {
            assert_eq!(b, a + 100, "a record is one producer's");
            records.push(a);
        });
        assert!(polled.is_some());
        records
    }
}

impl<const CELLS: usize> CellSource<W> for &Memory<CELLS> {
    fn head(&mut self) -> Option<u64> {
        Some(self.head.load(Acquire))
    }
    fn seq(&mut self, cell: u64) -> Option<u64> {
        Some(self.cells.get(cell as usize)?.seq.load(Acquire))
    }
    fn words(&mut self, cell: u64) -> Option<[u64; W]> {
        let cell = self.cells.get(cell as usize)?;
        Some(from_fn(|i| cell.words[i].load(Relaxed)))
    }
    fn barrier(&mut self) {
        fence(Acquire);
    }
}

/// Two producers on a ring of `CELLS`, a reader that polls while they run and once at the end.
fn ring_model<const CELLS: usize>(
    preemptions: usize,
    each: u64,
    push: fn(&Memory<CELLS>, u64) -> bool,
) -> usize {
    explore(preemptions, move || {
        let memory = Memory::<CELLS>::new();
        let warm = Arc::new(zero());
        let written = Arc::new(zero());
        let producers: Vec<_> = (0..2u64)
            .map(|producer| {
                let (memory, written) = (memory.clone(), written.clone());
                spawn(&warm, move || {
                    for n in 0..each {
                        if push(&memory, 10 * (producer + 1) + n) {
                            written.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        warm.fetch_add(1, Relaxed);
        let mut cursor = RingCursor::default();
        let mut records = memory.poll(&mut cursor, false);
        for producer in producers {
            producer.join().unwrap();
        }
        records.extend(memory.poll(&mut cursor, true));
        let head = memory.head.load(Acquire);
        assert_eq!(head, 2 * each);
        assert_eq!(written.load(Relaxed) + memory.dropped.load(Relaxed), head);
        assert_eq!(cursor.delivered() + cursor.lost(), head);
        assert_eq!(records.len() as u64, cursor.delivered());
        assert!(cursor.delivered() <= written.load(Relaxed));
        let mut unique = records.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), records.len(), "nothing is delivered twice");
    })
}

fn push<const CELLS: usize>(memory: &Memory<CELLS>, value: u64) -> bool {
    memory.ring().push([value, value + 100])
}

#[test]
fn a_ring_with_room_delivers_whole_records() {
    assert!(ring_model::<2>(3, 1, push) > 100);
}

#[test]
fn a_ring_that_overwrites_delivers_whole_records_and_counts_the_rest() {
    assert!(ring_model::<1>(3, 1, push) > 100);
    assert!(ring_model::<2>(2, 2, push) > 1000);
}

/// Writes without making the sequence odd first.
fn push_without_taking<const CELLS: usize>(memory: &Memory<CELLS>, value: u64) -> bool {
    let ticket = memory.head.fetch_add(1, Relaxed);
    let cell = &memory.cells[ticket as usize % CELLS];
    for (place, word) in cell.words.iter().zip([value, value + 100]) {
        place.store(word, Relaxed);
    }
    cell.seq.store(2 * (ticket / CELLS as u64) + 2, Release);
    true
}

#[test]
#[should_panic(expected = "a record is one producer's")]
fn a_ring_whose_producers_do_not_take_cells_is_found_out() {
    ring_model::<1>(3, 2, push_without_taking);
}

/// Takes the cell but publishes without Release.
fn push_without_release<const CELLS: usize>(memory: &Memory<CELLS>, value: u64) -> bool {
    let ticket = memory.head.fetch_add(1, Relaxed);
    let cell = &memory.cells[ticket as usize % CELLS];
    for (place, word) in cell.words.iter().zip([value, value + 100]) {
        place.store(word, Relaxed);
    }
    cell.seq.store(2 * (ticket / CELLS as u64) + 2, Relaxed);
    true
}

#[test]
#[should_panic(expected = "a record is one producer's")]
fn a_ring_that_publishes_too_early_is_found_out() {
    ring_model::<2>(3, 1, push_without_release);
}

#[test]
fn a_producer_that_dies_in_its_cell_blocks_no_producer() {
    let executions = explore(3, || {
        let memory = Memory::<2>::new();
        let warm = Arc::new(zero());
        // Ticket 0 was drawn and its cell taken by a producer that is gone.
        memory.head.fetch_add(1, Relaxed);
        memory.cells[0].seq.store(1, Relaxed);
        let producer = {
            let memory = memory.clone();
            spawn(&warm, move || {
                for value in [10, 11] {
                    push(&memory, value);
                }
            })
        };
        warm.fetch_add(1, Relaxed);
        let mut cursor = RingCursor::default();
        let mut records = memory.poll(&mut cursor, false);
        producer.join().unwrap();
        records.extend(memory.poll(&mut cursor, true));
        assert_eq!(records, [10]);
        assert_eq!((cursor.delivered(), cursor.lost()), (1, 2));
        assert_eq!(memory.dropped.load(Relaxed), 1);
    });
    assert!(executions > 10, "{executions}");
}

#[test]
fn one_lap_behind_never_overwrites_one_ahead() {
    let executions = explore(3, || {
        let cell = Arc::new(Cell::<W> { seq: zero(), words: zeros() });
        let warm = Arc::new(zero());
        let late = {
            let cell = cell.clone();
            spawn(&warm, move || {
                write_cell(&cell, 0, [1, 101]);
            })
        };
        warm.fetch_add(1, Relaxed);
        let ahead = write_cell(&cell, 1, [2, 102]);
        late.join().unwrap();
        let words: [u64; W] = from_fn(|i| cell.words[i].load(Relaxed));
        let seq = cell.seq.load(Relaxed);
        assert_eq!((seq, words), if ahead { (4, [2, 102]) } else { (2, [1, 101]) });
    });
    assert!(executions > 5, "{executions}");
}

fn bucket() -> Arc<BlockBucket> {
    Arc::new(BlockBucket {
        keys: zeros(),
        spilled: zero(),
        blocks: from_fn(|_| BlockCell { what: zero(), ns: zero(), aux: zero() }),
        spare1: zeros(),
    })
}

fn block(n: u64) -> Block {
    Block { bytes: n, kind: Kind::Device, gpu: GpuIndex::from_number(0).unwrap(), ns: n, aux: n }
}

#[test]
fn blocks_of_two_threads_in_one_bucket_do_not_mix() {
    let executions = explore(2, || {
        let bucket = bucket();
        let warm = Arc::new(zero());
        let work = |bucket: &BlockBucket, n: u64| {
            let key = BlockKey::pointer(n);
            assert_eq!(bucket.insert(key, 0, &block(n)), Inserted::New);
            assert_eq!(bucket.get(key, 0), Some(block(n)));
            assert_eq!(bucket.remove(key, 0), Some(block(n)));
        };
        let other = {
            let bucket = bucket.clone();
            spawn(&warm, move || work(&bucket, 1))
        };
        warm.fetch_add(1, Relaxed);
        work(&bucket, 2);
        other.join().unwrap();
        assert!(bucket.keys.iter().all(|key| key.load(Relaxed) == 0));
    });
    assert!(executions > 100, "{executions}");
}

#[test]
fn of_two_threads_that_remove_a_block_one_gets_it() {
    let executions = explore(3, || {
        let bucket = bucket();
        let warm = Arc::new(zero());
        let key = BlockKey::pointer(7);
        assert_eq!(bucket.insert(key, 0, &block(7)), Inserted::New);
        let got = Arc::new(zero());
        let other = {
            let (bucket, got) = (bucket.clone(), got.clone());
            spawn(&warm, move || {
                got.fetch_add(bucket.remove(key, 0).is_some().into(), Relaxed);
            })
        };
        warm.fetch_add(1, Relaxed);
        got.fetch_add(bucket.remove(key, 0).is_some().into(), Relaxed);
        other.join().unwrap();
        assert_eq!(got.load(Relaxed), 1);
    });
    assert!(executions > 5, "{executions}");
}

#[test]
fn a_look_up_while_its_place_is_given_to_another_key_sees_its_own_block_or_none() {
    let executions = explore(3, || {
        let bucket = bucket();
        let warm = Arc::new(zero());
        let (key, next) = (BlockKey::pointer(7), BlockKey::pointer(8));
        assert_eq!(bucket.insert(key, 0, &block(7)), Inserted::New);
        let other = {
            let bucket = bucket.clone();
            spawn(&warm, move || {
                bucket.remove(key, 0);
                bucket.insert(next, 0, &block(8));
            })
        };
        warm.fetch_add(1, Relaxed);
        let seen = bucket.get(key, 0);
        assert!(seen.is_none() || seen == Some(block(7)), "{seen:?}");
        other.join().unwrap();
        assert_eq!((bucket.get(key, 0), bucket.get(next, 0)), (None, Some(block(8))));
    });
    assert!(executions > 20, "{executions}");
}

#[test]
fn a_lane_is_taken_over_by_one_thread_and_loses_no_count() {
    let executions = explore(3, || {
        // One lane whose owner, thread 9, has counted 5 and is seen to be gone.
        let owners: Arc<[AtomicU64; 1]> = Arc::new([AtomicU64::new(9)]);
        let counter = Arc::new(AtomicU64::new(5));
        let shared = Arc::new(zero());
        let warm = Arc::new(zero());
        let work = |owners: &[AtomicU64; 1], counter: &AtomicU64, shared: &AtomicU64, tid: u64| {
            match radrm_telemetry::lanes::claim(owners, tid, |tid| tid != 9) {
                Some(_) => counter.store(counter.load(Relaxed) + 1, Relaxed),
                None => drop(shared.fetch_add(1, Relaxed)),
            }
        };
        let other = {
            let (owners, counter, shared) = (owners.clone(), counter.clone(), shared.clone());
            spawn(&warm, move || work(&owners, &counter, &shared, 1))
        };
        warm.fetch_add(1, Relaxed);
        work(&owners, &counter, &shared, 2);
        other.join().unwrap();
        assert_eq!((counter.load(Relaxed), shared.load(Relaxed)), (6, 1));
    });
    assert!(executions > 3, "{executions}");
}

/// Two words and their number.
fn ledger() -> Arc<([AtomicU64; 2], AtomicU64)> {
    Arc::new((from_fn(|_| AtomicU64::new(words::empty(1))), AtomicU64::new(2)))
}

fn row(ledger: &([AtomicU64; 2], AtomicU64)) -> words::Words<'_> {
    words::Words { words: &ledger.0, high: &ledger.1 }
}

#[test]
fn two_requests_of_60_percent_are_never_both_granted() {
    let executions = explore(3, || {
        let ledger = ledger();
        let warm = Arc::new(zero());
        let granted = Arc::new(zero());
        let other = {
            let (ledger, granted) = (ledger.clone(), granted.clone());
            spawn(&warm, move || {
                if row(&ledger).reserve(&ledger.0[1], 60, 100).is_ok() {
                    assert!(granted.fetch_add(60, Relaxed) <= 40);
                }
            })
        };
        warm.fetch_add(1, Relaxed);
        if row(&ledger).reserve(&ledger.0[0], 60, 100).is_ok() {
            assert!(granted.fetch_add(60, Relaxed) <= 40);
        }
        other.join().unwrap();
        assert_eq!(row(&ledger).sum(), granted.load(Relaxed), "a refused request leaves nothing");
    });
    assert!(executions > 10, "{executions}");
}

#[test]
#[should_panic(expected = "both")]
fn a_ledger_that_reads_before_it_adds_is_found_out() {
    explore(3, || {
        let ledger = ledger();
        let warm = Arc::new(zero());
        let careless = |ledger: &([AtomicU64; 2], AtomicU64), own: usize| {
            let fits = row(ledger).sum() + 60 <= 100;
            if fits {
                words::add(&ledger.0[own], 60);
            }
            fits
        };
        let granted = Arc::new(zero());
        let other = {
            let (ledger, granted) = (ledger.clone(), granted.clone());
            spawn(&warm, move || {
                granted.fetch_add(careless(&ledger, 1).into(), Relaxed);
            })
        };
        warm.fetch_add(1, Relaxed);
        granted.fetch_add(careless(&ledger, 0).into(), Relaxed);
        other.join().unwrap();
        assert!(granted.load(Relaxed) < 2, "both were granted");
    });
}

#[test]
fn a_dead_members_word_is_cleared_once_and_never_its_successors() {
    let executions = explore(3, || {
        let ledger = ledger();
        words::add(&ledger.0[1], 70);
        let warm = Arc::new(zero());
        let sweeper = {
            let ledger = ledger.clone();
            // Has found generation 1 dead, and takes its time.
            spawn(&warm, move || words::clear(&ledger.0[1], 1))
        };
        warm.fetch_add(1, Relaxed);
        // The next member takes the place and reserves.
        words::begin(&ledger.0[1], 2);
        assert!(row(&ledger).reserve(&ledger.0[1], 30, 100).is_ok());
        sweeper.join().unwrap();
        assert_eq!(row(&ledger).sum(), 30);
    });
    assert!(executions > 3, "{executions}");
}

#[test]
fn threads_of_one_member_lose_no_byte() {
    let executions = explore(3, || {
        let ledger = ledger();
        let warm = Arc::new(zero());
        let other = {
            let ledger = ledger.clone();
            spawn(&warm, move || {
                if row(&ledger).reserve(&ledger.0[0], 50, 100).is_ok() {
                    words::release(&ledger.0[0], 50);
                }
            })
        };
        warm.fetch_add(1, Relaxed);
        let kept = row(&ledger).reserve(&ledger.0[0], 60, 100).is_ok();
        other.join().unwrap();
        assert_eq!(row(&ledger).sum(), if kept { 60 } else { 0 });
        assert!(words::is_of(ledger.0[0].load(Relaxed), 1));
    });
    assert!(executions > 5, "{executions}");
}

#[test]
fn two_that_charge_the_same_measurement_charge_it_once() {
    let executions = explore(3, || {
        // Reserved, said, charged.
        let cells: Arc<[AtomicU64; 3]> = Arc::new([100, 30, 0].map(|n| AtomicU64::new(words::empty(1) | n)));
        let warm = Arc::new(zero());
        let work = |cells: &[AtomicU64; 3]| words::settle(&cells[1], &cells[2], &cells[0], 1);
        let other = {
            let cells = cells.clone();
            spawn(&warm, move || work(&cells))
        };
        warm.fetch_add(1, Relaxed);
        work(&cells);
        assert!(words::bytes_of(cells[0].load(Relaxed)) >= 130, "what is charged is covered");
        other.join().unwrap();
        assert_eq!(words::bytes_of(cells[0].load(Relaxed)), 130);
    });
    assert!(executions > 5, "{executions}");
}
