//! A launch under a budget: it waits until it may go, and is followed once it was made.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use super::gate::Verdict;
use super::word;
use crate::cx::Cx;
use crate::errno;
use crate::shell;
use crate::telemetry::{budget::Budget, gate, monotonic_ns};

/// Longest sleep of a waiting thread (ns): a thread that was not woken checks once more after it.
const MAX_SLEEP_NS: u64 = 20_000_000;
/// Polls for work that is done: first without sleeping, then with ever longer sleeps between these (ns).
const BUSY_POLLS: u32 = 8;
const MIN_POLL_SLEEP_NS: u64 = 20_000;
const MAX_POLL_SLEEP_NS: u64 = 500_000;

/// A launch that was let through.
pub(crate) struct Passed {
    price: u64,
}

/// Waits until a launch of so many kernels into a stream may go. Only where a budget is set and the launch is not
/// captured.
#[cold]
#[inline(never)]
pub(crate) fn hold(cx: &Cx<'_>, stream: CUstream, kernels: u64) -> Passed {
    let price = kernels.max(1);
    errno::keep(|| shell::caught_cold(|| wait(cx, stream, price)));
    cx.writer().passed(price);
    Passed { price }
}

fn wait(cx: &Cx<'_>, stream: CUstream, price: u64) {
    let throttle = &cx.page.throttle;
    let (is_held, polls) = (Cell::new(false), Cell::new(0u32));
    loop {
        let seen = word();
        let Some(budget) = Budget::from_word(seen) else { return };
        let from = monotonic_ns();
        let gate = cx.writer().gate().load(Ordering::Relaxed);
        let closed_ns = gate::left(gate, from);
        if closed_ns > 0 {
            if !is_held.replace(true) {
                cx.writer().held();
            }
            cx.writer().wait_for_gate(gate, closed_ns.min(MAX_SLEEP_NS));
            cx.writer().held_for(monotonic_ns().saturating_sub(from));
            continue;
        }
        let verdict = throttle.with(|throttle| throttle.verdict(cx, stream, price, budget, seen, from));
        let (sleep, counts) = match verdict {
            None | Some(Verdict::Go) => return,
            Some(Verdict::At(moment)) => (moment.saturating_sub(from).min(MAX_SLEEP_NS), true),
            Some(Verdict::Never) => (MAX_SLEEP_NS, true),
            Some(Verdict::Busy { is_late }) => {
                let poll = polls.replace(polls.get().saturating_add(1));
                let sleep = match poll.checked_sub(BUSY_POLLS) {
                    None => 0,
                    Some(times) => (MIN_POLL_SLEEP_NS << times.min(16)).min(MAX_POLL_SLEEP_NS),
                };
                (sleep, is_late)
            }
        };
        if counts && !is_held.replace(true) {
            cx.writer().held();
        }
        if sleep == 0 {
            // SAFETY: plain system call.
            unsafe { libc::sched_yield() };
        } else {
            cx.writer().wait_for_budget(seen, sleep);
        }
        if counts {
            cx.writer().held_for(monotonic_ns().saturating_sub(from));
        }
    }
}

impl Passed {
    /// Follows the launch, once it was made.
    #[cold]
    pub(crate) fn launched(self, cx: &Cx<'_>, stream: CUstream, is_ok: bool) {
        if !is_ok {
            return;
        }
        errno::keep(|| {
            shell::caught_cold(|| {
                let Some(budget) = Budget::from_word(word()) else { return };
                cx.page.throttle.with(|throttle| throttle.follow(cx, stream, self.price, budget));
            })
        });
    }
}

/// Makes a launch of one kernel under the budget.
pub(crate) fn around(cx: &Cx<'_>, stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    let passed = hold(cx, stream, 1);
    let result = call();
    passed.launched(cx, stream, result.is_ok());
    result
}
