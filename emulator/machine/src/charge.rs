//! Charges of memory: to a kind of memory, or to a context of its own.

use radrm_base::{KIND_COUNT, Kind};

/// Number of charges, which is the number of pages of a ledger.
pub const CHARGES: usize = KIND_COUNT + 1;

/// Charge of memory. A context takes device memory that no call of the program shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// Memory of a kind.
    Kind(Kind),
    /// A context's own memory.
    Context,
}

impl From<Kind> for Charge {
    fn from(kind: Kind) -> Self {
        Self::Kind(kind)
    }
}

impl Charge {
    /// All charges, in the order of a ledger's pages.
    pub fn all() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(Self::Kind).chain([Self::Context])
    }

    /// Page of a ledger.
    pub fn index(self) -> usize {
        match self {
            Self::Kind(kind) => kind.index(),
            Self::Context => KIND_COUNT,
        }
    }

    /// Returns true if held bytes of this charge count against the GPU's memory.
    pub fn is_held(self) -> bool {
        self.in_total() || self == Self::Context
    }

    /// Returns true if the charge is part of what a program's own calls took on the device.
    pub fn in_total(self) -> bool {
        matches!(self, Self::Kind(kind) if kind.in_total())
    }

    /// Stable name for programs.
    pub fn key(self) -> &'static str {
        match self {
            Self::Kind(kind) => kind.key(),
            Self::Context => "context",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_have_ten_pages_one_for_each_charge() {
        assert_eq!(CHARGES, 10);
        assert!(Charge::all().map(Charge::index).eq(0..CHARGES));
    }
}
