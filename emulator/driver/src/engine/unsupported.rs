//! Entry points without semantics that were called.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 1024 / 64;

/// Entry points without semantics that were called, one bit each.
#[derive(Debug)]
pub struct Unsupported([AtomicU64; WORDS]);

impl Default for Unsupported {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }
}

impl Unsupported {
    /// Marks the entry point of this number; says whether it is the first time.
    pub fn mark(&self, index: usize) -> bool {
        let (word, bit) = (index / 64 % WORDS, 1u64 << (index % 64));
        self.0[word].fetch_or(bit, Relaxed) & bit == 0
    }
}
