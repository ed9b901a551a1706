//! Kernels that function handles stand for.
//!
//! A launch finds it in the thread's [`cache`]; a miss asks the process-wide map; a function not seen
//! before is [`learned`](learn), after its launch. All of it is valid for one epoch: when a module is
//! unloaded its handles may come back as others.
//!
//! However many functions a program launches, what is kept of them here has a fixed size: [`recent`] forgets, and a
//! function that was forgotten is learned again, with the same number.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use crate::arena;
use crate::map::HandleMap;
use crate::telemetry::LANES;

pub(crate) mod cache;
pub(crate) mod learn;
pub(crate) mod named;
mod recent;
pub(crate) mod timing;

use cache::KernelCache;
use recent::Recent;
use timing::Timing;

/// The process's kernels.
pub(crate) struct Kernels {
    /// Function or kernel handle -> epoch and kernel id.
    known: Recent,
    /// Function or kernel handle -> name learned when the handle was given out, for drivers that
    /// cannot be asked later.
    names: Recent,
    /// Hash of a name -> its record.
    interned: HandleMap,
    /// Bytes of those records.
    interned_bytes: AtomicUsize,
    /// Function -> threads per block set by `cuFuncSetBlockShape`.
    shapes: Recent,
    caches: AtomicPtr<KernelCache>,
    learnt: AtomicU64,
    /// Timing of launches.
    pub(crate) timing: Timing,
}

impl Kernels {
    /// Nothing known.
    pub(crate) const fn new() -> Self {
        Self {
            known: Recent::new(),
            names: Recent::new(),
            interned: HandleMap::new(),
            interned_bytes: AtomicUsize::new(0),
            shapes: Recent::new(),
            caches: AtomicPtr::new(core::ptr::null_mut()),
            learnt: AtomicU64::new(0),
            timing: Timing::new(),
        }
    }

    /// The cache that goes with a lane; an ever empty one for the overflow lane or without memory.
    pub(crate) fn cache_of(&self, lane: usize) -> *const KernelCache {
        if lane >= LANES {
            return cache::none();
        }
        match arena::map_once(&self.caches, LANES * size_of::<KernelCache>()) {
            Some(caches) => caches.wrapping_add(lane).cast_const(),
            None => cache::none(),
        }
    }
}
