//! The one place that chooses between the standard atomics and the model checker's.
//!
//! Everything that is shared between threads or processes is built from these names, so that the same
//! algorithms run in a program and, compiled with `--cfg loom`, under the model checker.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
