//! Answers to questions about waiting jobs that hold until the next event: a list of jobs asks the same for each of its rows.
//! Expected starts, which take longer to find, hold for a second however many events come.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use radrm_base::UserId;

use super::barred::Barred;
use crate::expected::ExpectedStart;
use crate::job::JobId;
use crate::queue::Place;
use crate::units::Millis;

/// The first job of a user behind which all later ones wait, and why it waits.
type BarringJob = Option<(Place, Barred)>;

/// Time for which expected starts are not searched again.
const KEPT: Millis = Millis::from_secs(1);

/// Answers since the last event.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    barring: BTreeMap<UserId, BarringJob>,
    /// The first job in order that its user's limits let start.
    first: Option<Option<JobId>>,
    /// Expected starts of the first jobs in order, and when they were found.
    starts: Option<(Millis, BTreeMap<JobId, ExpectedStart>)>,
}

impl Clone for Answers {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Answers {
    /// An event changes what is known.
    pub(super) fn forget(&mut self) {
        let known = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        *known = Known { starts: known.starts.take(), ..Known::default() };
    }

    /// Answer for a user, which `find` gives where it is not known.
    pub(super) fn barring_job(&self, user: UserId, find: impl FnOnce() -> BarringJob) -> BarringJob {
        self.known().barring.entry(user).or_insert_with(find).clone()
    }

    /// The first job in order that its user's limits let start, which `find` gives where it is not known.
    pub(super) fn first_job(&self, find: impl FnOnce() -> Option<JobId>) -> Option<JobId> {
        *self.known().first.get_or_insert_with(find)
    }

    /// Expected start of a job, of those that `find` gives where they are not known.
    pub(super) fn expected_start(
        &self,
        job: JobId,
        now: Millis,
        find: impl FnOnce() -> BTreeMap<JobId, ExpectedStart>,
    ) -> Option<ExpectedStart> {
        let mut known = self.known();
        let fresh = known.starts.take().filter(|(at, _)| now < at.plus(KEPT));
        let (_, starts) = known.starts.insert(fresh.unwrap_or_else(|| (now, find())));
        starts.get(&job).copied()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_searched_once_between_two_events() {
        let mut answers = Answers::default();
        let mut searches = 0;
        for _ in 0..3 {
            for user in [1, 2] {
                let found = answers.barring_job(UserId(user), || {
                    searches += 1;
                    None
                });
                assert!(found.is_none());
            }
            assert_eq!(answers.first_job(|| Some(JobId(7))), Some(JobId(7)));
        }
        assert_eq!(searches, 2);
        assert_eq!(answers.first_job(|| None), Some(JobId(7)));
        answers.forget();
        assert_eq!(answers.first_job(|| None), None);
    }

    #[test]
    fn expected_starts_are_searched_once_in_a_second_however_many_events_come() {
        let mut answers = Answers::default();
        let mut searches = 0;
        for now in (0..2500).step_by(100).map(Millis) {
            answers.forget();
            let found = answers.expected_start(JobId(7), now, || {
                searches += 1;
                BTreeMap::from([(JobId(7), ExpectedStart::Unplanned)])
            });
            assert_eq!(found, Some(ExpectedStart::Unplanned));
        }
        assert_eq!(searches, 3);
    }
}
