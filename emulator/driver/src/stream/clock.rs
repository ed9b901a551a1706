//! Virtual time.
//!
//! Every stream has a clock: the moment at which the work that it was given will be done. The host
//! has one too. Both count nanoseconds since the driver was made. Work starts when its stream and
//! everything that it depends on are done, but not before the host asked for it; waiting for a
//! stream brings the host's clock up to the stream's.
//!
//! * `instant` (default): the host's clock moves only by waiting. A program runs as fast as it can;
//!   what it measures with events is the sum of the modelled durations, the same in every run.
//! * `real` (`RADRM_EMULATOR_TIME=real`): the host's clock is the wall clock; waiting sleeps.

use std::time::{Duration, Instant};

/// The host's clock.
#[derive(Debug)]
pub enum Clock {
    /// Moves by waiting only (ns).
    Instant(u64),
    /// The wall clock since this moment.
    Real(Instant),
}

impl Clock {
    /// The clock that the environment asks for.
    pub fn from_environment() -> Self {
        match std::env::var("RADRM_EMULATOR_TIME").as_deref() {
            Ok("real") => Self::Real(Instant::now()),
            _ => Self::Instant(0),
        }
    }

    /// Now (ns).
    pub fn now(&self) -> u64 {
        match self {
            Self::Instant(now) => *now,
            Self::Real(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Whether a moment has come. It always has where waiting takes no time.
    pub fn has_come(&self, moment: u64) -> bool {
        match self {
            Self::Instant(_) => true,
            Self::Real(_) => moment <= self.now(),
        }
    }

    /// Waits until a moment: gives the time that the caller has to sleep.
    #[must_use]
    pub fn wait_until(&mut self, moment: u64) -> Duration {
        match self {
            Self::Instant(now) => {
                *now = (*now).max(moment);
                Duration::ZERO
            }
            Self::Real(_) => Duration::from_nanos(moment.saturating_sub(self.now())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_clock_moves_by_waiting_only() {
        let mut clock = Clock::Instant(5);
        assert!(clock.has_come(100));
        assert_eq!((clock.wait_until(100), clock.now()), (Duration::ZERO, 100));
        assert_eq!((clock.wait_until(50), clock.now()), (Duration::ZERO, 100));
    }

    #[test]
    fn a_real_clock_says_how_long_to_sleep() {
        let mut clock = Clock::Real(Instant::now());
        let far = clock.now() + 3_600_000_000_000;
        assert!(!clock.has_come(far) && clock.has_come(0));
        assert!(clock.wait_until(far) > Duration::from_secs(3000));
    }
}
