//! Numbers of threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of the calling thread, never 0 and never used again.
pub fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(u64::MAX)
}
