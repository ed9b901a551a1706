//! Model checks of limits that users share and of ranges, run as those in `loom.rs` are.
#![cfg(loom)]

mod checker;

use checker::{explore, spawn, zero};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use radrm_telemetry::ledger::words;
use std::array::from_fn;

/// A request of 60 % by a user who reads the other user's word apart, if the roster names that user. The system call
/// that reads adds no ordering of its own here.
fn reserve_in_scope(words: &[AtomicU64; 2], roster: &AtomicU64, own: usize) -> bool {
    let sum = || {
        let is_known = own == 1 || roster.load(Acquire) == 2;
        let other = if is_known { words::bytes_of(words[1 - own].load(Relaxed)) } else { 0 };
        words::bytes_of(words[own].load(Relaxed)) + other
    };
    words::reserve_with(&words[own], 60, 100, sum).is_ok()
}

/// Two users at once; `known` of them are in the roster before, and user 1 is entered before the first request.
fn two_users(known: u64) -> usize {
    explore(3, move || {
        let words: Arc<[AtomicU64; 2]> = Arc::new(from_fn(|_| AtomicU64::new(words::empty(1))));
        let roster = Arc::new(AtomicU64::new(known));
        let (warm, granted) = (Arc::new(zero()), Arc::new(zero()));
        let other = {
            let (words, roster, granted) = (words.clone(), roster.clone(), granted.clone());
            spawn(&warm, move || {
                roster.store(2, Release);
                granted.fetch_add(reserve_in_scope(&words, &roster, 1).into(), Relaxed);
            })
        };
        warm.fetch_add(1, Relaxed);
        granted.fetch_add(reserve_in_scope(&words, &roster, 0).into(), Relaxed);
        other.join().unwrap();
        assert!(granted.load(Relaxed) < 2, "both were granted");
    })
}

#[test]
fn users_who_read_each_others_words_are_never_both_granted() {
    let executions = two_users(2);
    assert!(executions > 10, "{executions}");
}

#[test]
fn a_user_who_is_entered_meanwhile_is_never_overlooked() {
    let executions = two_users(1);
    assert!(executions > 10, "{executions}");
}

/// A range that begins beside an allocation sees it in the total, or the allocation sees the range.
fn range_beside_an_allocation(begin: fn(&AtomicU64, &AtomicU64) -> (u64, u64)) -> usize {
    use radrm_telemetry::ranges::watermark;
    explore(4, move || {
        let warm = Arc::new(zero());
        let words = Arc::new([zero(), zero()]);
        let allocating = words.clone();
        let other = spawn(&warm, move || {
            let [total, mark] = &*allocating;
            for bytes in [10, 5] {
                let reached = total.fetch_add(bytes, Relaxed) + bytes;
                watermark::barrier();
                watermark::reached(mark, reached);
            }
            total.fetch_sub(15, Release);
        });
        let [total, mark] = &*words;
        warm.fetch_add(1, Relaxed);
        let (_, entry) = begin(mark, total);
        let (peak, exit) = watermark::end(mark, total, 0);
        // All of the second allocation lies between begin and end.
        if entry == 10 && exit == 0 {
            assert_eq!(peak, 15);
        }
        assert!(peak >= entry && peak >= exit);
        other.join().unwrap();
    })
}

#[test]
fn a_range_misses_no_peak() {
    let executions = range_beside_an_allocation(radrm_telemetry::ranges::watermark::begin);
    assert!(executions > 50, "{executions}");
}

/// Reads the total before it clears the watermark, so that an allocation in between is lost.
fn begin_in_the_wrong_order(mark: &AtomicU64, total: &AtomicU64) -> (u64, u64) {
    let entry = total.load(Relaxed);
    let around = mark.swap(entry, Relaxed);
    (around, entry)
}

#[test]
#[should_panic]
fn a_range_that_begins_in_the_wrong_order_is_found_out() {
    range_beside_an_allocation(begin_in_the_wrong_order);
}
