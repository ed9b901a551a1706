//! Observations of jobs with targets so far, and what of them is in the jobs' histories.

use std::collections::BTreeMap;

use radrm_scheduler_core::Permille;

use crate::latency::{Kind, StepWatch};

/// Readings of jobs with targets so far.
#[derive(Debug, Default)]
pub(super) struct Targets {
    watches: BTreeMap<u64, StepWatch>,
    /// The share that was last written into the history of a job that is held back.
    told: BTreeMap<u64, Permille>,
}

impl Targets {
    /// Returns true if no job is observed.
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Forgets the readings of all other jobs.
    pub(super) fn keep_only(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.watches.retain(|job, _| is_kept(*job));
    }

    /// Readings of a job.
    pub(super) fn watch(&mut self, job: u64) -> &mut StepWatch {
        self.watches.entry(job).or_default()
    }

    /// The kind of times that count for a job.
    pub(super) fn kind(&self, job: u64) -> Option<Kind> {
        self.watches.get(&job)?.kind()
    }

    /// Returns true if a job's new share belongs into its history: of one that follows windows only the first, the
    /// end, and what is half or twice as much as what was last written.
    pub(super) fn is_news(&mut self, job: u64, follows_windows: bool, share: Permille) -> bool {
        if !follows_windows {
            self.told.remove(&job);
            return true;
        }
        let is_news = self.told.get(&job).is_none_or(|told| share.0 >= 2 * told.0 || 2 * share.0 <= told.0);
        if is_news {
            self.told.insert(job, share);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_moves_with_every_window_is_told_when_it_is_half_or_twice() {
        let mut targets = Targets::default();
        let told: Vec<u32> = [200, 250, 300, 390, 400, 350, 210, 200, 1000]
            .into_iter()
            .filter(|share| targets.is_news(1, true, Permille(*share)))
            .collect();
        assert_eq!(told, [200, 400, 200, 1000]);
        assert!(targets.is_news(1, false, Permille(1000)), "the end");
        assert!(targets.is_news(1, true, Permille(1000)), "begins anew");
    }
}
