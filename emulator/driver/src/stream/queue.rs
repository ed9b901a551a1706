//! Work in streams.
//!
//! Work without a program's own code in it is done when it is enqueued, as on a GPU that is never
//! late: legal, because streams are free to run at any time after that. Host functions and waits for
//! memory make a stream queue up; a worker thread takes queued work off in order. The worker runs
//! host functions one after another, each exactly once.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use radrm_cuda_abi::*;
use radrm_emulator_machine::SmPlan;

use super::clock::Moment;
use super::memops::{MemoryOp, is_met, write};
use super::sched::{DONE, Sched, Stream, WORK, sched};
use crate::ffi::Answer;
use crate::graph::{CopyNode, SetNode};
use crate::launch::placement::Phase;
use crate::memory;
use crate::state::lock;

/// How often waits for a value look at memory, and how finely real time is kept.
const POLL: Duration = Duration::from_micros(200);

/// A point in a stream's work, and when it was reached.
#[derive(Debug, Default)]
pub struct Mark {
    done: AtomicBool,
    gpu: AtomicUsize,
    time_ns: AtomicU64,
}

impl Mark {
    /// The moment at which it was reached, if the work before it is done.
    pub fn reached(&self) -> Option<Moment> {
        // Partner: the Release store in `reach`.
        let moment = || Moment { gpu: self.gpu.load(Relaxed), ns: self.time_ns.load(Relaxed) };
        self.done.load(Acquire).then(moment)
    }

    fn reach(&self, moment: Moment) {
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
    fn call(self) {
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
    /// Whether it runs code of the program.
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

impl Sched {
    /// Whether the first piece of work of a stream can be done now.
    pub fn is_ready(&self, key: u64, op: &Op) -> bool {
        match op {
            Op::Busy(..) | Op::Copying(_) | Op::Until(_) | Op::Mark(_) | Op::Copy(_) | Op::Set(_) => true,
            Op::Wait(mark) => mark.reached().is_some(),
            Op::Memory(op) => is_met(self, op),
            Op::Host(_) => self.streams.get(&key).is_none_or(|s| self.clock.has_come(s.end())),
        }
    }

    /// Does a piece of work that is ready and does not call the program.
    pub fn execute(&mut self, key: u64, op: Op) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let now = self.clock.now(stream.gpu);
        match op {
            Op::Busy(ns, phases) => {
                let start = stream.end_ns.max(now);
                stream.end_ns = start.saturating_add(ns);
                if ns > 0 {
                    self.clock.works_until(stream.end());
                }
                let gpu = stream.gpu;
                if !phases.is_empty() {
                    self.place(gpu, now, start, &phases);
                }
            }
            Op::Copying(ns) => {
                let ns = self.clock.of_wall(stream.gpu, ns);
                stream.end_ns = stream.end_ns.max(now).saturating_add(ns);
            }
            Op::Until(moment) => stream.end_ns = stream.end_ns.max(moment),
            Op::Mark(mark) => {
                stream.end_ns = stream.end_ns.max(now);
                mark.reach(stream.end());
            }
            Op::Wait(mark) => {
                let moment = mark.reached().map_or(0, |moment| self.clock.on(stream.gpu, moment));
                stream.end_ns = stream.end_ns.max(moment);
            }
            Op::Memory(op) => write(self, &op),
            Op::Copy(copy) => copy_bytes(&copy, stream.device),
            Op::Set(set) => set_bytes(&set, stream.device),
            Op::Host(_) => {}
        }
    }

    /// Puts what kernels have at work from `start` on into this process's plan for a GPU, whose time is `now`.
    fn place(&mut self, gpu: usize, now: u64, start: u64, phases: &[Phase]) {
        let Ok(driver) = crate::state::driver() else { return };
        let Some(spec) = driver.machine.gpu(gpu) else { return };
        let new = || SmPlan::new(spec.sms, spec.max_threads_per_sm / 32);
        let plan = self.plans.entry(gpu).or_insert_with(new);
        plan.pass(now);
        for phase in phases {
            plan.place(
                start.saturating_add_signed(phase.from),
                start.saturating_add_signed(phase.until),
                phase.load,
            );
        }
        driver.process.publish(gpu, plan);
    }

    /// Takes the next piece of queued work that is ready, from any stream.
    fn next_ready(&mut self) -> Option<(u64, Op)> {
        let ready = |s: &Stream| !s.running && s.queue.front().is_some_and(|op| self.is_ready(s.key, op));
        let key = self.streams.values().filter(|s| ready(s)).map(|s| s.key).min()?;
        let op = self.streams.get_mut(&key)?.queue.pop_front()?;
        Some((key, op))
    }

    fn has_queued(&self) -> bool {
        !self.later.is_empty() || self.streams.values().any(|s| !s.queue.is_empty())
    }

    fn forget_if_done(&mut self, key: u64) {
        if self.streams.get(&key).is_some_and(|s| s.closing && s.is_idle()) {
            self.streams.remove(&key);
        }
    }
}

/// Moves the bytes of a copy between addresses; arrays have no pages here. An end that is not valid
/// any more is left alone: the graph was launched already, there is nobody to tell.
fn copy_bytes(copy: &CopyNode, device: CUdevice) {
    let Ok(driver) = crate::state::driver() else { return };
    let (width, rows) = (copy.WidthInBytes as u64, copy.Height as u64);
    for (target, to, source, from) in copy.planes().unwrap_or_default() {
        let _ = memory::copy::rows(driver, device, (target, to), (source, from), width, rows);
    }
}

/// As [`copy_bytes`], for a memset.
fn set_bytes(set: &SetNode, device: CUdevice) {
    let Ok(driver) = crate::state::driver() else { return };
    let set = memory::set::Set {
        address: set.dst,
        pitch: set.pitch as u64,
        value: set.value,
        element: set.elementSize,
        width: set.width as u64,
        rows: set.height as u64,
    };
    let _ = memory::set::fill(driver, device, &set);
}

/// Tells those who would lock the process whether work waits. Called under the scheduler's lock.
fn set_pending(pending: bool) {
    if let Ok(driver) = crate::state::driver() {
        driver.process.set_pending(pending);
    }
}

/// Tells the worker that there is work; starts it if it does not run yet.
pub fn wake_worker() {
    set_pending(true);
    static STARTED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut started = lock(&STARTED);
    if !*started {
        *started = std::thread::Builder::new().name("emulated-gpu".into()).spawn(work).is_ok();
    }
    WORK.notify_one();
}

/// Lets the worker call the program, in no stream's order.
pub fn call_later(state: &mut Sched, calls: Vec<HostCall>) {
    if !calls.is_empty() {
        state.later.extend(calls);
        wake_worker();
    }
}

fn work() {
    block_signals();
    let mut state = sched();
    loop {
        if let Some(call) = state.later.pop_front() {
            drop(state);
            call.call();
            state = sched();
        } else if let Some((key, op)) = state.next_ready() {
            if let Op::Host(call) = op {
                if let Some(stream) = state.streams.get_mut(&key) {
                    stream.running = true;
                }
                drop(state);
                call.call();
                state = sched();
                let state = &mut *state;
                if let Some(stream) = state.streams.get_mut(&key) {
                    stream.running = false;
                    stream.end_ns = stream.end_ns.max(state.clock.now(stream.gpu));
                }
            } else {
                state.execute(key, op);
            }
            state.forget_if_done(key);
            DONE.notify_all();
        } else if state.has_queued() {
            let poisoned = |e: std::sync::PoisonError<_>| e.into_inner();
            state = WORK.wait_timeout(state, POLL).unwrap_or_else(poisoned).0;
        } else {
            set_pending(false);
            state = WORK.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// The program's signals belong to the program's threads.
fn block_signals() {
    // SAFETY: `all` is filled by sigfillset before it is read; no old mask is asked for.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Waits until nothing that was queued in the streams is left, and until virtual time has come to
/// their end. Gives the lock back when it sleeps.
pub fn wait_for(mut state: MutexGuard<'static, Sched>, keys: &std::collections::BTreeSet<u64>) {
    let busy = |state: &Sched| keys.iter().filter_map(|k| state.streams.get(k)).any(|s| !s.is_idle());
    while busy(&state) {
        state = DONE.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    let ends: Vec<Moment> = keys.iter().filter_map(|key| state.streams.get(key)).map(Stream::end).collect();
    for end in ends {
        state = sleep_until(state, end);
    }
}

/// Waits until a moment has come. Gives the lock back when it sleeps.
fn sleep_until(mut state: MutexGuard<'static, Sched>, moment: Moment) -> MutexGuard<'static, Sched> {
    loop {
        let sleep = state.clock.wait_until(moment);
        if sleep.is_zero() {
            return state;
        }
        drop(state);
        std::thread::sleep(sleep);
        state = sched();
    }
}

/// Waits until a point is reached and virtual time has come to it.
pub fn wait_for_mark(mut state: MutexGuard<'static, Sched>, mark: &Mark) {
    let moment = loop {
        if let Some(moment) = mark.reached() {
            break moment;
        }
        state = DONE.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    };
    drop(sleep_until(state, moment));
}

/// Waits until nothing that was queued in a stream is left, without waiting for virtual time.
pub fn drain(mut state: MutexGuard<'static, Sched>, key: u64) {
    while state.streams.get(&key).is_some_and(|s| !s.is_idle()) {
        state = DONE.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}
