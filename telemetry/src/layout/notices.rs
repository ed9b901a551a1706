//! Notices of processes without a slot, see [`crate::Notice`].

use crate::sync::AtomicU64;

/// Notices that a table keeps; further ones are counted.
pub const NOTICES: usize = 48;

/// A process's notice.
#[repr(C)]
#[derive(Debug)]
pub struct NoticeCell {
    /// Process id in the process's own pid namespace; 0: free.
    pub pid: AtomicU64,
    /// Content of the notice, see [`crate::Notice`]; 0: not complete yet.
    pub what: AtomicU64,
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: AtomicU64,
    /// Unused.
    pub spare: AtomicU64,
}

/// All notices.
#[repr(C)]
#[derive(Debug)]
pub struct NoticeTable {
    /// Notices for which there was no room.
    pub lost: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 7],
    /// The notices, in their order.
    pub cells: [NoticeCell; NOTICES],
}
