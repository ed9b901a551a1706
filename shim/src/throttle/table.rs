//! Launches that are followed in each context: plain words, which [`super::flight`] and [`super::gate`] give their meaning.

use core::sync::atomic::AtomicU64;

/// Events of a context.
pub(super) const EVENTS: usize = 32;

/// The event is free, or there is none.
pub(super) const FREE: u64 = 0;
/// The GPU is to come past.
pub(super) const OUT: u64 = 1;

/// An event and the launches that it stands for.
pub(super) struct Entry {
    pub(super) state: AtomicU64,
    pub(super) event: AtomicU64,
    pub(super) launches: AtomicU64,
}

/// One context. Only touched with the table in hand; atomics with relaxed accesses are plain moves.
pub(super) struct Context {
    pub(super) handle: AtomicU64,
    pub(super) instance: AtomicU64,
    pub(super) used: AtomicU64,
    /// Budget that `due` and `end` belong to.
    pub(super) word: AtomicU64,
    /// Own time that there must have been before the next launch.
    pub(super) due: AtomicU64,
    /// End of the launch slot of the last launch.
    pub(super) end: AtomicU64,
    /// Time at which the latest piece of work that is known was done.
    pub(super) done: AtomicU64,
    /// Time at which work was last seen to be done, and the longest time between two such moments.
    pub(super) progress: AtomicU64,
    pub(super) slowest: AtomicU64,
    /// Event before the first launch, and the time on the host; 0: unknown.
    pub(super) origin: AtomicU64,
    pub(super) origin_ns: AtomicU64,
    /// Launches since the last event, and the stream they went to.
    pub(super) loose: AtomicU64,
    pub(super) stream: AtomicU64,
    pub(super) entries: [Entry; EVENTS],
}

impl Context {
    /// Nothing known.
    pub(super) const fn new() -> Self {
        Self {
            handle: AtomicU64::new(0),
            instance: AtomicU64::new(0),
            used: AtomicU64::new(0),
            word: AtomicU64::new(0),
            due: AtomicU64::new(0),
            end: AtomicU64::new(0),
            done: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
            origin: AtomicU64::new(0),
            origin_ns: AtomicU64::new(0),
            loose: AtomicU64::new(0),
            stream: AtomicU64::new(0),
            entries: [const {
                Entry { state: AtomicU64::new(FREE), event: AtomicU64::new(0), launches: AtomicU64::new(0) }
            }; EVENTS],
        }
    }
}
