//! Durations of launches on the GPU: some of them are measured, between two events.
//!
//! Launches are sorted into strata by kernel and size. Of each stratum the first launches are timed, then
//! one out of a number of launches that is drawn anew each time, around a mean that follows from what a
//! timing costs the host and how long the kernel takes: long kernels are timed often, short ones seldom,
//! and all of it together stays below a share of the running time ([`budget`]).
//!
//! | module | is |
//! |---|---|
//! | [`launch`] | a launch that is counted and may be timed, and what has waited for the GPU |
//! | [`strata`] | a thread's strata, and when the next launch of each is timed |
//! | [`marks`] | the events, and the times that they have given |
//! | [`budget`] | what timing has cost and may cost |
//! | `filling` | how a launch fills the GPU |
//! | `occupancy`, `table` | what is known of GPUs and functions, and the words of the marks |
//! | `samples` | single launches for the trace |
//! | [`shell`] | the short way of launches that are only counted |
//!
//! Nothing is ever waited for. Nothing is timed while a stream of the process captures, and an event that
//! was put into a capture against all odds is never queried after that.

pub(crate) mod budget;
mod filling;
pub(crate) mod launch;
pub(crate) mod marks;
mod occupancy;
mod samples;
#[cfg(target_arch = "x86_64")]
pub(crate) mod shell;
pub(crate) mod strata;
mod table;

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::environ;
use crate::map::HandleMap;
use crate::telemetry::{KernelId, KernelsMode, SizeClass, Stratum, Writer};
use budget::Budget;
use occupancy::{Held, Sizes};
use samples::Samples;
use strata::StrataCache;
use table::Marks;

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

    /// Reads what the launcher asks for and writes it into the segment. Counting is the default.
    pub(crate) fn begin(&self, writer: &Writer) {
        let mut room = [0u8; 32];
        let asked = environ::value(b"RADRM_KERNELS", &mut room).map(core::ffi::CStr::to_bytes);
        let mode = asked.and_then(KernelsMode::from_name).unwrap_or_default();
        self.mode.store(mode as u64, Ordering::Relaxed);
        writer.kernels_mode(mode);
        self.budget.begin(writer.now());
    }

    /// Recording mode of launches.
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
    pub(crate) fn stratum(&self, writer: &Writer, kernel: KernelId, class: SizeClass) -> Option<Stratum> {
        let key = 1 << 63 | u64::from(kernel.number()) << 8 | u64::from(class.number());
        let word = self.strata.get(key).unwrap_or_else(|| {
            let stratum = writer.stratum(kernel, class);
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
