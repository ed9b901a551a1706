//! Ranges and marks of the program: what it says to NVTX ([`nvtx`]) and through this library's own functions ([`own`]).
//!
//! Both come with the program's names and end here, in the calling thread's nesting. A process records from the moment
//! on at which it has joined its segment; what a thread has opened before that is kept aside ([`early`]) and entered then.
//! Nothing here makes a process join: one that never uses a GPU takes no slot.

mod early;
mod nesting;
mod nvtx;
mod own;
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mode;
use crate::state::{self, Page};
use crate::telemetry::RangeText;
use crate::tls::{self, Tls};

pub(crate) use nesting::Nesting;

/// The page of a process that has joined, with the thread's lane.
fn joined(tls: &Tls) -> Option<(&'static Page, u32)> {
    let page = state::page();
    let epoch = page.epoch();
    let is_new = tls.nesting.generation.get() != page.generation();
    if epoch == 0 || (tls.epoch.get() != epoch && !state::prepare(tls)) {
        if is_new {
            tls.nesting.settle(page.generation());
        }
        return None;
    }
    let lane = tls.lane.get()?.number();
    if is_new {
        tls.nesting.settle(page.generation());
        early::enter(page.writer(), &tls.nesting, lane);
    }
    Some((page, lane))
}

/// Runs `work` so that the program meets neither a panic nor another `errno`.
fn guarded<R>(otherwise: R, work: impl FnOnce(&Tls) -> R) -> R {
    if mode::is_bypassed() {
        return otherwise;
    }
    catch_unwind(AssertUnwindSafe(|| work(tls::get()))).unwrap_or_else(|panic| {
        // Dropping a payload could panic again.
        core::mem::forget(panic);
        otherwise
    })
}

/// Opens a range of the calling thread; gives how many it is in.
fn push(tls: &Tls, domain: u64, text: RangeText<'_>) -> u32 {
    let Some((page, lane)) = joined(tls) else {
        let level = tls.nesting.open();
        early::push(level, domain, text);
        tls.nesting.before.set(level.saturating_add(1));
        return level;
    };
    let nesting = &tls.nesting;
    let level = nesting.open();
    let writer = page.writer();
    let (name, step) = writer.range_name(text);
    // What is inside a range without room has none either, so that ends find their begins.
    let depth = if nesting.lost.get() == 0 { nesting.depth.get() } else { u32::MAX };
    if writer.push_range(lane, depth, domain, name, step, None) {
        nesting.depth.set(depth.saturating_add(1));
    } else {
        nesting.lost.set(nesting.lost.get().saturating_add(1));
    }
    level
}

/// Closes the calling thread's innermost range of a domain; gives how many it was in. `None`: none was open.
fn pop(tls: &Tls, domain: u64) -> Option<u32> {
    let joined = joined(tls);
    let nesting = &tls.nesting;
    let level = nesting.open().checked_sub(1);
    match joined {
        Some(_) if nesting.lost.get() > 0 => nesting.lost.set(nesting.lost.get() - 1),
        Some((page, lane))
            if nesting.depth.get() > 0 && page.writer().pop_range(lane, nesting.depth.get(), domain) =>
        {
            nesting.depth.set(nesting.depth.get() - 1);
        }
        Some((page, _)) if nesting.before.get() == 0 => {
            page.writer().unbalanced_range();
            return None;
        }
        Some(_) => nesting.before.set(nesting.before.get() - 1),
        None => {
            let before = nesting.before.get().checked_sub(1)?;
            early::pop(before);
            nesting.before.set(before);
        }
    }
    level
}

/// Notes a moment.
fn mark(tls: &Tls, text: RangeText<'_>) {
    match joined(tls) {
        Some((page, lane)) => {
            let (name, step) = page.writer().range_name(text);
            page.writer().mark(name, step, lane, tls.nesting.open());
        }
        None => early::missed(),
    }
}

/// Opens a range that any thread may end; gives its number, 0 if it is not kept.
fn start(tls: &Tls, text: RangeText<'_>) -> u64 {
    let Some((page, lane)) = joined(tls) else {
        early::missed();
        return 0;
    };
    let (name, step) = page.writer().range_name(text);
    page.writer().start_range(lane, name, step).unwrap_or(0)
}

/// Ends a range by its number.
fn end(tls: &Tls, number: u64) {
    // 0 was not kept; what a parent began its child does not end.
    if number != 0
        && let Some((page, _)) = joined(tls)
    {
        page.writer().end_range(number);
    }
}
