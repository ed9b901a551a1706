//! Memory layout of the administrator's file of a scope: limits, and the users that count in the scope.
//!
//! Members map it for reading. Its owner never shortens it, so reading cannot fault.

use crate::layout::GPUS;
use crate::ledger::Amount;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};

/// First word of the file: "RADRMLIM".
pub const SCOPE_MAGIC: u64 = u64::from_le_bytes(*b"RADRMLIM");
/// Layout version. Any change of this file raises it.
pub const SCOPE_VERSION: u64 = 1;
/// Users that can count in a scope.
pub const MAX_USERS: usize = 1024;
/// Size of the file.
pub const SCOPE_BYTES: u64 = size_of::<ScopeArea>() as u64;

/// Limits of a scope and its users.
#[repr(C)]
#[derive(Debug)]
pub struct ScopeArea {
    /// [`SCOPE_MAGIC`]; written last.
    pub magic: AtomicU64,
    /// [`SCOPE_VERSION`].
    pub version: AtomicU64,
    /// Permissions that every member's ledger has.
    pub member_mode: AtomicU64,
    /// 1: set by hand, so that these limits hold instead of those of configuration files.
    pub by_hand: AtomicU64,
    /// Limit of GPUs that have none of their own, see [`Amount`].
    pub amount: AtomicU64,
    /// Entries of the roster in use; it only grows.
    pub users: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 10],
    /// 0, or a hash of a GPU's uuid; one after the other.
    pub tags: [AtomicU64; GPUS],
    /// The uuids.
    pub uuids: [[AtomicU64; 2]; GPUS],
    /// The limits of these GPUs; 0: the general one.
    pub amounts: [AtomicU64; GPUS],
    /// Unused.
    pub spare1: [AtomicU64; 512 - 16 - 4 * GPUS],
    /// User ids of those that have a ledger here. An entry never changes.
    pub roster: [AtomicU64; MAX_USERS],
}

impl ScopeArea {
    /// The limit of GPUs that have none of their own.
    pub fn general(&self) -> Amount {
        Amount::from_word(self.amount.load(Acquire)).unwrap_or(Amount::Unlimited)
    }

    /// The limit of a GPU by its tag.
    pub fn amount_of(&self, tag: u64) -> Amount {
        let known = self.tags.iter().zip(&self.amounts).find(|(known, _)| known.load(Acquire) == tag);
        known
            .and_then(|(_, amount)| Amount::from_word(amount.load(Acquire)))
            .unwrap_or_else(|| self.general())
    }

    /// Returns true if these limits were set by hand.
    pub fn is_by_hand(&self) -> bool {
        self.by_hand.load(Acquire) == 1
    }

    /// The users, with their places in the roster.
    pub fn users(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        // Acquire pairs with the administrator's Release: the entries below are written.
        let used = self.users.load(Acquire) as usize;
        self.roster.iter().take(used).map(|uid| uid.load(Relaxed) as u32).enumerate()
    }

    /// The limit that holds for a member: the administrator's, and the member's own where that is lower. What the
    /// administrator set by hand is stronger than what a job read from configuration files (`own_by_hand`: the
    /// user has lowered it by hand too).
    pub fn effective(&self, tag: u64, total_bytes: u64, own: u64, own_by_hand: bool) -> u64 {
        let of_scope = self.amount_of(tag).bytes(total_bytes);
        if self.is_by_hand() && !own_by_hand { of_scope } else { of_scope.min(own) }
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(ScopeArea, roster) == 4096);
    assert!(size_of::<ScopeArea>().is_multiple_of(crate::layout::PAGE));
};
