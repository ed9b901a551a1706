//! Contexts, and the stack of each thread.

use core::ffi::c_uint;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;

use crate::engine::core_dump::Settings;
use crate::engine::green::Green;
use crate::util::ffi::Answer;
use crate::util::sync::lock;

/// A context.
pub struct Context {
    /// Handle.
    pub handle: CUcontext,
    /// Number that no other context of this process had.
    pub id: u64,
    /// Device ordinal.
    pub device: CUdevice,
    /// GPU on the machine.
    pub gpu: usize,
    /// True for the device's primary context.
    pub primary: bool,
    pub(crate) flags: AtomicU32,
    pub(crate) destroyed: AtomicBool,
    pub(crate) broken: AtomicU32,
    pub(crate) limits: Mutex<BTreeMap<c_uint, usize>>,
    pub(crate) peers: Mutex<HashSet<CUdevice>>,
    pub(crate) configs: Mutex<(c_uint, c_uint)>,
    /// Core dump attributes of its own.
    pub(crate) core_dumps: Mutex<Settings>,
}

impl Context {
    /// Checks that the context can be used.
    ///
    /// # Errors
    /// CUDA_ERROR_CONTEXT_IS_DESTROYED, or the error that broke it.
    pub fn check(&self) -> Answer {
        if self.destroyed.load(Relaxed) {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        match self.broken.load(Relaxed) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// Returns true if the context was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Relaxed)
    }

    /// Breaks it: every call on it answers `code` from now on.
    pub fn break_with(&self, code: CUresult) {
        self.broken.store(code.0, Relaxed);
    }

    /// Returns true if memory of `device` may be used from this context.
    pub fn can_reach(&self, device: CUdevice) -> bool {
        device == self.device || lock(&self.peers).contains(&device)
    }

    /// Flags.
    pub fn flags(&self) -> c_uint {
        self.flags.load(Relaxed)
    }

    /// A limit's value; `None` for limits that this architecture lacks.
    pub fn limit(&self, limit: c_uint) -> Option<usize> {
        lock(&self.limits).get(&limit).copied()
    }
}

thread_local! {
    // Never dropped, and so still there when the program's own thread-local destructors call the driver.
    static STACK: RefCell<ManuallyDrop<Vec<Current>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Current context of a thread.
#[derive(Clone)]
pub(crate) struct Current {
    /// The context.
    pub(crate) context: Arc<Context>,
    /// The part of it that a green context is.
    pub(crate) green: Option<Arc<Green>>,
}

impl Current {
    /// The handle that the program made current.
    pub(crate) fn handle(&self) -> CUcontext {
        self.green.as_ref().map_or(self.context.handle, |green| green.view)
    }
}

pub(crate) fn with_stack<T>(work: impl FnOnce(&mut Vec<Current>) -> T) -> Option<T> {
    STACK.try_with(|stack| work(&mut stack.borrow_mut())).ok()
}

/// The calling thread's context, destroyed or not; `None` where there is none.
pub fn current() -> Option<Arc<Context>> {
    top().map(|current| current.context)
}

/// As [`current`], with the green context that the thread works in.
pub(crate) fn top() -> Option<Current> {
    with_stack(|stack| stack.last().cloned()).flatten()
}

/// The primary context of a device: how many hold it, and its flags while it does not exist.
#[derive(Default)]
pub struct Primary {
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) references: u64,
    pub(crate) flags: c_uint,
}
