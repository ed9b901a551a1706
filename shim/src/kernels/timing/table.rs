//! The table of marks: plain words, which [`super::marks`] gives their meaning.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Marks of all contexts.
pub(super) const MARKS: usize = 1024;
/// Contexts whose span of use is followed.
const CONTEXTS: usize = 32;

/// No events.
pub(super) const EMPTY: u64 = 0;
/// Events that are free.
pub(super) const FREE: u64 = 1;
/// In a thread's hands.
pub(super) const TAKEN: u64 = 2;
/// The GPU is to come past.
pub(super) const OUT: u64 = 3;
/// One of the events was put into a capture: it is never queried after that.
pub(super) const CAPTURED: u64 = 4;

/// One pair of events.
#[repr(C, align(64))]
pub(super) struct Mark {
    pub(super) state: AtomicU64,
    pub(super) context: AtomicU64,
    /// The context's number among all that ever were.
    pub(super) instance: AtomicU64,
    pub(super) start: AtomicU64,
    pub(super) end: AtomicU64,
    /// A stratum's address, or that of a graph's plan.
    pub(super) what: AtomicU64,
    /// Launches that the time stands for.
    pub(super) weight: AtomicU64,
    /// 0 for a stratum, the plan's serial number for a plan; below, how the launch fills the GPU, and the GPU.
    pub(super) serial: AtomicU64,
    /// The host's time before the first event.
    pub(super) launched: AtomicU64,
    /// The launch's stream, see [`super::samples::stream_word`].
    pub(super) stream: AtomicU64,
    /// The launch's shape: blocks, then threads of a block and, above, dynamic shared memory.
    pub(super) blocks: AtomicU64,
    pub(super) block: AtomicU64,
}

/// The first event in a context.
pub(super) struct Origin {
    pub(super) instance: AtomicU64,
    pub(super) event: AtomicU64,
}

/// The process's marks. All zeros is none.
pub(crate) struct Marks {
    pub(super) marks: [Mark; MARKS],
    /// Marks beyond have never had events.
    pub(super) used: AtomicUsize,
    /// Mark at which the next harvest begins.
    pub(super) cursor: AtomicUsize,
    pub(super) origins: [Origin; CONTEXTS],
}

impl Origin {
    const fn new() -> Self {
        Self { instance: AtomicU64::new(0), event: AtomicU64::new(0) }
    }
}

impl Mark {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(EMPTY),
            context: AtomicU64::new(0),
            instance: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            what: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            launched: AtomicU64::new(0),
            stream: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            block: AtomicU64::new(0),
        }
    }

    /// Moves from one state to another, if it is still in the first.
    pub(super) fn pass(&self, from: u64, to: u64) -> bool {
        // AcqRel: the words of a mark go with its state from thread to thread.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Lets go of a mark in hand.
    pub(super) fn leave(&self, state: u64) {
        self.state.store(state, Ordering::Release);
    }
}

impl Marks {
    /// No marks.
    pub(super) const fn new() -> Self {
        Self {
            marks: [const { Mark::new() }; MARKS],
            used: AtomicUsize::new(0),
            cursor: AtomicUsize::new(0),
            origins: [const { Origin::new() }; CONTEXTS],
        }
    }
}
