//! Launches under way in a context, followed by events behind them.
//!
//! Not behind every one: where many may be under way, behind each of so many, and behind the first in another
//! stream than the one before. When the events are past, everything counts as done. Their times say when that was,
//! however late they are queried: an event before the first launch, which finds the GPU idle, ties the GPU's clock to
//! the host's.
//!
//! As elsewhere, events are touched only in the context that they were made in, known by its number, and
//! neither recorded nor asked while a stream of the process captures.

use core::ffi::c_void;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use super::Throttle;
use super::gate::{NO_END, PATIENCE_NS, PATIENCE_TIMES};
use super::table::{Context, EVENTS, Entry, FREE, OUT};
use crate::capture;
use crate::cx::Cx;
use crate::kernels::timing::marks::{Here, elapsed, here, make_event, record};
use crate::telemetry::budget::Budget;

/// Launches that one event stands for where any number may be under way.
const USUAL: u64 = 16;
/// Events that are not past, after which a query of all ends.
const MAX_PENDING_EVENTS: usize = 4;

/// Result of a query of all events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Launches under way.
    pub(super) launches: u64,
    /// Nothing was done for so long that it is not waited for.
    pub(super) is_stuck: bool,
}

fn event_of(word: &AtomicU64) -> CUevent {
    CUevent(word.load(Relaxed) as *mut c_void)
}

/// An event's own handle, made if there is none.
fn made(cx: &Cx<'_>, word: &AtomicU64) -> Option<CUevent> {
    let known = event_of(word);
    if !known.is_null() {
        return Some(known);
    }
    let fresh = make_event(cx)?;
    word.store(fresh.addr(), Relaxed);
    Some(fresh)
}

impl Throttle {
    /// The calling thread's context.
    pub(super) fn context(&self, cx: &Cx<'_>) -> Option<&Context> {
        let here = capture::always_relaxed(|| here(cx))?;
        let use_number = self.uses.fetch_add(1, Relaxed) + 1;
        let own = self.contexts.iter().find(|context| context.is_of(here));
        let context = own.or_else(|| {
            let context = self.contexts.iter().min_by_key(|context| context.used.load(Relaxed))?;
            // The events of the one before stay with their context.
            context.become_that_of(here);
            Some(context)
        })?;
        context.used.store(use_number, Relaxed);
        Some(context)
    }

    /// A launch of so many kernels was made.
    pub(super) fn follow(&self, cx: &Cx<'_>, stream: CUstream, price: u64, budget: Budget) {
        let Some(context) = self.context(cx) else { return };
        let most = u64::from(budget.in_flight);
        let each = if most == 0 { USUAL } else { most.div_ceil(EVENTS as u64) };
        let loose = context.loose.load(Relaxed) + price;
        context.loose.store(loose, Relaxed);
        if loose >= each || context.stream.swap(stream.addr(), Relaxed) != stream.addr() {
            context.close(cx, stream);
        }
    }
}

impl Context {
    fn is_of(&self, here: Here) -> bool {
        self.used.load(Relaxed) != 0
            && self.handle.load(Relaxed) == here.context
            && self.instance.load(Relaxed) == here.instance
    }

    fn become_that_of(&self, here: Here) {
        self.handle.store(here.context, Relaxed);
        self.instance.store(here.instance, Relaxed);
        let words = [&self.word, &self.due, &self.done, &self.progress, &self.slowest];
        let more = [&self.origin, &self.origin_ns, &self.loose, &self.stream];
        words.into_iter().chain(more).for_each(|word| word.store(0, Relaxed));
        self.end.store(NO_END, Relaxed);
        for entry in &self.entries {
            for word in [&entry.state, &entry.event, &entry.launches] {
                word.store(0, Relaxed);
            }
        }
    }

    fn out(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state.load(Relaxed) == OUT)
    }

    /// Launches that are not known to be done.
    pub(super) fn in_flight(&self) -> u64 {
        self.out().map(|entry| entry.launches.load(Relaxed)).sum::<u64>() + self.loose.load(Relaxed)
    }

    /// Ties the clocks: nothing is under way, so the GPU comes past at once.
    pub(super) fn set_origin(&self, cx: &Cx<'_>, stream: CUstream, now: u64) {
        self.progress.store(now, Relaxed);
        self.origin_ns.store(0, Relaxed);
        if let Some(origin) = made(cx, &self.origin)
            && put(cx, origin, stream)
        {
            self.origin_ns.store(now, Relaxed);
        }
    }

    /// Puts an event behind what has none.
    pub(super) fn close(&self, cx: &Cx<'_>, stream: CUstream) {
        let loose = self.loose.load(Relaxed);
        if loose == 0 {
            return;
        }
        let free = self.entries.iter().find(|entry| entry.state.load(Relaxed) == FREE);
        // Where all are out, one of them comes to stand behind more.
        let Some(entry) = free.or_else(|| self.entries.iter().next_back()) else { return };
        let recorded = made(cx, &entry.event).is_some_and(|event| put(cx, event, stream));
        if !recorded {
            // Without an event it counts as done.
            self.loose.store(0, Relaxed);
            return;
        }
        let before = if entry.state.load(Relaxed) == OUT { entry.launches.load(Relaxed) } else { 0 };
        entry.launches.store(before + loose, Relaxed);
        entry.state.store(OUT, Relaxed);
        self.loose.store(0, Relaxed);
    }

    /// Asks which of the events are past.
    pub(super) fn query(&self, cx: &Cx<'_>, now: u64) -> Flight {
        let mut waiting = 0;
        if !capture::under_way(cx.page) {
            for entry in self.out() {
                if waiting == MAX_PENDING_EVENTS {
                    break;
                }
                if !self.has_come(cx, entry, now) {
                    waiting += 1;
                }
            }
        }
        // With nothing but loose launches left, those are waited for behind an event: see `close`.
        let launches = self.in_flight();
        Flight { launches, is_stuck: capture::under_way(cx.page) || self.is_still(now) }
    }

    /// Returns true if nothing was done for longer than a launch waits for.
    fn is_still(&self, now: u64) -> bool {
        let still = now.saturating_sub(self.progress.load(Relaxed));
        still > PATIENCE_NS.max(self.slowest.load(Relaxed).saturating_mul(PATIENCE_TIMES))
    }

    /// Work was seen to be done.
    fn moves(&self, now: u64) {
        let since = now.saturating_sub(self.progress.swap(now, Relaxed));
        self.slowest.fetch_max(since.min(60 * PATIENCE_NS), Relaxed);
    }

    /// Returns true if an event is past; it is free then.
    fn has_come(&self, cx: &Cx<'_>, entry: &Entry, now: u64) -> bool {
        let event = event_of(&entry.event);
        let answer = match cx.driver().event_query() {
            // SAFETY: our own event, in its own context.
            Some(ask) => capture::always_relaxed(|| unsafe { ask(event) }),
            None => CUDA_SUCCESS,
        };
        if answer == CUDA_ERROR_NOT_READY {
            return false;
        }
        entry.state.store(FREE, Relaxed);
        if !answer.is_ok() {
            // Put into a capture against all odds, or the context is broken: not used again.
            entry.event.store(0, Relaxed);
        }
        self.moves(now);
        let done = self.moment(cx, event).filter(|_| answer.is_ok()).unwrap_or(now).min(now);
        self.done.fetch_max(done, Relaxed);
        true
    }

    /// Time at which the GPU came past an event, on the host's clock.
    fn moment(&self, cx: &Cx<'_>, event: CUevent) -> Option<u64> {
        let from = self.origin_ns.load(Relaxed);
        if from == 0 {
            return None;
        }
        let ns = capture::always_relaxed(|| elapsed(cx, event_of(&self.origin), event))?;
        Some(from.saturating_add(ns as u64))
    }
}

/// Records an event in a stream that does not capture.
fn put(cx: &Cx<'_>, event: CUevent, stream: CUstream) -> bool {
    if capture::under_way(cx.page) {
        return false;
    }
    let recorded = capture::always_relaxed(|| record(cx, cx.entry, event, stream));
    // A capture that another thread began meanwhile may have got it.
    recorded && (!capture::under_way(cx.page) || capture::is_idle(cx.entry, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_waited_for_longer() {
        const START: u64 = 1 << 40;
        let context = Context::new();
        context.progress.store(START, Relaxed);
        assert!(!context.is_still(START + PATIENCE_NS));
        assert!(context.is_still(START + PATIENCE_NS + 1));
        let took = 3 * PATIENCE_NS;
        context.moves(START + took);
        let patience = took * PATIENCE_TIMES;
        assert!(!context.is_still(START + took + patience));
        assert!(context.is_still(START + took + patience + 1));
        // A short piece does not make the long ones forgotten.
        context.moves(START + took + 1);
        assert!(!context.is_still(START + took + 1 + patience));
        // What hung for an hour does not make a launch wait for hours.
        context.moves(START + 3_600 * PATIENCE_NS);
        assert!(context.is_still(START + 3_600 * PATIENCE_NS + 60 * PATIENCE_NS * PATIENCE_TIMES + 1));
    }
}
