//! Reasons that a turn of polling the jobs ends early.

use radrm_protocol::ProtocolError;

use crate::error::SweepError;

/// Reason that a turn ended early.
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
