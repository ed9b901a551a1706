//! Location of a ledger.

use crate::layout::LEDGER_AT;

/// Location of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a job's segment.
    Segment,
    /// In a file of its own.
    File,
}

impl Place {
    /// Offset in the file.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Segment => LEDGER_AT,
            Self::File => 0,
        }
    }
}
