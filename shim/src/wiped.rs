//! Process-wide state that a forked child finds empty.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes are a valid value, shared access from all threads is sound, and nothing has to be
/// dropped.
pub(crate) unsafe trait Zeroable: Sync {}

/// One lazily made anonymous mapping that the kernel zeroes in a forked child.
pub(crate) struct Wiped<T: Zeroable> {
    page: AtomicPtr<T>,
    of: PhantomData<T>,
}

impl<T: Zeroable> Wiped<T> {
    /// A holder that has made no mapping yet.
    pub(crate) const fn new() -> Self {
        Self { page: AtomicPtr::new(core::ptr::null_mut()), of: PhantomData }
    }

    /// The state; `None` where the kernel cannot provide such a mapping.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the release half of the exchange in `make`.
        let page = self.page.load(Ordering::Acquire);
        if page.is_null() {
            return self.make();
        }
        // SAFETY: a non-null pointer is a mapping that is never unmapped and holds a valid `T`.
        Some(unsafe { &*page })
    }

    #[cold]
    fn make(&self) -> Option<&'static T> {
        let fresh = map_wiped(size_of::<T>())?.cast::<T>();
        // The mapping is published to the Acquire load in `get`.
        match self.page.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: fresh zeroed mapping, never unmapped from here on; page alignment suffices for `T`.
            Ok(_) => Some(unsafe { &*fresh }),
            Err(other) => {
                // SAFETY: `fresh` was mapped above with this length and no other thread has seen it.
                let _ = unsafe { rustix::mm::munmap(fresh.cast(), size_of::<T>()) };
                // SAFETY: published by another thread; see `get`.
                Some(unsafe { &*other })
            }
        }
    }
}

/// Maps zeroed private memory that a forked child finds zeroed again.
fn map_wiped(bytes: usize) -> Option<*mut u8> {
    let page = crate::arena::map_private(bytes)?;
    // SAFETY: the range was mapped just above.
    if unsafe { rustix::mm::madvise(page.cast(), bytes, rustix::mm::Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above; no other thread has seen the mapping.
        let _ = unsafe { rustix::mm::munmap(page.cast(), bytes) };
        return None;
    }
    Some(page)
}
