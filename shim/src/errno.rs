//! Keeps the program's `errno` over cold work of ours.

/// Runs `work` and puts `errno` back as it was.
pub(crate) fn keep<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: `__errno_location` always returns the calling thread's valid location.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *at };
    let result = work();
    // SAFETY: the location does not move during a thread's life.
    unsafe { *at = before };
    result
}
