//! The one place that chooses between the standard atomics and the model checker's.
//!
//! Everything that is shared between threads or processes is built from these names, so that the same
//! algorithms run in a program and, compiled with `--cfg loom`, under the model checker.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Keeps loads that follow from being made before the read-modify-write that precedes.
#[inline(always)]
pub fn store_load_barrier() {
    // A locked instruction of x86-64 is a full barrier already; only the compiler must keep the order.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    fence(Ordering::SeqCst);
}
