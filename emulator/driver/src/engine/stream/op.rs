//! Work in streams, and what it refers to.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use radrm_cuda_abi::*;

use crate::engine::stream::clock::Moment;
use crate::models::copy::{CopyNode, SetNode};
use crate::models::memop::MemoryOp;
use crate::models::placement::Phase;
use crate::util::ffi::Answer;

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    /// Its number, as the program sees it.
    pub id: u64,
    /// Capture mode: how strict the capture is.
    pub mode: CUstreamCaptureMode,
    /// Thread that began it.
    pub thread: u64,
    /// Stream in which it began.
    pub origin: u64,
    /// Graph that it fills.
    pub graph: u64,
    /// True if the graph was there before: it then stays when the capture fails.
    pub into_existing: bool,
    /// True if nothing went wrong so far.
    pub valid: bool,
    /// Streams that are part of it.
    pub streams: BTreeSet<u64>,
    /// Last nodes of streams that were destroyed meanwhile: they too must come before its end.
    pub left: Vec<u64>,
}

/// Point of the work that an event stands for.
#[derive(Clone, Debug)]
pub enum Recording {
    /// Was never recorded: counts as done.
    Never,
    /// A point in a stream's work.
    Point(Arc<Mark>),
    /// A point in a capture: the nodes before it.
    Captured {
        /// Number of the capture.
        capture: u64,
        /// The nodes.
        nodes: Vec<u64>,
    },
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Handle of its context.
    pub context: u64,
    /// Ordinal of its device.
    pub device: CUdevice,
    /// Flags.
    pub flags: c_uint,
    /// Point that it stands for.
    pub recording: Recording,
}

/// A point in a stream's work, and when it was reached.
#[derive(Debug, Default)]
pub struct Mark {
    pub(crate) done: AtomicBool,
    pub(crate) gpu: AtomicUsize,
    pub(crate) time_ns: AtomicU64,
}

impl Mark {
    /// The moment at which it was reached, if the work before it is done.
    pub fn reached(&self) -> Option<Moment> {
        // Partner: the Release store in `reach`.
        let moment = || Moment { gpu: self.gpu.load(Relaxed), ns: self.time_ns.load(Relaxed) };
        self.done.load(Acquire).then(moment)
    }

    /// Notes that it is reached.
    pub fn reach(&self, moment: Moment) {
        self.gpu.store(moment.gpu, Relaxed);
        self.time_ns.store(moment.ns, Relaxed);
        // Partner: the Acquire load in `reached`.
        self.done.store(true, Release);
    }
}

/// A program's function to be called in stream order.
#[derive(Clone, Copy, Debug)]
pub enum HostCall {
    /// `cuLaunchHostFunc`.
    Function {
        /// The function.
        function: unsafe extern "C" fn(*mut c_void),
        /// Its argument.
        data: *mut c_void,
    },
    /// `cuStreamAddCallback`.
    Callback {
        /// The function.
        function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        /// The stream as the program named it.
        stream: CUstream,
        /// Its last argument.
        data: *mut c_void,
    },
}

// SAFETY: the interface says that the driver calls the function from a thread of its own.
unsafe impl Send for HostCall {}

impl HostCall {
    /// Calls it.
    pub fn call(self) {
        IN_CALLBACK.set(true);
        match self {
            // SAFETY: the program handed the function over to be called once with this argument.
            Self::Function { function, data } => unsafe { function(data) },
            // SAFETY: as above.
            Self::Callback { function, stream, data } => unsafe { function(stream, CUDA_SUCCESS, data) },
        }
        IN_CALLBACK.set(false);
    }
}

/// One piece of work.
#[derive(Debug)]
pub enum Op {
    /// Takes time on the GPU (ns): kernels, with what they have at work meanwhile, which other processes' kernels slow down.
    Busy(u64, Vec<Phase>),
    /// As `Busy`, for copies, which have engines of their own.
    Copying(u64),
    /// Brings the stream's clock up to a moment.
    Until(u64),
    /// Something notes that this point was reached.
    Mark(Arc<Mark>),
    /// Goes on when another stream reached a point.
    Wait(Arc<Mark>),
    /// Memory operation.
    Memory(MemoryOp),
    /// Moves bytes, for a graph.
    Copy(Box<CopyNode>),
    /// Sets bytes, for a graph.
    Set(SetNode),
    /// Calls the program.
    Host(HostCall),
}

impl Op {
    /// Returns true if the operation runs code of the program.
    pub fn calls_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Fails inside a host function: those must not call the driver, and waiting there would never end.
///
/// # Errors
/// CUDA_ERROR_NOT_PERMITTED.
pub fn not_in_callback() -> Answer {
    if IN_CALLBACK.try_with(Cell::get).unwrap_or(false) { Err(CUDA_ERROR_NOT_PERMITTED) } else { Ok(()) }
}
