//! Graphs are timed as a whole; a graph's time is shared out among its kernels.
//!
//! A kernel's share is in proportion to what it takes when it is launched alone, as far as launches of
//! about its size have been timed (programs launch a graph's kernels alone before they capture them). What is
//! not known is put at the known kernels' time per thread, and the shares are then in doubt. The unit
//! of a kernel's stratum is a launch of the graph.

use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use super::plan::{Plan, Timer, Work};
use crate::cx::Cx;
use crate::kernels::timing::FIRST;
use crate::telemetry::{KernelId, KernelsMode, SizeClass};

/// Launches after which they are reported to the kernels' strata at the latest.
const MAX_UNREPORTED: u64 = 32;

/// Makes the launch of a graph, timed if it is due.
pub(super) fn launch(cx: &Cx<'_>, call: impl FnOnce() -> CUresult, plan: Plan, stream: CUstream) -> CUresult {
    let timing = &cx.page.kernels.timing;
    let (timer, serial) = (plan.timer(), plan.serial());
    let unreported = timer.unreported.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let is_first = timing.mode() == KernelsMode::All || timer.begun.load(Ordering::Relaxed) < FIRST;
    let until = timer.until.load(Ordering::Relaxed);
    let begun = if unreported >= until { timing.marks.begin(cx, stream, is_first) } else { None };
    let result = call();
    let ended = begun.and_then(|begun| begun.end(cx, stream, result.is_ok()));
    if !result.is_ok() {
        timer.unreported.fetch_sub(1, Ordering::Relaxed);
        return result;
    }
    // The program may have destroyed the graph from another thread meanwhile.
    if (unreported < until && unreported < MAX_UNREPORTED) || plan.serial() != serial {
        if let Some(ended) = ended {
            ended.forget();
        }
        return result;
    }
    let reported = timer.unreported.swap(0, Ordering::Relaxed);
    for total in plan.totals() {
        let kernel = KernelId::from_number(total.kernel.into());
        if let Some(stratum) = timing.stratum(cx.writer(), kernel, SizeClass::GRAPH) {
            stratum.launched(reported);
        }
    }
    let weight = timer.weight.fetch_add(reported, Ordering::Relaxed).wrapping_add(reported);
    if let Some(ended) = ended {
        ended.publish_graph(plan.word(), serial, weight);
        timer.weight.store(0, Ordering::Relaxed);
        timer.begun.fetch_add(1, Ordering::Relaxed);
    }
    let left = until.saturating_sub(reported);
    let next = if left > 0 { left } else { gap(cx, timer) };
    timer.until.store(next, Ordering::Relaxed);
    result
}

/// Launches until the next one to be timed.
fn gap(cx: &Cx<'_>, timer: &Timer) -> u64 {
    let timing = &cx.page.kernels.timing;
    if timing.mode() == KernelsMode::All || timer.begun.load(Ordering::Relaxed) < FIRST {
        return 1;
    }
    let latest = timer.latest.load(Ordering::Relaxed);
    let mean = timing.budget.gap((latest > 0).then_some(latest as f64));
    // The clock's lower digits are as good as random here.
    let drawn = cx.writer().now().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    1 + drawn % (2 * mean - 1)
}

/// The time of a launch of a graph is known: shared out among its kernels.
pub(crate) fn timed(cx: &Cx<'_>, plan: u64, serial: u64, ns: f64, weight: u64) {
    let Some(plan) = Plan::from_word(plan).filter(|plan| plan.serial() == serial) else { return };
    plan.timer().latest.store(ns as u64, Ordering::Relaxed);
    let timing = &cx.page.kernels.timing;
    // What launches of a kernel of about this size take alone, and how much that varies.
    let alone = |work: &Work| {
        let class = SizeClass::of_threads(work.threads.checked_div(work.launches)?);
        let stratum = timing.stratum(cx.writer(), KernelId::from_number(work.kernel.into()), class)?;
        let (mean, variation) = (stratum.mean_ns()?, stratum.variation()?);
        (mean > 0.0).then_some((mean * work.launches as f64, variation))
    };
    let (mut known_ns, mut known_threads, mut all_known) = (0.0, 0.0, true);
    for work in plan.totals() {
        match alone(&work) {
            Some((ns, _)) => {
                known_ns += ns;
                known_threads += work.threads as f64;
            }
            None => all_known = false,
        }
    }
    let per_thread = if known_threads > 0.0 { known_ns / known_threads } else { 1.0 };
    let part = |work: &Work| alone(work).map_or(work.threads.max(1) as f64 * per_thread, |(ns, _)| ns);
    let whole: f64 = plan.totals().map(|work| part(&work)).sum();
    if whole <= 0.0 || !whole.is_finite() {
        return;
    }
    // A share is in doubt by what moves it: the kernel's own variation, and the others'. The graph's launches are always
    // the same one of those that a stratum holds, so the doubt is that of a single launch: two standard deviations.
    let variations =
        || plan.totals().map(|work| (part(&work), alone(&work).map_or(1.0, |(_, variation)| variation)));
    let others = variations().map(|(part, variation)| part * variation).sum::<f64>() / whole;
    for work in plan.totals() {
        let kernel = KernelId::from_number(work.kernel.into());
        let Some(stratum) = timing.stratum(cx.writer(), kernel, SizeClass::GRAPH) else { continue };
        let own = alone(&work).map_or(1.0, |(_, variation)| variation);
        let share = part(&work) / whole;
        // A graph of one kernel is all its own.
        let doubt = if all_known || share >= 1.0 { 2.0 * (own + others) * (1.0 - share) } else { 1.0 };
        if !stratum.timed(weight, ns * share, doubt) {
            cx.writer().timing_lost();
        }
    }
}
