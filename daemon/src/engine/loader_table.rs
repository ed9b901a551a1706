//! Loaders that jobs use, and when a producer that died is started again.

use std::collections::{BTreeMap, BTreeSet};

use radrm_scheduler_core::{Outcome, Verdict};

/// A producer that died is started again after this time, after twice that, and so on.
const FIRST_DELAY_MS: u64 = 1000;

/// The longest such time.
const MAX_DELAY_MS: u64 = 60_000;

/// A user and the name of a loader.
pub(super) type Key = (u32, String);

/// Loaders in use.
#[derive(Debug, Default)]
pub(super) struct Loaders {
    /// Loaders that a job uses or a producer serves.
    pub(super) used: BTreeSet<Key>,
    /// Time at which the producer of a loader that has none is to be started, ms since 1970; `None`: not again.
    pub(super) due: BTreeMap<Key, Option<u64>>,
}

/// The jobs of a loader that are not over.
#[derive(Default)]
pub(super) struct Members {
    /// Numbers of those that were started, in order.
    pub(super) consumers: Vec<u64>,
    pub(super) producer: Option<u64>,
}

/// Time at which a producer is to be started, by how earlier ones ended, ms since 1970; `None`: not again.
///
/// `began`: when each job that uses it was started. `ends`: how and when producers ended.
pub(super) fn due(began: &[u64], ends: &[(u64, Option<Verdict>)], now: u64) -> Option<u64> {
    let first = began.iter().min().copied().unwrap_or(now);
    let last = began.iter().max().copied().unwrap_or(now);
    // What ended before the first of these jobs was another one's.
    let ends: Vec<_> = ends.iter().filter(|(at, _)| *at >= first).collect();
    let Some(latest) = ends.iter().map(|(at, _)| *at).max() else { return Some(now) };
    let is_done = |(at, verdict): &&&(u64, Option<Verdict>)| {
        *at >= last && matches!(verdict, Some(Verdict::Ended(Outcome::Exited { code: 0 })))
    };
    if ends.iter().any(|end| is_done(&end)) {
        return None;
    }
    let doublings = u32::try_from(ends.len() - 1).unwrap_or(u32::MAX).min(16);
    Some(latest + (FIRST_DELAY_MS << doublings).min(MAX_DELAY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIED: Option<Verdict> = Some(Verdict::Ended(Outcome::Signalled { signal: 9 }));
    const DONE: Option<Verdict> = Some(Verdict::Ended(Outcome::Exited { code: 0 }));

    #[test]
    fn a_producer_that_died_is_started_again_later_and_later() {
        assert_eq!(due(&[100], &[], 500), Some(500));
        assert_eq!(due(&[100], &[(50, DONE), (90, DIED)], 500), Some(500), "of other jobs");
        let mut ends = Vec::new();
        for delay in [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            ends.push((200 + ends.len() as u64, DIED));
            assert_eq!(due(&[100, 150], &ends, 500), Some(199 + ends.len() as u64 + delay));
        }
        assert_eq!(due(&[100], &[(200, Some(Verdict::Cancelled))], 500), Some(1200));
    }

    #[test]
    fn a_producer_that_is_done_is_started_again_for_a_new_job_only() {
        assert_eq!(due(&[100, 150], &[(200, DONE)], 500), None);
        assert_eq!(due(&[100, 150, 201], &[(200, DONE)], 500), Some(1200));
        assert_eq!(due(&[201], &[(200, DONE)], 500), Some(500));
    }
}
