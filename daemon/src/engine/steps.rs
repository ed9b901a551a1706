//! First optimizer steps that a running job was seen to make.

use std::time::{Duration, Instant};

use radrm_collector::dataset::FirstSteps as Kept;
use radrm_scheduler_core::early::Course;

/// Longest wait for contexts where GPUs are not polled.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Observed steps of a job.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Number of steps that it has made.
    pub(super) made: u32,
    /// Time at which enough of them were seen. Contexts are known from a poll of the GPUs that began later.
    since: Option<Instant>,
    /// Courses of earlier runs of its program, once they were read.
    pub(super) earlier: Option<Vec<Course>>,
    pub(super) reported: Reported,
    /// Memory that the job held after the first of them.
    pub(super) first: Option<Kept>,
}

/// Report on a job's steps that the scheduler has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reported {
    #[default]
    Nothing,
    /// Only that they were made: nothing says what follows.
    Made,
    /// Also why no more memory is to follow.
    Fixed,
}

impl Steps {
    /// Returns true if the step that bounds it is near: the job is polled often until then.
    pub(super) fn is_near(&self) -> bool {
        self.made > 0 && self.reported == Reported::Nothing
    }

    /// Returns true if what the job holds is read with its contexts: by a poll of the GPUs that began after its
    /// steps, or without one where none comes.
    pub(super) fn is_settled(&mut self, polled: Option<Instant>, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        polled.is_some_and(|begun| begun >= since) || now - since > MAX_WAIT
    }

    /// Forgets what was reported: it does not hold any more.
    pub(super) fn forget(&mut self) {
        self.reported = Reported::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_polled_often_until_its_steps_are_reported() {
        let near = |made, reported| Steps { made, reported, ..Steps::default() }.is_near();
        assert_eq!([0, 1, 3].map(|made| near(made, Reported::Nothing)), [false, true, true]);
        assert!(!near(3, Reported::Made) && !near(3, Reported::Fixed));
    }

    /// Without its contexts a job seems to grow, and its bound is too low at once.
    #[test]
    fn what_a_job_holds_is_read_after_a_poll_that_began_later() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut steps = Steps::default();
        assert!(!steps.is_settled(Some(at(0)), at(100)), "that poll began before");
        assert!(!steps.is_settled(Some(at(99)), at(200)));
        assert!(steps.is_settled(Some(at(100)), at(200)));
        let mut without = Steps::default();
        assert!(!without.is_settled(None, at(0)) && !without.is_settled(None, at(10_000)));
        assert!(without.is_settled(None, at(10_001)));
    }
}
