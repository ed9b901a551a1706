//! Model checks of the words between a request, the daemon, and the launches that wait, run as those in `loom.rs` are.
//!
//! A thread of a model that falls asleep ends; where it was woken, the model goes on with what it does then. In a model a sleep
//! has no time limit, so a thread that is left asleep at the end missed its wake.
#![cfg(loom)]

mod checker;

use checker::{explore, spawn, zero};
use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use radrm_telemetry::gate::{self, ARMED, WATCHED};

/// A word on which a thread sleeps, as the kernel keeps it: it compares the word and queues the thread in one step.
struct Sleeper {
    word: AtomicU64,
    sleeps: Mutex<bool>,
}

impl Sleeper {
    fn new(word: u64) -> Self {
        Self { word: AtomicU64::new(word), sleeps: Mutex::new(false) }
    }

    /// Returns true if the thread sleeps now.
    fn wait(&self, seen: u64) -> bool {
        let mut sleeps = self.sleeps.lock().unwrap();
        *sleeps = self.word.load(Relaxed) == seen;
        *sleeps
    }

    fn wake(&self) {
        *self.sleeps.lock().unwrap() = false;
    }

    fn assert_woken(&self) {
        assert!(!*self.sleeps.lock().unwrap(), "a thread sleeps on");
    }
}

/// Difference of a model from the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    No,
    /// A range takes the word without the fence after its frame.
    RangeWithoutFence,
    /// A range takes the word and wakes no thread.
    RangeWithoutWake,
    /// The daemon reads the ranges without the fence after it armed the word.
    DaemonWithoutFence,
    /// The gate opens and no thread is woken.
    GateWithoutWake,
    /// A launch that was woken goes without another look at the gate.
    LaunchWithoutLook,
}

/// A request that runs, one that ended, and what the gate is while it runs: later and later times, as the daemon sets it.
const RUNS: u64 = 1;
const ENDED: u64 = 2;
const NOW: u64 = 1 << 40;
const HELD: [u64; 2] = [NOW + 10, NOW + 20];

struct Job {
    /// The frame of the range: [`RUNS`] or [`ENDED`].
    range: AtomicU64,
    ranges: Sleeper,
    until: Sleeper,
    /// 1 once the daemon has opened the gate.
    opened: AtomicU64,
}

impl Job {
    fn new(until: u64) -> Arc<Self> {
        Arc::new(Self {
            range: AtomicU64::new(RUNS),
            ranges: Sleeper::new(WATCHED),
            until: Sleeper::new(until),
            opened: zero(),
        })
    }

    /// As `Writer` does it.
    fn set_range(&self, to: u64, broken: Broken) {
        self.range.store(to, Release);
        let sleeps = match broken {
            Broken::RangeWithoutFence => {
                self.ranges.word.compare_exchange(ARMED, WATCHED, AcqRel, Relaxed).is_ok()
            }
            _ => gate::take_watch(&self.ranges.word),
        };
        if sleeps && broken != Broken::RangeWithoutWake {
            self.ranges.wake();
        }
    }

    /// As `Segment` does it; the system call that writes the word adds no ordering of its own here.
    fn arm(&self, broken: Broken) {
        self.ranges.word.store(ARMED, Relaxed);
        if broken != Broken::DaemonWithoutFence {
            fence(SeqCst);
        }
    }

    fn set_gate(&self, until: u64, broken: Broken) {
        if until == 0 {
            self.opened.store(1, Relaxed);
        }
        self.until.word.store(until, Release);
        if broken != Broken::GateWithoutWake {
            self.until.wake();
        }
    }

    /// The daemon's thread: whether the request has ended, else it sleeps.
    fn watch(&self, broken: Broken) -> bool {
        loop {
            self.arm(broken);
            if self.range.load(Acquire) == ENDED {
                self.set_gate(0, broken);
                return true;
            }
            self.set_gate(HELD[1], broken);
            if self.ranges.wait(ARMED) {
                return false;
            }
        }
    }

    /// A launch below a budget: whether it went, else it sleeps.
    fn launch(&self, broken: Broken, is_woken: bool) -> bool {
        loop {
            let until = self.until.word.load(Relaxed);
            let trusts = is_woken && broken == Broken::LaunchWithoutLook;
            if gate::left(until, NOW) == 0 || trusts {
                // A read-modify-write sees the newest value.
                assert_eq!(self.opened.fetch_add(0, AcqRel), 1, "a launch went through a closed gate");
                return true;
            }
            if self.until.wait(until) {
                return false;
            }
        }
    }
}

/// A request ends while the daemon arms its word and reads the range.
fn range_and_daemon(broken: Broken) -> usize {
    explore(3, move || {
        let (job, warm) = (Job::new(HELD[0]), Arc::new(zero()));
        let daemon = {
            let job = job.clone();
            spawn(&warm, move || _ = job.watch(broken))
        };
        warm.fetch_add(1, Relaxed);
        job.set_range(ENDED, broken);
        daemon.join().unwrap();
        job.ranges.assert_woken();
    })
}

/// A launch waits while the daemon sets a later time and then opens the gate; it looks again wherever it was woken.
fn daemon_and_launch(broken: Broken) -> usize {
    explore(3, move || {
        let (job, warm) = (Job::new(HELD[0]), Arc::new(zero()));
        let daemon = {
            let job = job.clone();
            spawn(&warm, move || {
                job.set_gate(HELD[1], broken);
                job.set_gate(0, broken);
            })
        };
        warm.fetch_add(1, Relaxed);
        let mut went = job.launch(broken, false);
        if !went && !*job.until.sleeps.lock().unwrap() {
            went = job.launch(broken, true);
        }
        daemon.join().unwrap();
        if !went {
            job.until.assert_woken();
            assert!(job.launch(broken, true), "the gate is open");
        }
    })
}

/// A request ends, the daemon sees it, a launch goes.
fn all_three(broken: Broken) -> usize {
    explore(2, move || {
        let (job, warm) = (Job::new(HELD[0]), Arc::new(zero()));
        let ended = Arc::new(zero());
        let went = Arc::new(zero());
        let daemon = {
            let (job, ended) = (job.clone(), ended.clone());
            spawn(&warm, move || ended.store(job.watch(broken).into(), Release))
        };
        let launch = {
            let (job, went) = (job.clone(), went.clone());
            spawn(&warm, move || went.store(job.launch(broken, false).into(), Release))
        };
        warm.fetch_add(1, Relaxed);
        job.set_range(ENDED, broken);
        daemon.join().unwrap();
        if ended.load(Acquire) == 0 {
            job.ranges.assert_woken();
            assert!(job.watch(broken), "the request has ended");
        }
        launch.join().unwrap();
        if went.load(Acquire) == 0 {
            job.until.assert_woken();
            assert!(job.launch(broken, true), "the gate is open");
        }
    })
}

#[test]
fn a_daemon_that_sleeps_for_a_range_is_woken_by_it() {
    let executions = range_and_daemon(Broken::No);
    assert!(executions > 10, "{executions}");
}

#[test]
fn a_launch_that_waits_is_woken_when_the_gate_opens_and_never_goes_before() {
    let executions = daemon_and_launch(Broken::No);
    assert!(executions > 10, "{executions}");
}

#[test]
fn a_launch_goes_after_the_request_that_it_waits_for() {
    let executions = all_three(Broken::No);
    assert!(executions > 100, "{executions}");
}

#[test]
#[should_panic(expected = "a thread sleeps on")]
fn a_range_without_its_fence_is_found_out() {
    range_and_daemon(Broken::RangeWithoutFence);
}

#[test]
#[should_panic(expected = "a thread sleeps on")]
fn a_range_that_wakes_no_thread_is_found_out() {
    range_and_daemon(Broken::RangeWithoutWake);
}

#[test]
#[should_panic(expected = "a thread sleeps on")]
fn a_daemon_without_its_fence_is_found_out() {
    range_and_daemon(Broken::DaemonWithoutFence);
}

#[test]
#[should_panic(expected = "a thread sleeps on")]
fn a_gate_that_opens_and_wakes_no_thread_is_found_out() {
    daemon_and_launch(Broken::GateWithoutWake);
}

#[test]
#[should_panic(expected = "a launch went through a closed gate")]
fn a_launch_that_trusts_its_wake_is_found_out() {
    daemon_and_launch(Broken::LaunchWithoutLook);
}
