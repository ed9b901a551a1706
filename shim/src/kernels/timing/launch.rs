//! A launch while launches are timed: counted, and timed if it is due.

use radrm_cuda_abi::*;

use super::strata::{Entry, Shape, StrataCache};
use super::{FIRST, Timing, marks};
use crate::cx::Cx;
use crate::kernels::learn;
use crate::memory;
use crate::resolve;
use crate::shell::caught_cold;
use crate::telemetry::{KernelId, KernelsMode, Lane, SizeClass, Stratum};
use crate::tls::Tls;

/// Makes a launch, counts it if it succeeds, and times it if it is due.
pub(crate) fn launch(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    stream: CUstream,
    shape: Shape,
) -> CUresult {
    let Some(lane) = cx.tls().lane.get() else { return call() };
    let class = SizeClass::of_threads(shape.threads);
    let Some(cache) = cx.page.kernels.timing.cache(&lane) else {
        // A thread without counters of its own: counted, not timed.
        let result = call();
        if result.is_ok() {
            learn::count(cx, function, shape.blocks, shape.threads, shape.shared);
        }
        return result;
    };
    let entry = cache.entry(function.addr(), class);
    if !entry.is(function.addr(), class) {
        return first(cx, call, function, stream, shape, &lane, cache);
    }
    if entry.is_due() {
        return match entry.stratum() {
            Some(stratum) => due(cx, call, function, stream, shape, cache, entry, stratum),
            None => first(cx, call, function, stream, shape, &lane, cache),
        };
    }
    let result = call();
    if result.is_ok() {
        entry.launched(shape);
    }
    result
}

/// A launch of a stratum that is not in the thread's cache.
#[cold]
#[inline(never)]
fn first(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    stream: CUstream,
    shape: Shape,
    lane: &Lane,
    cache: &StrataCache,
) -> CUresult {
    let timing = &cx.page.kernels.timing;
    let class = SizeClass::of_threads(shape.threads);
    let known = learn::known(cx, function).and_then(|kernel| timing.stratum(cx.writer(), kernel, class));
    let wanted = shape.is_apart && known.is_none_or(|stratum| timing.wants_first(stratum));
    let begun = if wanted { timing.marks.begin(cx, stream, true) } else { None };
    let result = call();
    let ended = begun.and_then(|begun| begun.end(cx, stream, result.is_ok()));
    if !result.is_ok() {
        return result;
    }
    // After the launch: a driver that loads code lazily has then loaded it.
    let kernel = caught_cold(|| learn::kernel_of(cx, function)).unwrap_or(KernelId::OTHER);
    let writer = cx.writer();
    let stratum = timing.stratum(cx.writer(), kernel, class);
    let timed = ended.is_some();
    match (ended, stratum) {
        (Some(ended), Some(stratum)) => ended.publish(stratum, 1, timing.filling(cx, function, shape), shape),
        (Some(ended), None) => ended.forget(),
        (None, _) => {}
    }
    if let Some(stratum) = stratum {
        stratum.launched(1);
    }
    match (lane.own_row(writer, kernel), stratum) {
        (Some(row), Some(stratum)) => {
            row.launch(shape.blocks, shape.threads, shape.shared);
            let weight = u64::from(!timed);
            cache.put(function.addr(), class, row, stratum, weight, timing.gap(cache, stratum));
            shorten(cx.tls(), cache);
        }
        (Some(row), None) => row.launch(shape.blocks, shape.threads, shape.shared),
        (None, _) => lane.launch(writer, kernel, shape.blocks, shape.threads, shape.shared),
    }
    result
}

/// Lets the owning thread's launches that are not due take the short way past compiled code.
fn shorten(tls: &Tls, cache: &StrataCache) {
    if resolve::launches_are_direct() {
        tls.strata.set(cache);
    }
}

/// A launch at which a thread reports to its stratum how often it has launched, and which may be one to time.
#[allow(clippy::too_many_arguments, reason = "a launch, and where it is counted")]
#[cold]
#[inline(never)]
fn due(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    stream: CUstream,
    shape: Shape,
    cache: &StrataCache,
    entry: &Entry,
    stratum: Stratum,
) -> CUresult {
    let timing = &cx.page.kernels.timing;
    let begun = match shape.is_apart && entry.is_to_be_timed() {
        true => timing.marks.begin(cx, stream, timing.wants_first(stratum)),
        false => None,
    };
    let result = call();
    let ended = begun.and_then(|begun| begun.end(cx, stream, result.is_ok()));
    if !result.is_ok() {
        return result;
    }
    entry.launched(shape);
    let weight = entry.settle();
    if let Some(ended) = ended {
        ended.publish(stratum, weight, timing.filling(cx, function, shape), shape);
        entry.timed();
    }
    if entry.is_spent() {
        entry.wait(timing.gap(cache, stratum));
    }
    result
}

impl Timing {
    /// Returns true if a launch belongs to the first of its stratum.
    fn wants_first(&self, stratum: Stratum) -> bool {
        self.mode() == KernelsMode::All || stratum.begun() < FIRST
    }

    /// Launches until the next one to be timed.
    fn gap(&self, cache: &StrataCache, stratum: Stratum) -> u64 {
        if self.wants_first(stratum) {
            return 1;
        }
        let mean = self.budget.gap(stratum.mean_ns());
        1 + cache.draw() % (2 * mean - 1)
    }
}

/// After something that has waited for the GPU: times are likely to be known. And what memory does then.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn synchronised(cx: &Cx<'_>, result: CUresult) {
    // SAFETY: the arguments of such a call.
    unsafe { memory::pool::synchronised(cx, result) };
    waited(cx);
}

/// Queries the marks that are out, after the program has waited for the GPU.
pub(crate) fn waited(cx: &Cx<'_>) {
    let timing = &cx.page.kernels.timing;
    if timing.mode().is_timed() {
        timing.marks.harvest(cx, marks::ALL);
    }
}

/// A context has ended, and its events with it.
pub(crate) fn context_ended(cx: &Cx<'_>, context: CUcontext) {
    cx.page.kernels.timing.marks.forget(context);
}
