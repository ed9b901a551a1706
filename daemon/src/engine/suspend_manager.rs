//! Jobs between running and suspended: what a helper's answer means, and what is tried again when.
//!
//! It has no processes and no database: answers go in, what follows comes out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use radrm_scheduler_core::SuspendRefusal;

use crate::suspend::{Answer, ByGpu, Saved, Step};

/// A job that has to come back and does not is tried again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// After so many helpers that ended without an answer the job is lost.
const MAX_RETRIES: u32 = 60;

/// A helper's end without an answer, in words.
const NO_ANSWER: &str = "the helper ended without an answer";

/// Consequence of a helper's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All its processes are checkpointed.
    Suspended { processes: Vec<Saved>, bytes: ByGpu },
    /// It was not suspended and runs as before.
    RunsOn { refusal: SuspendRefusal, sentence: String },
    /// The unfinished step is undone.
    Undo { sentence: String },
    /// It is still suspended and whole.
    StillSuspended { sentence: String },
    /// It runs again; `suspend`: it is to be suspended once more, as that was only interrupted.
    Back { suspend: bool },
    /// It is tried again later.
    Retry { sentence: String },
    /// Some of it can never run again.
    Lost { sentence: String },
    /// The answer belongs to another step.
    Nothing,
}

#[derive(Debug, Default)]
struct Transit {
    /// Answer that the scheduler has on whether it can be suspended.
    known: Option<Result<(), SuspendRefusal>>,
    /// A helper is at it.
    busy: bool,
    /// It is to be suspended as soon as what was left half way is undone.
    wanted: bool,
    /// Helpers that ended without an answer.
    tries: u32,
    /// The next try.
    again: Option<Instant>,
}

/// The transits of all jobs that run.
#[derive(Debug, Default)]
pub(super) struct SuspendManager {
    jobs: BTreeMap<u64, Transit>,
}

impl SuspendManager {
    /// A job's attempt has ended.
    pub(super) fn forget(&mut self, job: u64) {
        self.jobs.remove(&job);
    }

    /// Returns true if the scheduler has another answer, or none, on whether the job can be suspended. It knows it
    /// then.
    pub(super) fn is_news(&mut self, job: u64, known: Result<(), SuspendRefusal>) -> bool {
        self.jobs.entry(job).or_default().known.replace(known) != Some(known)
    }

    /// Returns true if nothing is known yet of what the job uses.
    pub(super) fn is_unknown(&self, job: u64) -> bool {
        let known = self.jobs.get(&job).and_then(|transit| transit.known);
        matches!(known, None | Some(Err(SuspendRefusal::NoShim)))
    }

    /// A helper begins.
    pub(super) fn begin(&mut self, job: u64) {
        let transit = self.jobs.entry(job).or_default();
        (transit.busy, transit.again) = (true, None);
    }

    /// It is to be suspended as soon as it is back.
    pub(super) fn want(&mut self, job: u64) {
        self.jobs.entry(job).or_default().wanted = true;
    }

    /// A job that came back ends its transit.
    pub(super) fn settle(&mut self, job: u64) {
        self.jobs.entry(job).or_default().tries = 0;
    }

    /// Jobs that are tried again now.
    pub(super) fn due(&self, now: Instant) -> Vec<u64> {
        let is_due = |transit: &Transit| !transit.busy && transit.again.is_some_and(|at| at <= now);
        self.jobs.iter().filter(|(_, transit)| is_due(transit)).map(|(job, _)| *job).collect()
    }

    /// A helper ended at this step; `None`: without an answer.
    pub(super) fn answer(&mut self, job: u64, step: Step, answer: Option<Answer>, now: Instant) -> Outcome {
        let transit = self.jobs.entry(job).or_default();
        transit.busy = false;
        match (step, answer) {
            (_, Some(Answer::Lost { sentence })) => Outcome::Lost { sentence },
            (Step::Suspending, Some(Answer::Suspended { processes, bytes })) => {
                Outcome::Suspended { processes, bytes }
            }
            (Step::Suspending, Some(Answer::Refused { refusal, sentence })) => {
                Outcome::RunsOn { refusal, sentence }
            }
            (Step::Suspending, None) => {
                // Whatever ended the helper may have been chance: once more, from the beginning.
                transit.wanted = transit.tries == 0;
                transit.tries += 1;
                Outcome::Undo { sentence: NO_ANSWER.to_owned() }
            }
            (Step::Resuming, Some(Answer::NoRoom { sentence })) => Outcome::StillSuspended { sentence },
            (Step::Resuming | Step::Undoing, Some(Answer::Resumed)) => {
                Outcome::Back { suspend: std::mem::take(&mut transit.wanted) }
            }
            // The scheduler takes it for running: without room it waits as long as it takes.
            (Step::Undoing, Some(Answer::NoRoom { sentence })) => {
                transit.again = Some(now + RETRY_INTERVAL);
                Outcome::Retry { sentence }
            }
            (Step::Resuming | Step::Undoing, None) => {
                transit.tries += 1;
                let sentence = NO_ANSWER.to_owned();
                if transit.tries >= MAX_RETRIES {
                    return Outcome::Lost { sentence };
                }
                transit.again = Some(now + RETRY_INTERVAL);
                Outcome::Retry { sentence }
            }
            _ => Outcome::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence() -> String {
        "why".to_owned()
    }

    fn no_answer() -> String {
        NO_ANSWER.to_owned()
    }

    #[test]
    fn each_answer_has_one_outcome_at_its_step() {
        let now = Instant::now();
        let refusal = SuspendRefusal::Ipc;
        let refused = || Some(Answer::Refused { refusal, sentence: sentence() });
        let suspended = || Some(Answer::Suspended { processes: Vec::new(), bytes: ByGpu::new() });
        let no_room = || Some(Answer::NoRoom { sentence: sentence() });
        let lost = || Some(Answer::Lost { sentence: sentence() });
        for (step, answer, outcome) in [
            (
                Step::Suspending,
                suspended(),
                Outcome::Suspended { processes: Vec::new(), bytes: ByGpu::new() },
            ),
            (Step::Suspending, refused(), Outcome::RunsOn { refusal, sentence: sentence() }),
            (Step::Suspending, None, Outcome::Undo { sentence: no_answer() }),
            (Step::Suspending, lost(), Outcome::Lost { sentence: sentence() }),
            (Step::Resuming, no_room(), Outcome::StillSuspended { sentence: sentence() }),
            (Step::Resuming, Some(Answer::Resumed), Outcome::Back { suspend: false }),
            (Step::Resuming, None, Outcome::Retry { sentence: no_answer() }),
            (Step::Undoing, Some(Answer::Resumed), Outcome::Back { suspend: false }),
            (Step::Undoing, no_room(), Outcome::Retry { sentence: sentence() }),
            (Step::Undoing, lost(), Outcome::Lost { sentence: sentence() }),
            (Step::Running, suspended(), Outcome::Nothing),
            (Step::Suspended, Some(Answer::Resumed), Outcome::Nothing),
        ] {
            let mut manager = SuspendManager::default();
            manager.begin(7);
            assert_eq!(manager.answer(7, step, answer.clone(), now), outcome, "{step:?} {answer:?}");
        }
    }

    #[test]
    fn an_interrupted_suspension_is_tried_once_more() {
        let now = Instant::now();
        let mut manager = SuspendManager::default();
        for again in [true, false] {
            manager.begin(7);
            assert!(matches!(manager.answer(7, Step::Suspending, None, now), Outcome::Undo { .. }));
            manager.begin(7);
            let back = manager.answer(7, Step::Undoing, Some(Answer::Resumed), now);
            assert_eq!(back, Outcome::Back { suspend: again });
        }
    }

    #[test]
    fn what_does_not_come_back_is_lost_after_bounded_retries() {
        let mut now = Instant::now();
        let mut manager = SuspendManager::default();
        manager.begin(7);
        for _ in 1..MAX_RETRIES {
            assert!(manager.due(now).is_empty(), "a helper is at it");
            assert!(matches!(manager.answer(7, Step::Resuming, None, now), Outcome::Retry { .. }));
            assert!(manager.due(now).is_empty(), "not yet");
            now += RETRY_INTERVAL;
            assert_eq!(manager.due(now), [7]);
            manager.begin(7);
        }
        assert!(matches!(manager.answer(7, Step::Resuming, None, now), Outcome::Lost { .. }));
        manager.settle(7);
        manager.begin(7);
        assert!(matches!(manager.answer(7, Step::Resuming, None, now), Outcome::Retry { .. }));
        manager.forget(7);
        assert!(manager.due(now + RETRY_INTERVAL).is_empty());
    }

    #[test]
    fn without_room_it_is_never_lost() {
        let now = Instant::now();
        let mut manager = SuspendManager::default();
        for _ in 0..MAX_RETRIES * 2 {
            manager.begin(7);
            let answer = Some(Answer::NoRoom { sentence: sentence() });
            assert!(matches!(manager.answer(7, Step::Undoing, answer, now), Outcome::Retry { .. }));
        }
    }

    #[test]
    fn the_scheduler_hears_of_a_refusal_once() {
        let mut manager = SuspendManager::default();
        assert!(manager.is_unknown(7));
        assert!(manager.is_news(7, Err(SuspendRefusal::NoShim)));
        assert!(manager.is_unknown(7) && !manager.is_news(7, Err(SuspendRefusal::NoShim)));
        assert!(manager.is_news(7, Ok(())) && !manager.is_unknown(7));
    }
}
