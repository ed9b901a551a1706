//! The scheduler: all streams, events, captures and graphs of the process behind one lock.
//!
//! One lock, because every operation may touch several of them (an event joins two streams, a capture
//! joins streams and a graph), and because none holds it for long: programs' functions run, bytes
//! move and threads sleep without it. Memory's locks may be taken under it, never the other way
//! round.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex};

use radrm_cuda_abi::*;
use radrm_emulator_machine::SmPlan;

use crate::engine::context::Context;
use crate::engine::graph::state::Graphs;
use crate::engine::green::Green;
use crate::engine::stream::clock::{Clock, Moment};
use crate::engine::stream::op::{Capture, Event, HostCall, Mark, Op};
use crate::util::ffi::Answer;
use crate::util::handles::Handles;

/// Bit of `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: u32 = 1;

/// The lock, and what goes with it.
pub struct Scheduler {
    /// State behind the lock.
    pub state: Mutex<Sched>,
    /// Notified when queued work is done.
    pub done: Condvar,
    /// Notified when there is queued work.
    pub work: Condvar,
    /// True while the worker runs.
    pub worker: Mutex<bool>,
    /// Captures under way, so that calls outside of captures need no lock.
    pub captures: AtomicUsize,
}

impl Scheduler {
    /// No streams yet.
    pub fn new(handles: Handles, clock: Clock) -> Self {
        Self {
            state: Mutex::new(Sched::new(handles, clock)),
            done: Condvar::new(),
            work: Condvar::new(),
            worker: Mutex::new(false),
            captures: AtomicUsize::new(0),
        }
    }
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
    /// Time at which the work that it was given is done (ns, in the time of its GPU).
    pub end_ns: u64,
    /// Ends of the latest work that was not done when it was given (ns), where time is not real.
    pub ends: VecDeque<u64>,
    /// Capture that it is part of.
    pub capture: Option<u64>,
    /// Nodes that the next captured operation depends on.
    pub frontier: Vec<u64>,
    /// Work that waits for something.
    pub queue: VecDeque<Op>,
    /// True while a host function of it runs.
    pub running: bool,
    /// True if the program destroyed it while it had work.
    pub closing: bool,
    /// Attributes that the program set.
    pub attributes: BTreeMap<u32, [u8; 64]>,
    /// The green context that it is of.
    pub green: Option<Arc<Green>>,
}

impl Stream {
    /// Returns true if the stream waits for the legacy stream, and the legacy stream for it.
    pub fn is_blocking(&self) -> bool {
        self.sort != Sort::Legacy && self.flags & NON_BLOCKING == 0
    }

    /// Moment at which the work that it was given is done.
    pub fn end(&self) -> Moment {
        Moment { gpu: self.gpu, ns: self.end_ns }
    }

    /// The multiprocessors that its kernels are limited to, if they are.
    pub fn multiprocessors(&self) -> Option<u32> {
        self.green.as_ref().map(|green| green.sms)
    }

    /// Returns true if nothing is queued or running.
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
    /// Plans of this process's work on its GPUs, by GPU.
    pub plans: BTreeMap<usize, SmPlan>,
    /// Values written by streams to memory that has no pages.
    pub written: HashMap<CUdeviceptr, u64>,
    /// Calls of the program that belong to no stream.
    pub later: VecDeque<HostCall>,
    /// Marks that streams made later wait for, by context or by the view of a green context.
    pub barriers: Vec<(u64, Arc<Mark>)>,
    pub(crate) next_id: u64,
    pub(crate) handles: Handles,
}

impl Sched {
    fn new(handles: Handles, clock: Clock) -> Self {
        Self {
            streams: HashMap::new(),
            defaults: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: Graphs::new(handles.clone()),
            clock,
            plans: BTreeMap::new(),
            written: HashMap::new(),
            later: VecDeque::new(),
            barriers: Vec::new(),
            next_id: 1,
            handles,
        }
    }

    /// A number for a stream or capture.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes a stream.
    pub fn add_stream(
        &mut self,
        (context, green): (&Context, Option<Arc<Green>>),
        sort: Sort,
        flags: u32,
        priority: i32,
    ) -> u64 {
        let key = self.handles.next();
        let id = self.new_id();
        let view = green.as_ref().map_or(0, |green| green.view.addr());
        let (mut queue, mut end_ns) = (VecDeque::new(), 0);
        let behind = |of: u64| of == context.handle.addr() || of == view;
        for (_, mark) in self.barriers.iter().filter(|(of, _)| behind(*of)) {
            match mark.reached() {
                Some(moment) => end_ns = end_ns.max(self.clock.on(context.gpu, moment)),
                // The stream that will reach it keeps the worker awake.
                None => queue.push_back(Op::Wait(Arc::clone(mark))),
            }
        }
        let stream = Stream {
            key,
            context: context.handle.addr(),
            device: context.device,
            gpu: context.gpu,
            sort,
            flags,
            priority,
            id,
            end_ns,
            ends: VecDeque::new(),
            capture: None,
            frontier: Vec::new(),
            queue,
            running: false,
            closing: false,
            attributes: BTreeMap::new(),
            green,
        };
        self.streams.insert(key, stream);
        key
    }

    /// Forgets a stream once the work that it has is done.
    pub fn close(&mut self, key: u64) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.closing = true;
        if stream.is_idle() {
            self.streams.remove(&key);
        }
    }

    /// Key of a default stream, made if it does not exist; thread 0 is the legacy stream. A green context has default
    /// streams of its own.
    pub fn default_stream(&mut self, context: &Context, green: Option<Arc<Green>>, thread: u64) -> u64 {
        let of = green.as_ref().map_or(context.handle, |green| green.view).addr();
        if let Some(key) = self.defaults.get(&(of, thread)) {
            return *key;
        }
        let sort = if thread == 0 { Sort::Legacy } else { Sort::PerThread };
        let key = self.add_stream((context, green), sort, 0, 0);
        self.defaults.insert((of, thread), key);
        key
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

    /// Keys of a context's streams, those of its green contexts included.
    pub fn streams_of(&self, context: u64) -> BTreeSet<u64> {
        self.streams.values().filter(|s| s.context == context).map(|s| s.key).collect()
    }

    /// Keys of a green context's streams.
    pub fn streams_of_view(&self, view: CUcontext) -> BTreeSet<u64> {
        let of = |stream: &&Stream| stream.green.as_ref().is_some_and(|green| green.view == view);
        self.streams.values().filter(of).map(|stream| stream.key).collect()
    }
}
