//! Limits of users that are reached now: queued jobs keep their places behind them.

use crate::allowance::{Quiet, Reached};
use crate::reason::Wait;

/// Limit of its user that keeps a queued job from being considered.
#[derive(Clone, Debug)]
pub(super) enum Barred {
    Quiet(Quiet),
    Reached(Reached),
}

impl Barred {
    /// Returns true if later jobs of the same user wait behind it. Only a suspended job can be beyond a limit by itself, and in
    /// quiet hours of which small jobs are excepted a later one may be small: these are in no job's way.
    pub(super) fn bars_later(&self) -> bool {
        match self {
            Self::Quiet(quiet) => quiet.small.is_none(),
            Self::Reached(reached) => !reached.is_never(),
        }
    }

    /// Reason that it waits.
    pub(super) fn into_wait(self) -> Wait {
        match self {
            Self::Quiet(quiet) => Wait::QuietHours { quiet },
            Self::Reached(reached) => Wait::UserLimit { limit: Box::new(reached) },
        }
    }
}
