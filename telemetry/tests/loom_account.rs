//! Model checks of an account and its timeline, run as those in `loom.rs` are.
#![cfg(loom)]

mod checker;

use checker::{explore, spawn, zero};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use radrm_telemetry::Kind;
use radrm_telemetry::layout::{AccountCell, KindCounts, PeakCell, TimelineBucket};
use std::array::from_fn;

fn zeros<const N: usize>() -> [AtomicU64; N] {
    from_fn(|_| zero())
}

fn account() -> Arc<AccountCell> {
    Arc::new(AccountCell {
        total_now: zero(),
        now: zeros(),
        spare0: zeros(),
        chunks: zero(),
        watermarks: zeros(),
        total_peak: zero(),
        peak: zeros(),
        open: zero(),
        until: zero(),
        spare1: zero(),
        counts: from_fn(|_| KindCounts { allocs: zero(), frees: zero() }),
        failed: zero(),
        postmortems: zero(),
        peak_epoch: zero(),
        timed_span_ns: zero(),
        contexts: zero(),
        granted_at_refusal: zero(),
        at_peak: PeakCell { seq: zero(), total: zero(), ns: zero(), spare: zeros(), kinds: zeros() },
        settled: zeros(),
        spare2: zeros(),
    })
}

#[test]
fn the_snapshot_is_of_the_last_peak_and_complete() {
    let executions = explore(2, || {
        let account = account();
        let warm = Arc::new(zero());
        let other = {
            let account = account.clone();
            spawn(&warm, move || {
                account.charge(Kind::Device, 10, true, 1);
            })
        };
        warm.fetch_add(1, Relaxed);
        account.charge(Kind::Vmm, 5, true, 2);
        other.join().unwrap();
        assert_eq!(account.total_peak.load(Relaxed), 15);
        assert_eq!(account.at_peak.total.load(Relaxed), 15, "the snapshot belongs to the peak");
        assert_eq!(account.at_peak.seq.load(Relaxed) % 2, 0);
    });
    assert!(executions > 50, "{executions}");
}

#[test]
fn a_total_never_wraps_though_more_is_discharged_than_is_there() {
    let executions = explore(2, || {
        let account = account();
        let warm = Arc::new(zero());
        let other = {
            let account = account.clone();
            spawn(&warm, move || {
                account.charge(Kind::Device, 10, true, 1);
                assert!(account.total_now.load(Relaxed) <= 10);
            })
        };
        warm.fetch_add(1, Relaxed);
        let taken = account.discharge(Kind::Device, 20, true);
        assert!(account.total_now.load(Relaxed) <= 10);
        other.join().unwrap();
        assert_eq!(account.total_now.load(Relaxed), 10 - taken);
        assert_eq!(account.now[0].load(Relaxed), 10 - taken);
    });
    assert!(executions > 5, "{executions}");
}

/// Two buckets of a timeline.
fn timeline() -> Arc<[TimelineBucket; 2]> {
    Arc::new(from_fn(|_| TimelineBucket { change: zeros(), max_total: zero(), at_max: zeros() }))
}

/// Function by which a thread settles.
type Settle = fn(&AccountCell, &[TimelineBucket; 2]);

fn settle(account: &AccountCell, buckets: &[TimelineBucket; 2]) {
    account.settle(|number| buckets.get(number as usize));
}

/// Two threads allocate, settle and open the next bucket. All buckets together are what is settled, and at the end what is held.
fn two_threads_settle(settle: Settle) -> usize {
    explore(2, move || {
        let (account, buckets, warm) = (account(), timeline(), Arc::new(zero()));
        let work = move |account: &AccountCell, buckets: &[TimelineBucket; 2], bytes: u64| {
            account.now[0].fetch_add(bytes, Relaxed);
            settle(account, buckets);
            account.open.fetch_max(1, Relaxed);
        };
        let other = {
            let (account, buckets) = (account.clone(), buckets.clone());
            spawn(&warm, move || work(&account, &buckets, 10))
        };
        warm.fetch_add(1, Relaxed);
        work(&account, &buckets, 5);
        other.join().unwrap();
        let counted = || buckets.iter().map(|it| it.change[0].load(Relaxed)).fold(0, u64::wrapping_add);
        assert_eq!(counted(), account.settled[0].load(Relaxed), "each change is counted once");
        settle(&account, &buckets);
        assert_eq!(counted(), 15, "nothing is left out");
    })
}

#[test]
fn threads_that_settle_at_once_count_each_change_once() {
    let executions = two_threads_settle(settle);
    assert!(executions > 50, "{executions}");
}

/// Does not look whether another thread has settled meanwhile.
fn settle_carelessly(account: &AccountCell, buckets: &[TimelineBucket; 2]) {
    let before = account.settled[0].load(Relaxed);
    let after = account.now[0].load(Relaxed);
    account.settled[0].store(after, Relaxed);
    let open = account.open.load(Relaxed) as usize;
    buckets[open].change[0].fetch_add(after.wrapping_sub(before), Relaxed);
}

#[test]
#[should_panic(expected = "each change is counted once")]
fn threads_that_settle_carelessly_are_found_out() {
    two_threads_settle(settle_carelessly);
}
