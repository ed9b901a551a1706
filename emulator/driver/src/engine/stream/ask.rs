//! Questions about streams and events, where time is not real: whether work is done without waiting for it.
//!
//! The host's clock stands still between waits, so what was submitted after the last one is not done. Two bounds keep
//! programs going that never wait:
//!
//! * A stream takes [`QUEUE`] pieces of work that are not done. The next one waits for the first of them, as a launch
//!   does when the driver's queue is full.
//! * A thread that asks [`MAX_UNANSWERED`] times in a row and submits nothing meanwhile does nothing but wait: the clock
//!   moves to the moment that it asks for.
//!
//! A thread that never submitted work (a watchdog, a loader of data) asks at times of its own. It gets "done": its
//! answers must not depend on how fast the machine is, and must not move the clock of the others.
//!
//! All of this depends on the order of a thread's calls alone, so figures repeat.

use std::cell::Cell;

use crate::engine::stream::clock::{Clock, Moment};
use crate::engine::stream::state::Stream;

/// Pieces of work that a stream holds before the next one waits. A driver queues about a thousand, but its host needs some
/// microseconds for each: most have ended before the queue is full.
pub const QUEUE: usize = 32;
/// Questions in a row that are answered with "not done".
const MAX_UNANSWERED: u32 = 32;

thread_local! {
    /// Questions since the thread last submitted work; `None` before it ever did.
    static ASKED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Notes that the calling thread submits work.
pub fn submits() {
    ASKED.set(Some(0));
}

impl Clock {
    /// Answers a thread that asks whether a moment has come.
    pub fn answer(&mut self, moment: Moment) -> bool {
        let Ok(Some(asked)) = ASKED.try_with(Cell::get) else {
            return self.is_instant() || self.has_come(moment);
        };
        if self.has_come(moment) {
            return true;
        }
        if asked < MAX_UNANSWERED || !self.is_instant() {
            ASKED.set(Some(asked.saturating_add(1)));
            return false;
        }
        ASKED.set(Some(0));
        self.wait_until(moment).is_zero()
    }
}

impl Stream {
    /// Notes a piece of work that ends at `end_ns`; waits for an earlier one if there are too many.
    pub fn push_end(&mut self, clock: &mut Clock, end_ns: u64) {
        if !clock.is_instant() {
            return;
        }
        let now = clock.now(self.gpu);
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
        if self.ends.len() >= QUEUE
            && let Some(first) = self.ends.pop_front()
        {
            let _no_sleep = clock.wait_until(Moment { gpu: self.gpu, ns: first });
        }
        self.ends.push_back(end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Moment {
        Moment { gpu: 0, ns }
    }

    /// Each on a thread of its own: what a thread did before is part of the answer.
    fn on_a_thread(body: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(body).join().unwrap());
    }

    #[test]
    fn a_thread_that_submits_gets_modelled_time() {
        on_a_thread(|| {
            let mut clock = Clock::Instant(5);
            submits();
            assert!(!clock.answer(at(100)) && clock.answer(at(5)));
            let _no_sleep = clock.wait_until(at(100));
            assert!(clock.answer(at(100)));
        });
    }

    #[test]
    fn a_loop_of_questions_ends_and_moves_the_clock() {
        on_a_thread(|| {
            let mut clock = Clock::Instant(0);
            submits();
            let answers = (0..=MAX_UNANSWERED).filter(|_| clock.answer(at(1_000_000_000))).count();
            assert_eq!((answers, clock.now(0)), (1, 1_000_000_000));
            // Work in between begins the count anew.
            for _ in 0..3 * MAX_UNANSWERED {
                submits();
                assert!(!clock.answer(at(2_000_000_000)));
            }
        });
    }

    #[test]
    fn a_thread_without_work_changes_nothing() {
        on_a_thread(|| {
            let mut clock = Clock::Instant(0);
            assert!(clock.answer(at(100)));
            assert_eq!(clock.now(0), 0);
        });
    }
}
