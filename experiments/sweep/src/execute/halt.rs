//! What keeps jobs from being looked at to the end.

use radrm_protocol::ProtocolError;

use crate::error::SweepError;

/// Why a turn ended early.
pub(super) enum Halt {
    /// No daemon answers, or it cannot at the moment.
    Away(ProtocolError),
    Failed(SweepError),
}

impl From<ProtocolError> for Halt {
    fn from(why: ProtocolError) -> Self {
        if why.is_absent() || matches!(why, ProtocolError::Later(_)) {
            Self::Away(why)
        } else {
            Self::Failed(SweepError::Radrmd(why))
        }
    }
}

impl From<SweepError> for Halt {
    fn from(why: SweepError) -> Self {
        Self::Failed(why)
    }
}
