//! How long launches take on the GPU: some of them, between two events.
//!
//! Launches are sorted into strata by kernel and size. Of each stratum the first launches are timed, then
//! one out of a number of launches that is drawn anew each time, around a mean that follows from what a
//! timing costs the host and how long the kernel takes: long kernels are timed often, short ones seldom,
//! and all of it together stays below a share of the running time ([`budget`]).
//!
//! | module | is |
//! |---|---|
//! | [`strata`] | a thread's strata, and when the next launch of each is timed |
//! | [`marks`] | the events, and the times that they have given |
//! | [`budget`] | what timing has cost and may cost |
//! | `filling` | how a launch fills the GPU |
//! | `samples` | single launches for the trace |
//! | [`shell`] | the short way of launches that are only counted |
//!
//! Nothing is ever waited for. Nothing is timed while a stream of the process captures, and an event that
//! was put into a capture against all odds is never looked at again.

pub(crate) mod budget;
mod filling;
pub(crate) mod marks;
mod samples;
pub(crate) mod shell;
pub(crate) mod strata;

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::environ;
use crate::kernels::learn;
use crate::map::HandleMap;
use crate::memory;
use crate::shell::caught_cold;
use crate::telemetry::{KernelId, KernelsMode, Lane, SizeClass, Stratum};
use budget::Budget;
use filling::{Held, Sizes};
use marks::Marks;
use samples::Samples;
use strata::{Entry, StrataCache};

/// Launches of a stratum that are timed before any is left out.
pub(crate) const FIRST: u64 = 4;

/// The process's timings.
pub(crate) struct Timing {
    /// [`KernelsMode`]; 0 before the process has joined.
    mode: AtomicU64,
    pub(crate) budget: Budget,
    pub(crate) marks: Marks,
    caches: AtomicPtr<StrataCache>,
    /// Kernel and size class -> stratum; 0 where there is no room for it.
    strata: HandleMap,
    /// Captures that were ever begun.
    captures: AtomicU64,
    samples: Samples,
    sizes: Sizes,
    held: Held,
}

/// A launch as it is counted.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Blocks of the grid.
    pub(crate) blocks: u64,
    /// Threads of the grid.
    pub(crate) threads: u64,
    /// Dynamic shared memory per block, bytes.
    pub(crate) shared: u64,
    /// Whether events around the launch leave it as it is: not where it is to overlap with the one before.
    pub(crate) is_apart: bool,
}

impl Timing {
    /// Nothing timed.
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU64::new(0),
            budget: Budget::new(),
            marks: Marks::new(),
            caches: AtomicPtr::new(core::ptr::null_mut()),
            strata: HandleMap::new(),
            captures: AtomicU64::new(0),
            samples: Samples::new(),
            sizes: Sizes::new(),
            held: Held::new(),
        }
    }

    /// Reads what the launcher asks for; tells the segment. Counting is the default.
    pub(crate) fn begin(&self, writer: &crate::telemetry::Writer) {
        let mut room = [0u8; 32];
        let asked = environ::value(b"RADRM_KERNELS", &mut room).map(core::ffi::CStr::to_bytes);
        let mode = asked.and_then(KernelsMode::from_name).unwrap_or_default();
        self.mode.store(mode as u64, Ordering::Relaxed);
        writer.kernels_mode(mode);
        self.budget.begin(writer.now());
    }

    /// What is recorded of launches.
    #[inline(always)]
    pub(crate) fn mode(&self) -> KernelsMode {
        const COUNT: u64 = KernelsMode::Count as u64;
        match self.mode.load(Ordering::Relaxed) {
            COUNT => KernelsMode::Count,
            other => KernelsMode::from_raw(other).unwrap_or_default(),
        }
    }

    /// A capture is about to begin.
    pub(crate) fn capture_begins(&self) {
        // SeqCst: ordered with the count of captures under way, see `marks`.
        self.captures.fetch_add(1, Ordering::SeqCst);
    }

    /// The stratum of a kernel's launches of one size class.
    pub(crate) fn stratum(&self, cx: &Cx<'_>, kernel: KernelId, class: SizeClass) -> Option<Stratum> {
        let key = 1 << 63 | u64::from(kernel.number()) << 8 | u64::from(class.number());
        let word = self.strata.get(key).unwrap_or_else(|| {
            let stratum = cx.writer().stratum(kernel, class);
            let word = stratum.map_or(0, |s| s.as_ptr().addr() as u64);
            self.strata.insert(key, word);
            word
        });
        // SAFETY: the map holds 0 and addresses of strata.
        unsafe { Stratum::from_ptr(word as *const _) }
    }

    /// Forgets what a thread knows about handles.
    pub(crate) fn forget(&self, lane: usize) {
        if let Some(cache) = self.cache_if_any(lane) {
            cache.clear();
        }
    }

    /// Says of all threads how often they have launched.
    pub(crate) fn settle(&self) {
        for lane in 0..crate::telemetry::layout::LANES {
            if let Some(cache) = self.cache_if_any(lane) {
                cache.settle();
            }
        }
    }
}

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
    let known = learn::known(cx, function).and_then(|kernel| timing.stratum(cx, kernel, class));
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
    let stratum = timing.stratum(cx, kernel, class);
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
            cache.shorten(cx.tls());
        }
        (Some(row), None) => row.launch(shape.blocks, shape.threads, shape.shared),
        (None, _) => lane.launch(writer, kernel, shape.blocks, shape.threads, shape.shared),
    }
    result
}

/// A launch at which a thread tells its stratum how often it has launched, and which may be one to time.
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
    /// Whether a launch belongs to the first of its stratum.
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

/// Looks at the marks that are out, after the program has waited for the GPU.
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
