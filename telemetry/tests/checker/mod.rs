//! Runner of the model checks of each file.

use std::sync::atomic::AtomicUsize;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

pub fn zero() -> AtomicU64 {
    AtomicU64::new(0)
}

/// Explores `model`; returns the number of executions.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> usize {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        seen.fetch_add(1, Relaxed);
        model();
    });
    let count = count.load(Relaxed);
    eprintln!("{count} executions");
    count
}

/// Starts a thread whose first operation is a read-modify-write: the checker finds nothing in one that begins with a load.
pub fn spawn(warm: &Arc<AtomicU64>, work: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    let warm = warm.clone();
    thread::spawn(move || {
        warm.fetch_add(1, Relaxed);
        work();
    })
}
