//! The calling thread.

/// Its id. glibc before 2.30 has no function for it.
pub(crate) fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}
