//! The table of live blocks.

use super::numbers::BUCKET_KEYS;
use crate::sync::AtomicU64;

/// Record of one block in the block table.
#[repr(C)]
#[derive(Debug)]
pub struct BlockCell {
    /// Size in the low 48 bits, then kind, then GPU.
    pub what: AtomicU64,
    /// Time at which the block was made, ns.
    pub ns: AtomicU64,
    /// Context or pool.
    pub aux: AtomicU64,
}

/// Bucket of the block table: a line of keys, three lines of what they stand for.
#[repr(C)]
#[derive(Debug)]
pub struct BlockBucket {
    /// Keys; 0 = free, [`KEY_BUSY`] = being changed.
    pub keys: [AtomicU64; BUCKET_KEYS],
    /// Keys whose first choice this is and that lie in their second one.
    pub spilled: AtomicU64,
    /// Blocks in the order of the keys.
    pub blocks: [BlockCell; BUCKET_KEYS],
    /// Unused.
    pub spare1: [AtomicU64; 3],
}

/// Key of an entry that is being changed.
pub const KEY_BUSY: u64 = u64::MAX;
