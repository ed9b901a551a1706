//! Locks.

use std::sync::{Mutex, MutexGuard};

/// A lock that a panic elsewhere does not poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
