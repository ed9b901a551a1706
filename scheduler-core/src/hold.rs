//! Hold of launches for a request of the job beside them: while one is under way, and never for ever.
//!
//! Two bounds, so that what a job's program reports cannot stop its neighbours:
//!
//! * one hold lasts for at most `longest`, whatever begins meanwhile;
//! * each nanosecond of a hold is paid for by `floor / (1 - floor)` of time without one before the next begins.
//!
//! So of any stretch of time the launches are free for `floor` of it, less one hold: `open >= floor * time - longest`.
//!
//! ```text
//!            request      request
//!          |---------|  |---------|
//! held     [=========]--..[=======]     -- the time that is owed
//! ```

use crate::units::Permille;

/// The longest hold of all, ns: what waits longer for a request runs into the time that programs wait for a kernel.
pub const MAX_HOLD_NS: u64 = 1_000_000_000;

/// The holds for one job. Times are ns of one clock.
#[derive(Clone, Debug)]
pub struct RequestHold {
    longest: u64,
    floor: u64,
    /// Up to when what follows was added up.
    at: u64,
    /// The hold that is under way: when it began, and when it ends.
    now: Option<(u64, u64)>,
    /// Time without a hold that must pass before the next one.
    owed: u64,
}

impl RequestHold {
    /// No hold yet. `limit_ns`: how long a request is to take; `floor`: the part of the time that is never held.
    #[must_use]
    pub fn new(limit_ns: u64, floor: Permille, now: u64) -> Self {
        let floor = u64::from(floor.0.clamp(1, 999));
        Self { longest: limit_ns.clamp(1, MAX_HOLD_NS), floor, at: now, now: None, owed: 0 }
    }

    /// Adds up the time since the last call.
    fn pass(&mut self, now: u64) {
        let now = now.max(self.at);
        let held = self.now.map_or(0, |(_, until)| until.min(now).saturating_sub(self.at));
        let open = now - self.at - held;
        self.owed = (self.owed + (held * self.floor).div_ceil(1000 - self.floor)).saturating_sub(open);
        self.at = now;
        if self.now.is_some_and(|(_, until)| until <= now) {
            self.now = None;
        }
    }

    /// Until when launches wait, given when the latest request that is under way began; 0: they do not wait. A request
    /// that is late already holds no launch.
    #[must_use]
    pub fn until(&mut self, now: u64, request: Option<u64>) -> u64 {
        self.pass(now);
        let now = self.at;
        let due = request.map(|began| began.saturating_add(self.longest)).filter(|due| *due > now);
        self.now = match (due, self.now) {
            (None, _) => None,
            (Some(due), Some((began, _))) => Some((began, due.min(began.saturating_add(self.longest)))),
            (Some(due), None) if self.owed == 0 => Some((now, due.min(now.saturating_add(self.longest)))),
            (Some(_), None) => None,
        };
        self.now.map_or(0, |(_, until)| until)
    }

    /// Time after which a request that is under way may be waited for, though it is not now; 0: no time has to pass.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn hold() -> RequestHold {
        RequestHold::new(20 * MS, Permille(50), 1000 * MS)
    }

    #[test]
    fn launches_wait_from_a_requests_begin_to_its_end() {
        let mut hold = hold();
        assert_eq!(hold.until(1000 * MS, None), 0);
        assert_eq!(hold.until(1040 * MS, Some(1040 * MS)), 1060 * MS);
        assert_eq!(hold.until(1050 * MS, None), 0);
        assert_eq!(hold.until(1080 * MS, Some(1080 * MS)), 1100 * MS);
    }

    #[test]
    fn a_request_that_hangs_holds_for_one_limit() {
        let mut hold = hold();
        assert_eq!(hold.until(1000 * MS, Some(1000 * MS)), 1020 * MS);
        assert_eq!(hold.until(1020 * MS, Some(1000 * MS)), 0);
        for ms in 1021..3000 {
            assert_eq!(hold.until(ms * MS, Some(1000 * MS)), 0);
        }
    }

    #[test]
    fn a_request_right_behind_another_waits_for_what_is_owed() {
        let mut hold = hold();
        let _ = hold.until(1000 * MS, Some(1000 * MS));
        assert_eq!(hold.until(1019 * MS, Some(1019 * MS)), 1020 * MS, "one hold, whatever begins");
        assert_eq!(hold.until(1020 * MS, Some(1019 * MS)), 0);
        assert!((MS..=2 * MS).contains(&hold.owed()), "{}", hold.owed());
        let later = 1020 * MS + hold.owed();
        assert_eq!(hold.until(later, Some(1019 * MS)), 1039 * MS);
    }

    proptest! {
        /// Whatever a program reports, and whenever the daemon gets to run.
        #[test]
        fn launches_are_free_for_the_floor(
            floor in 1..=500u32,
            limit in 1..50u64,
            steps in prop::collection::vec((1..20_000u64, 0..30_000u64, any::<bool>()), 1..300),
        ) {
            let (limit, begin) = (limit * MS, 1_000 * MS);
            let mut hold = RequestHold::new(limit, Permille(floor), begin);
            let (mut now, mut open, mut until) = (begin, 0, 0u64);
            for (step, ago, is_asked) in steps {
                let next = now + step * 1000;
                open += next - until.clamp(now, next);
                now = next;
                let request = is_asked.then(|| now.saturating_sub(ago * 1000));
                until = hold.until(now, request);
                prop_assert!(until == 0 || (now..=now + limit).contains(&until));
            }
            let least = (now - begin) as f64 * f64::from(floor) / 1000.0 - limit as f64;
            prop_assert!(open as f64 >= least, "{open} of {}", now - begin);
        }

        #[test]
        fn requests_with_pauses_are_held_for_whole(took in 1..15u64, pause in 2..30u64) {
            let (mut hold, mut now) = (hold(), 1000 * MS);
            for _ in 0..50 {
                prop_assert_eq!(hold.until(now, Some(now)), now + 20 * MS);
                now += took * MS;
                prop_assert_eq!(hold.until(now, None), 0);
                now += pause * MS;
            }
        }
    }
}
