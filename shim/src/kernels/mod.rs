//! Which kernel a function handle stands for.
//!
//! A launch finds it in the thread's [`cache`]; a miss asks the process-wide map; a function not seen
//! before is [`learned`](learn), after its launch. All of it is valid for one epoch: when a module is
//! unloaded its handles may come back as others.

use core::sync::atomic::{AtomicPtr, AtomicU64};

use crate::map::HandleMap;

pub(crate) mod cache;
pub(crate) mod learn;
pub(crate) mod named;
pub(crate) mod timing;

use cache::KernelCache;
use timing::Timing;

/// The process's kernels.
pub(crate) struct Kernels {
    /// Function or kernel handle -> epoch and kernel id.
    known: HandleMap,
    /// Function or kernel handle -> name learned when the handle was given out, for drivers that
    /// cannot be asked later.
    names: HandleMap,
    /// Hash of a name -> its record.
    interned: HandleMap,
    /// Function -> threads per block set by `cuFuncSetBlockShape`.
    shapes: HandleMap,
    caches: AtomicPtr<KernelCache>,
    nameless: AtomicU64,
    learnt: AtomicU64,
    /// What launches take.
    pub(crate) timing: Timing,
}

impl Kernels {
    /// Nothing known.
    pub(crate) const fn new() -> Self {
        Self {
            known: HandleMap::new(),
            names: HandleMap::new(),
            interned: HandleMap::new(),
            shapes: HandleMap::new(),
            caches: AtomicPtr::new(core::ptr::null_mut()),
            nameless: AtomicU64::new(0),
            learnt: AtomicU64::new(0),
            timing: Timing::new(),
        }
    }
}
