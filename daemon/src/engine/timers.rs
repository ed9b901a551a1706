//! All deadlines of the engine, in one table.

use std::time::{Duration, Instant};

/// Task that is done again and again, or once more later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Polling jobs.
    Poll,
    /// Observing jobs with targets.
    Targets,
    /// Reading the host's counters of jobs' processes.
    HostPoll,
    /// Writing figures that may be lost.
    Save,
    /// The search for ended jobs to forget.
    Clean,
    /// The search for users who have more of them than are kept.
    Excess,
    /// Trying again to write what could not be written.
    Retry,
}

const COUNT: usize = 7;

/// Deadline of each timer. One that was never set is due at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers([Option<Instant>; COUNT]);

impl Timers {
    /// Due this long after now.
    pub(super) fn set(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.0[timer as usize] = Some(now + after);
    }

    /// Due at once.
    pub(super) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(super) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.left(timer, now).is_zero()
    }

    /// Time until it is due.
    pub(super) fn left(&self, timer: Timer, now: Instant) -> Duration {
        self.0[timer as usize].map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_from_its_deadline_on() {
        let now = Instant::now();
        let mut timers = Timers::default();
        assert!(timers.is_due(Timer::Clean, now), "never set");
        timers.set(Timer::Clean, now, Duration::from_secs(5));
        assert_eq!(timers.left(Timer::Clean, now + Duration::from_secs(2)), Duration::from_secs(3));
        assert!(!timers.is_due(Timer::Clean, now + Duration::from_secs(4)));
        assert!(timers.is_due(Timer::Clean, now + Duration::from_secs(5)));
        assert!(timers.is_due(Timer::Poll, now), "others are not concerned");
        timers.clear(Timer::Clean);
        assert!(timers.is_due(Timer::Clean, now));
    }
}
