//! Amount of a GPU that a limit allows, in one word.

use super::words::LARGEST;

/// Amount of a GPU's memory that a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// No limit.
    Unlimited,
    /// Bytes.
    Bytes(u64),
    /// A share of the GPU's memory in hundredths of a percent.
    PerMyriad(u32),
}

const KIND: u32 = 62;
const BYTES: u64 = 1 << KIND;
const SHARE: u64 = 2 << KIND;
const NONE: u64 = 3 << KIND;

impl Amount {
    /// As kept in a ledger; never 0.
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Unlimited => NONE,
            Self::Bytes(bytes) => BYTES | if bytes < LARGEST { bytes } else { LARGEST },
            Self::PerMyriad(share) => SHARE | share as u64,
        }
    }

    /// `None` for 0, which says that the general limit applies.
    pub const fn from_word(word: u64) -> Option<Self> {
        match word & (3 << KIND) {
            BYTES => Some(Self::Bytes(word & (BYTES - 1))),
            SHARE => Some(Self::PerMyriad(word as u32)),
            NONE => Some(Self::Unlimited),
            _ => None,
        }
    }

    /// Bytes on a GPU with this much memory; `u64::MAX` where there is no limit.
    pub const fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::Bytes(bytes) => bytes,
            Self::PerMyriad(share) => (total as u128 * share as u128 / 10_000) as u64,
        }
    }
}

/// A limit for one GPU, or for every GPU that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The driver's uuid of the GPU; `None`: all that are not named.
    pub gpu: Option<[u8; 16]>,
    /// Amount that the limit allows.
    pub amount: Amount,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn amounts_survive_their_word() {
        for amount in [Amount::Unlimited, Amount::Bytes(0), Amount::Bytes(123), Amount::PerMyriad(10_000)] {
            assert_eq!(Amount::from_word(amount.to_word()), Some(amount));
        }
        assert_eq!(Amount::from_word(0), None);
    }

    #[test]
    fn a_share_rounds_down() {
        assert_eq!(Amount::PerMyriad(5_000).bytes(81_559), 40_779);
        assert_eq!(Amount::PerMyriad(10_000).bytes(1 << 40), 1 << 40);
        assert_eq!(Amount::Unlimited.bytes(7), u64::MAX);
    }
}
