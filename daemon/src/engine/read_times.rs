//! Processor time for reading users' segments. Their jobs write there what they like, as tables that are all full; what
//! one user's jobs take is bounded, so that others get their answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use radrm_os::thread_time;

/// Time that a user's jobs may take at once. A job of 300 processes with 400 kernels each takes less.
const BURST: Duration = Duration::from_millis(200);
/// They may take one part of so many of a processor for long.
const PARTS: u32 = 10;

/// Time that was taken, by user.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(BTreeMap<u32, Taken>);

#[derive(Debug)]
struct Taken {
    time: Duration,
    at: Instant,
}

impl ReadTimes {
    /// Reads for a user: `read` gets the time that is left. `None` where none is: later there is some again.
    pub(super) fn read<T>(&mut self, uid: u32, now: Instant, read: impl FnOnce(Duration) -> T) -> Option<T> {
        let taken = self.0.entry(uid).or_insert(Taken { time: Duration::ZERO, at: now });
        taken.time = taken.time.saturating_sub(now.saturating_duration_since(taken.at) / PARTS);
        taken.at = now;
        let left = BURST.checked_sub(taken.time).filter(|left| !left.is_zero())?;
        let began = thread_time();
        let result = read(left);
        taken.time += thread_time().saturating_sub(began);
        Some(result)
    }

    /// Returns true if a reading that got so much time got most of what there ever is.
    pub(super) fn is_ample(left: Duration) -> bool {
        left > BURST / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(time: Duration) {
        let began = thread_time();
        while thread_time().saturating_sub(began) < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_user_who_has_taken_all_waits_and_others_do_not() {
        let (mut times, now) = (ReadTimes::default(), Instant::now());
        assert_eq!(times.read(1, now, |left| left), Some(BURST));
        times.read(1, now, |_| busy(2 * BURST)).unwrap();
        assert_eq!(times.read(1, now, |_| ()), None);
        assert_eq!(times.read(2, now, |left| left), Some(BURST));
        assert_eq!(times.read(1, now + BURST * (PARTS - 1), |_| ()), None, "what was too much is paid back");
        assert!(times.read(1, now + BURST * PARTS * 2, |_| ()).is_some());
    }
}
