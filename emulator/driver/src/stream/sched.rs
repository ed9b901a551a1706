//! The scheduler: all streams, events, captures and graphs of the process behind one lock.
//!
//! One lock, because every operation may touch several of them (an event joins two streams, a capture
//! joins streams and a graph), and because none holds it for long: programs' functions run, bytes
//! move and threads sleep without it. Memory's locks may be taken under it, never the other way
//! round.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};

use radrm_cuda_abi::*;
use radrm_emulator_machine::SmPlan;

use super::clock::{Clock, Moment};
use super::queue::{HostCall, Mark, Op};
use crate::capture::Capture;
use crate::context::Context;
use crate::event::Event;
use crate::ffi::Answer;
use crate::graph::Graphs;
use crate::state::{Driver, lock, new_handle};

/// Bit of `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: u32 = 1;

static SCHED: LazyLock<Mutex<Sched>> = LazyLock::new(|| Mutex::new(Sched::new()));
/// Told when queued work is done.
pub static DONE: Condvar = Condvar::new();
/// Told when there is queued work.
pub static WORK: Condvar = Condvar::new();

/// Takes the scheduler's lock.
pub fn sched() -> MutexGuard<'static, Sched> {
    lock(&SCHED)
}

/// Number of the calling thread, never 0 and never used again.
pub fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(u64::MAX)
}

/// Sort of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// The legacy default stream of a context.
    Legacy,
    /// A thread's default stream in a context.
    PerThread,
    /// Made by the program.
    Created,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Key; the program's handle if it made the stream.
    pub key: u64,
    /// Handle of its context.
    pub context: u64,
    /// Ordinal of its device.
    pub device: CUdevice,
    /// GPU on the machine.
    pub gpu: usize,
    /// Sort.
    pub sort: Sort,
    /// Flags it was made with.
    pub flags: u32,
    /// Priority, 0 (least) to -5.
    pub priority: i32,
    /// Number that no other stream of the process has.
    pub id: u64,
    /// When the work that it was given is done (ns, in the time of its GPU).
    pub end_ns: u64,
    /// Capture that it is part of.
    pub capture: Option<u64>,
    /// Nodes that the next captured operation depends on.
    pub frontier: Vec<u64>,
    /// Work that waits for something.
    pub queue: VecDeque<Op>,
    /// Whether a host function of it is running.
    pub running: bool,
    /// Whether the program destroyed it while it had work.
    pub closing: bool,
    /// Attributes that the program set.
    pub attributes: BTreeMap<u32, [u8; 64]>,
}

impl Stream {
    /// Whether it waits for the legacy stream and that for it.
    pub fn is_blocking(&self) -> bool {
        self.sort != Sort::Legacy && self.flags & NON_BLOCKING == 0
    }

    /// When the work that it was given is done.
    pub fn end(&self) -> Moment {
        Moment { gpu: self.gpu, ns: self.end_ns }
    }

    /// Whether nothing is queued or running.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.running
    }
}

/// See the module.
pub struct Sched {
    /// Streams by key.
    pub streams: HashMap<u64, Stream>,
    /// Default streams: (context, thread) -> key; thread 0 is the legacy stream.
    pub defaults: HashMap<(u64, u64), u64>,
    /// Events by handle.
    pub events: HashMap<u64, Event>,
    /// Captures under way by number.
    pub captures: HashMap<u64, Capture>,
    /// Graphs, nodes and executable graphs.
    pub graphs: Graphs,
    /// The host's clock.
    pub clock: Clock,
    /// What this process has at work on its GPUs.
    pub plans: BTreeMap<usize, SmPlan>,
    /// Values written by streams to memory that has no pages.
    pub written: HashMap<CUdeviceptr, u64>,
    /// Calls of the program that belong to no stream.
    pub later: VecDeque<HostCall>,
    next_id: u64,
}

impl Sched {
    fn new() -> Self {
        Self {
            streams: HashMap::new(),
            defaults: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: Graphs::default(),
            clock: Clock::from_environment(),
            plans: BTreeMap::new(),
            written: HashMap::new(),
            later: VecDeque::new(),
            next_id: 1,
        }
    }

    /// A number for a stream or capture.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes a stream.
    pub fn add_stream(&mut self, context: &Context, sort: Sort, flags: u32, priority: i32) -> u64 {
        let key = new_handle();
        let id = self.new_id();
        let stream = Stream {
            key,
            context: context.handle.addr(),
            device: context.device,
            gpu: context.gpu,
            sort,
            flags,
            priority,
            id,
            end_ns: 0,
            capture: None,
            frontier: Vec::new(),
            queue: VecDeque::new(),
            running: false,
            closing: false,
            attributes: BTreeMap::new(),
        };
        self.streams.insert(key, stream);
        key
    }

    /// Key of the stream that a handle means in the calling thread.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE for what is no stream; for the special handles as
    /// [`Driver::current`]; for a stream whose context is broken the error that broke it.
    pub fn find(&mut self, driver: &Driver, handle: CUstream) -> Answer<u64> {
        let thread = match handle {
            CUstream::NULL | CU_STREAM_LEGACY => 0,
            CU_STREAM_PER_THREAD => thread_number(),
            _ => {
                let stream = self.streams.get(&handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                if stream.closing || stream.sort != Sort::Created {
                    return Err(CUDA_ERROR_INVALID_HANDLE);
                }
                self.context(driver, stream.context)?.check()?;
                return Ok(stream.key);
            }
        };
        let context = driver.current()?;
        Ok(self.default_stream(&context, thread))
    }

    /// Key of a default stream, made if it does not exist; thread 0 is the legacy stream.
    pub fn default_stream(&mut self, context: &Context, thread: u64) -> u64 {
        if let Some(key) = self.defaults.get(&(context.handle.addr(), thread)) {
            return *key;
        }
        let sort = if thread == 0 { Sort::Legacy } else { Sort::PerThread };
        let key = self.add_stream(context, sort, 0, 0);
        self.defaults.insert((context.handle.addr(), thread), key);
        key
    }

    /// A context by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_CONTEXT_IS_DESTROYED.
    pub fn context(&self, driver: &Driver, handle: u64) -> Answer<Arc<Context>> {
        driver.contexts.get(handle).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// A stream by key.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn stream(&self, key: u64) -> Answer<&Stream> {
        self.streams.get(&key).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// A stream by key.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn stream_mut(&mut self, key: u64) -> Answer<&mut Stream> {
        self.streams.get_mut(&key).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Streams of the same context that order themselves with this one through the legacy stream:
    /// the legacy stream for a blocking one, all blocking ones for the legacy stream.
    fn ordered_with(&self, key: u64) -> Vec<u64> {
        let Some(stream) = self.streams.get(&key) else { return Vec::new() };
        match stream.sort {
            Sort::Legacy => self
                .streams
                .values()
                .filter(|s| s.context == stream.context && s.is_blocking())
                .map(|s| s.key)
                .collect(),
            _ if stream.is_blocking() => {
                self.defaults.get(&(stream.context, 0)).copied().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Adds work to a stream: does it now if nothing stands before it, else queues it.
    pub fn enqueue(&mut self, key: u64, op: Op) {
        for other in self.ordered_with(key) {
            let Some(before) = self.streams.get_mut(&other) else { continue };
            if before.is_idle() {
                let end = before.end_ns;
                if let Some(stream) = self.streams.get_mut(&key) {
                    stream.end_ns = stream.end_ns.max(end);
                }
            } else {
                let mark = Arc::new(Mark::default());
                before.queue.push_back(Op::Mark(Arc::clone(&mark)));
                self.push(key, Op::Wait(mark));
            }
        }
        self.push(key, op);
    }

    fn push(&mut self, key: u64, op: Op) {
        let idle = self.streams.get(&key).is_some_and(Stream::is_idle);
        if idle && self.is_ready(key, &op) && !op.calls_host() {
            self.execute(key, op);
        } else if let Some(stream) = self.streams.get_mut(&key) {
            stream.queue.push_back(op);
            super::queue::wake_worker();
        }
    }

    /// Keys of a context's streams.
    pub fn streams_of(&self, context: u64) -> BTreeSet<u64> {
        self.streams.values().filter(|s| s.context == context).map(|s| s.key).collect()
    }
}
