//! Effect of a launch budget on a process.

use super::ProcessKey;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// Launches of a process that waited for the job's time slice on the GPU, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Key of the process.
    pub key: ProcessKey,
    /// Launches that waited.
    pub launches: u64,
    /// Time that they waited, over all threads.
    pub waited: Nanos,
    /// The budget's share of the GPU's time when it was last seen, thousandths; 0 if none was.
    pub share_permille: u16,
}

impl Throttling {
    /// Returns true if nothing waited.
    pub fn is_none(&self) -> bool {
        self.launches == 0
    }

    /// Figures that are worth a record when `known` is in the profile: the last ones of a process, and before
    /// that whenever it has waited twice as long as before.
    pub fn news(&self, known: &Self, last: bool) -> Option<Self> {
        // A budget that was lifted is still what it waited for.
        let share_permille =
            if self.share_permille == 0 { known.share_permille } else { self.share_permille };
        let now = Self { share_permille, ..*self };
        let is_news = if last { now != *known } else { now.waited.0 > known.waited.0.saturating_mul(2) };
        (is_news && !now.is_none()).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_rarer_and_a_lifted_budget_is_remembered() {
        let at = |waited, share_permille| Throttling {
            launches: 1,
            waited: Nanos(waited),
            share_permille,
            ..Throttling::default()
        };
        let nothing = Throttling::default();
        assert_eq!(nothing.news(&nothing, true), None);
        assert_eq!(at(5, 300).news(&nothing, false), Some(at(5, 300)));
        assert_eq!(at(10, 300).news(&at(5, 300), false), None);
        assert_eq!(at(11, 0).news(&at(5, 300), false), Some(at(11, 300)));
        assert_eq!(at(6, 0).news(&at(5, 300), true), Some(at(6, 300)));
        assert_eq!(at(5, 0).news(&at(5, 300), true), None);
    }
}
