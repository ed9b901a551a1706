//! Sizes of GPUs, and how many blocks of a function they hold, as far as they were asked for.

use core::sync::atomic::AtomicU64;

use crate::telemetry::layout::GPUS;

/// Multiprocessors above, most threads of each below; 0: not asked yet.
pub(super) struct Sizes(pub(super) [AtomicU64; GPUS]);

impl Sizes {
    /// Nothing known.
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; GPUS])
    }
}

/// Blocks that a multiprocessor holds, of the functions and block sizes timed lately: most of a hash, and below it the
/// number plus one.
pub(super) struct Held(pub(super) [AtomicU64; Held::ENTRIES]);

impl Held {
    pub(super) const ENTRIES: usize = 1024;
    pub(super) const MASK: u64 = 0xffff;

    /// Nothing known.
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Self::ENTRIES])
    }
}
