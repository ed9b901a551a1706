//! A GPU's row in a ledger, and the answer where it has no room.

use crate::layout::GPUS;

/// A request that a limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The limit, bytes.
    pub limit: u64,
    /// Bytes that the members had reserved.
    pub used: u64,
}

/// A GPU's row in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRow(u8);

impl LedgerRow {
    /// Its number, below [`GPUS`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The row with this number, for callers that keep numbers in words of their own.
    pub const fn from_number(number: usize) -> Option<Self> {
        if number < GPUS { Some(Self(number as u8)) } else { None }
    }
}
