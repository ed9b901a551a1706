//! Activity of programs by their running jobs: what is assumed of a job of which nothing is known gives way to it.

use std::collections::BTreeMap;

use radrm_base::UserId;

use crate::interference::{Activity, Program};
use crate::job::JobId;
use crate::units::Permille;

/// As many programs without a running job are kept.
const MAX_IDLE_PROGRAMS: usize = 4096;
/// A smaller change decides nothing.
const MIN_CHANGE: u32 = 20;
/// Jobs of a program that may run for each that was seen: what a few do in their first seconds does not let all others in.
const JOBS_OF_ONE_SEEN: usize = 2;

/// A program of a user on a GPU model. No user's jobs decide what is taken of another user's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) user: UserId,
    pub(super) program: Program,
    pub(super) model: String,
}

/// Jobs of a program that run, and what was seen of them.
#[derive(Clone, Debug, Default)]
struct OfProgram {
    running: BTreeMap<JobId, Option<Activity>>,
    /// The highest of those that ran when one of them was seen last, and their number.
    seen: Option<(Activity, usize)>,
    /// Number of the change after which no job of it ran.
    idle_since: u64,
}

impl OfProgram {
    fn takes_newcomers(&self) -> bool {
        self.seen.is_some_and(|(_, jobs)| self.running.len() < JOBS_OF_ONE_SEEN * jobs)
    }
}

/// Activity of programs, by their running jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    all: BTreeMap<Key, OfProgram>,
    changes: u64,
}

impl Programs {
    /// Activity of the next job of a program: the highest of its running jobs that were seen, as long as not twice as many run.
    pub(super) fn of(&self, key: &Key) -> Option<Activity> {
        let of = self.all.get(key).filter(|of| of.takes_newcomers())?;
        of.seen.map(|(activity, _)| activity)
    }

    /// A job of a program runs.
    pub(super) fn begin(&mut self, key: Key, job: JobId) {
        self.all.entry(key).or_default().running.entry(job).or_default();
    }

    /// A job of a program runs no more. Returns true if others of it may take its activity again.
    pub(super) fn end(&mut self, key: &Key, job: JobId) -> bool {
        self.changes += 1;
        let Some(of) = self.all.get_mut(key) else { return false };
        let before = of.takes_newcomers();
        of.running.remove(&job);
        let is_news = of.takes_newcomers() && !before;
        if of.running.is_empty() {
            of.idle_since = self.changes;
            match of.seen {
                Some(_) => self.forget_oldest(),
                None => drop(self.all.remove(key)),
            }
        }
        is_news
    }

    /// A running job of a program was seen to do this. Returns true if that is news for others of it.
    pub(super) fn observe(&mut self, key: &Key, job: JobId, seen: Activity) -> bool {
        let Some(of) = self.all.get_mut(key) else { return false };
        of.running.insert(job, Some(seen));
        let (mut highest, mut jobs) = (Activity::default(), 0);
        for seen in of.running.values().copied().flatten() {
            highest.smact = highest.smact.max(seen.smact);
            highest.smocc = highest.smocc.max(seen.smocc);
            highest.drama = highest.drama.max(seen.drama);
            jobs += 1;
        }
        let moved = |a: Permille, b: Permille| a.0.abs_diff(b.0) >= MIN_CHANGE;
        let Some((activity, of_jobs)) = of.seen.as_mut() else {
            of.seen = Some((highest, jobs));
            return true;
        };
        let has_moved = moved(activity.smact, highest.smact) || moved(activity.drama, highest.drama);
        let are_more = jobs > *of_jobs;
        if has_moved {
            *activity = highest;
        }
        *of_jobs = jobs;
        has_moved || are_more
    }

    fn forget_oldest(&mut self) {
        let idle = || self.all.iter().filter(|(_, of)| of.running.is_empty());
        if self.all.len() > MAX_IDLE_PROGRAMS && idle().count() > MAX_IDLE_PROGRAMS {
            let oldest = idle().min_by_key(|(_, of)| of.idle_since).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.all.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(program: u64) -> Key {
        Key { user: UserId(1), program: Program(program), model: "A".to_owned() }
    }

    fn seen(smact: u32) -> Activity {
        Activity { smact: Permille(smact), ..Activity::default() }
    }

    /// The activity of the program's next job.
    fn next(programs: &Programs) -> Option<u32> {
        programs.of(&key(1)).map(|seen| seen.smact.0)
    }

    #[test]
    fn the_programs_that_ran_last_are_kept() {
        let mut programs = Programs::default();
        // The smallest numbers end last.
        let all = MAX_IDLE_PROGRAMS as u64 + 100;
        for program in (0..all).rev() {
            programs.begin(key(program), JobId(program));
            assert!(programs.observe(&key(program), JobId(program), seen(100)));
            programs.end(&key(program), JobId(program));
        }
        assert_eq!(programs.all.len(), MAX_IDLE_PROGRAMS);
        assert!(programs.of(&key(0)).is_some() && programs.of(&key(all - 1)).is_none());
    }

    #[test]
    fn programs_of_which_nothing_was_seen_leave_nothing() {
        let mut programs = Programs::default();
        programs.begin(key(1), JobId(1));
        programs.end(&key(1), JobId(1));
        assert!(programs.all.is_empty());
    }

    #[test]
    fn as_many_newcomers_as_were_seen_take_the_activity() {
        let mut programs = Programs::default();
        [1, 2].into_iter().for_each(|job| programs.begin(key(1), JobId(job)));
        assert!(programs.observe(&key(1), JobId(1), seen(8)));
        assert_eq!(next(&programs), None, "two run, and one was seen");
        assert!(programs.observe(&key(1), JobId(2), seen(8)), "more may come");
        assert!(!programs.observe(&key(1), JobId(2), seen(9)));
        for job in [3, 4] {
            assert_eq!(next(&programs), Some(8));
            programs.begin(key(1), JobId(job));
        }
        assert_eq!(next(&programs), None);
        assert!(programs.end(&key(1), JobId(3)), "another may take its place");
        assert!(next(&programs).is_some() && !programs.end(&key(1), JobId(4)));
    }

    #[test]
    fn the_highest_of_the_running_jobs_counts() {
        let mut programs = Programs::default();
        [1, 2, 3].into_iter().for_each(|job| programs.begin(key(1), JobId(job)));
        assert!(programs.observe(&key(1), JobId(1), seen(600)));
        assert!(programs.observe(&key(1), JobId(2), seen(8)), "one more was seen");
        for (job, smact) in [(1, 600), (2, 8), (1, 600), (2, 8)] {
            assert!(!programs.observe(&key(1), JobId(job), seen(smact)));
        }
        assert_eq!(next(&programs), Some(600));
        programs.end(&key(1), JobId(1));
        assert_eq!(next(&programs), Some(600), "nothing new was seen of the others");
        programs.end(&key(1), JobId(3));
        assert!(programs.observe(&key(1), JobId(2), seen(8)));
        assert_eq!(next(&programs), Some(8));
    }
}
