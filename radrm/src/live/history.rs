//! Readings of a run at earlier polls, what it held and launched: rates, and the past as a line.

use std::collections::VecDeque;
use std::time::Duration;

/// Polls that are kept.
const KEPT: usize = 600;

/// Growth is that of the last ten seconds: allocators take memory in leaps.
const GROWTH_OVER: Duration = Duration::from_secs(10);

/// Launches per second are those of the last two seconds.
const RATE_OVER: Duration = Duration::from_secs(2);

/// One poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Poll {
    /// Time of the poll, from an origin that all polls share.
    pub(super) at: Duration,
    /// Device memory that was held, bytes.
    pub(super) held: u64,
    /// Launches so far, of kernels and of graphs.
    pub(super) launches: u64,
}

/// The polls of a run, oldest first.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Poll>);

impl History {
    pub(super) fn add(&mut self, poll: Poll) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(poll);
    }

    /// The last poll, and the youngest that is at least `over` before it, or else the oldest.
    fn ends(&self, over: Duration) -> Option<(Poll, Poll)> {
        let last = *self.0.back()?;
        let before = self.0.iter().rev().find(|poll| last.at.saturating_sub(poll.at) >= over);
        let before = *before.or(self.0.front())?;
        (last.at > before.at).then_some((before, last))
    }

    /// Bytes per second by which the memory that is held grows; `None` before the second poll.
    pub(super) fn growth(&self) -> Option<f64> {
        let (before, last) = self.ends(GROWTH_OVER)?;
        Some((last.held as f64 - before.held as f64) / (last.at - before.at).as_secs_f64())
    }

    /// Launches per second; `None` before the second poll.
    pub(super) fn launch_rate(&self) -> Option<f64> {
        let (before, last) = self.ends(RATE_OVER)?;
        Some(last.launches.saturating_sub(before.launches) as f64 / (last.at - before.at).as_secs_f64())
    }

    /// Device memory that was held at the last `count` polls, bytes.
    pub(super) fn held(&self, count: usize) -> Vec<u64> {
        self.0.iter().skip(self.0.len().saturating_sub(count)).map(|poll| poll.held).collect()
    }

    /// Launches per second between each two of the last `count` polls.
    pub(super) fn launch_rates(&self, count: usize) -> Vec<u64> {
        let rates = self.0.iter().zip(self.0.iter().skip(1)).map(|(before, poll)| {
            let seconds = poll.at.saturating_sub(before.at).as_secs_f64().max(1e-3);
            (poll.launches.saturating_sub(before.launches) as f64 / seconds) as u64
        });
        let rates: Vec<u64> = rates.collect();
        rates[rates.len().saturating_sub(count)..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(polls: &[(u64, u64, u64)]) -> History {
        let mut history = History::default();
        for &(seconds, held, launches) in polls {
            history.add(Poll { at: Duration::from_secs(seconds), held, launches });
        }
        history
    }

    #[test]
    fn rates_are_those_of_their_time() {
        let one = history(&[(5, 100, 7)]);
        assert_eq!((one.growth(), one.launch_rate()), (None, None));
        let early = history(&[(0, 0, 0), (1, 100, 50)]);
        assert_eq!((early.growth(), early.launch_rate()), (Some(100.0), Some(50.0)));
        let long = history(&[(0, 9999, 0), (10, 100, 1000), (18, 100, 1000), (20, 50, 3000)]);
        assert_eq!((long.growth(), long.launch_rate()), (Some(-5.0), Some(1000.0)));
        assert_eq!(long.launch_rates(2), [0, 1000]);
        assert_eq!(long.held(3), [100, 100, 50]);
    }

    #[test]
    fn the_past_is_bounded() {
        let mut long = History::default();
        (0..5000).for_each(|at| long.add(Poll { at: Duration::from_secs(at), held: at, launches: 0 }));
        assert_eq!((long.held(usize::MAX).len(), long.held(1)), (KEPT, vec![4999]));
    }
}
