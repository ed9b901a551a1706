//! Verdict on a launch: whether it may go now.

use core::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use super::Throttle;
use super::flight::Flight;
use super::table::Context;
use crate::cx::Cx;
use crate::telemetry::budget::{Budget, LaunchSlots};

/// Time without any work done after which a launch does not wait for it any longer (ns), or so many times the
/// longest that there has been between two pieces of work.
pub(super) const PATIENCE_NS: u64 = 1_000_000_000;
pub(super) const PATIENCE_TIMES: u64 = 4;

/// Verdict on a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Now.
    Go,
    /// Not before this moment.
    At(u64),
    /// Not under this budget.
    Never,
    /// Not before work that is under way is done.
    Busy {
        /// True if the launch slot that the work belongs to is over.
        is_late: bool,
    },
}

impl Throttle {
    /// The verdict at `now`. Going is noted.
    pub(super) fn verdict(
        &self,
        cx: &Cx<'_>,
        stream: CUstream,
        price: u64,
        budget: Budget,
        word: u64,
        now: u64,
    ) -> Verdict {
        let slots = budget.launch_slots();
        let Some(context) = self.context(cx) else {
            // Without a context of its own a launch will fail; with one too many only the clock decides.
            return by_clock(slots, now, 0);
        };
        context.adopt(word, slots, now);
        let most = u64::from(budget.in_flight);
        let in_flight = context.in_flight();
        // Only where it matters: a query calls the driver.
        let is_over = context.end.load(Relaxed) <= now;
        let is_full = most > 0 && in_flight + price.min(most) > most;
        if is_full {
            // Launches without an event of their own behind them would never be seen to be done.
            context.close(cx, stream);
        }
        let flight = match is_over || is_full {
            true => context.query(cx, now),
            false => Flight { launches: in_flight, is_stuck: false },
        };
        if is_over && let Some(verdict) = context.settle(cx, stream, slots, flight, now) {
            return verdict;
        }
        let verdict = by_clock(slots, now, context.due.load(Relaxed));
        if verdict != Verdict::Go {
            return verdict;
        }
        if most > 0 && flight.launches + price.min(most) > most && !flight.is_stuck {
            return Verdict::Busy { is_late: false };
        }
        context.goes(cx, stream, slots, now);
        Verdict::Go
    }
}

fn by_clock(slots: LaunchSlots, now: u64, due: u64) -> Verdict {
    match slots.next(now, due) {
        _ if slots.is_whole() => Verdict::Go,
        Some(moment) if moment <= now => Verdict::Go,
        Some(moment) => Verdict::At(moment),
        None => Verdict::Never,
    }
}

/// A launch slot that never ends, or none whose end is to be settled.
pub(super) const NO_END: u64 = u64::MAX;

impl Context {
    /// Takes up another budget: what is owed stays owed, in own time.
    fn adopt(&self, word: u64, slots: LaunchSlots, now: u64) {
        let before = self.word.swap(word, Relaxed);
        if before == word {
            return;
        }
        let owed = Budget::from_word(before)
            .map_or(0, |before| self.due.load(Relaxed).saturating_sub(before.launch_slots().own_time(now)));
        self.due.store(slots.own_time(now).saturating_add(owed), Relaxed);
        // What is under way belongs to the launch slot that is now.
        let is_flying = self.in_flight() > 0;
        self.end.store(if is_flying { end(slots, now) } else { NO_END }, Relaxed);
    }

    /// The launch slot of what was launched last is over: what went on after its end is owed. A verdict while it
    /// goes on.
    fn settle(
        &self,
        cx: &Cx<'_>,
        stream: CUstream,
        slots: LaunchSlots,
        flight: Flight,
        now: u64,
    ) -> Option<Verdict> {
        let over = self.end.load(Relaxed);
        if flight.launches > 0 {
            // What no event stands behind yet would not be seen.
            self.close(cx, stream);
            if !flight.is_stuck {
                return Some(Verdict::Busy { is_late: true });
            }
        }
        let done = if flight.launches > 0 { now } else { self.done.load(Relaxed) };
        self.due.fetch_max(slots.due(over, done.max(over)), Relaxed);
        self.end.store(if flight.launches > 0 { now } else { NO_END }, Relaxed);
        None
    }

    /// A launch goes.
    fn goes(&self, cx: &Cx<'_>, stream: CUstream, slots: LaunchSlots, now: u64) {
        self.end.store(end(slots, now), Relaxed);
        if self.in_flight() == 0 {
            self.set_origin(cx, stream, now);
        }
    }
}

/// The end of the launch slot that is now.
fn end(slots: LaunchSlots, now: u64) -> u64 {
    match slots.slot(now) {
        _ if slots.is_whole() => NO_END,
        Some(slot) => slots.end(slot),
        None => now,
    }
}
