//! Limits of users that are reached now: queued jobs keep their places behind them.

use std::collections::BTreeMap;

use radrm_base::UserId;

use super::allowances::Allowances;
use crate::allowance::Reached;
use crate::reason::Wait;

/// Limit of its user that keeps a queued job from being considered.
#[derive(Clone, Debug)]
pub(super) enum Barred {
    /// Quiet hours of this user.
    Quiet {
        user: UserId,
        excepts_small: bool,
    },
    Reached(Reached),
}

impl Barred {
    /// Returns true if later jobs of the same user wait behind it. Only a suspended job can be beyond a limit by itself, and in
    /// quiet hours of which small jobs are excepted a later one may be small: these are in no job's way.
    pub(super) fn bars_later(&self) -> bool {
        match self {
            Self::Quiet { excepts_small, .. } => !excepts_small,
            Self::Reached(reached) => !reached.is_never(),
        }
    }

    /// Reason that it waits, under these limits.
    pub(super) fn into_wait(self, allowances: &Allowances) -> Option<Wait> {
        match self {
            Self::Quiet { user, .. } => {
                allowances.of(user)?.quiet.clone().map(|quiet| Wait::QuietHours { quiet })
            }
            Self::Reached(reached) => Some(Wait::UserLimit { limit: Box::new(reached) }),
        }
    }
}

/// Jobs of each user that limits alone kept off in a walk over the queue: however many they are, it visits only so many.
#[derive(Debug)]
pub(super) struct KeptOff {
    most: u32,
    jobs: BTreeMap<UserId, u32>,
}

impl KeptOff {
    /// None yet, of each user so many at most.
    pub(super) fn new(most: u32) -> Self {
        Self { most, jobs: BTreeMap::new() }
    }

    /// Counts one more; true if the user's later ones are not to be visited.
    pub(super) fn is_full(&mut self, user: UserId) -> bool {
        let jobs = self.jobs.entry(user).or_default();
        *jobs = jobs.saturating_add(1);
        *jobs > self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_only_so_many_jobs_of_a_user_that_limits_keep_off() {
        let mut kept_off = KeptOff::new(2);
        let full = [7, 7, 8, 7, 8].map(|user| kept_off.is_full(UserId(user)));
        assert_eq!(full, [false, false, false, true, false], "each user's are counted by themselves");
    }
}
