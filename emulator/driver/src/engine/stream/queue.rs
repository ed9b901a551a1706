//! Work in streams.
//!
//! Work without a program's own code in it is done when it is enqueued, as on a GPU that is never
//! late: legal, because streams are free to run at any time after that. Host functions and waits for
//! memory make a stream queue up; a worker thread takes queued work off in order. The worker runs
//! host functions one after another, each exactly once.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use radrm_cuda_abi::*;
use radrm_emulator_machine::SmPlan;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::launch;
use crate::engine::memory::copy;
use crate::engine::memory::set::{self, Set};
use crate::engine::stream::ask;
use crate::engine::stream::clock::{Clock, Moment};
use crate::engine::stream::memops::{is_met, write};
use crate::engine::stream::op::{HostCall, Mark, Op};
use crate::engine::stream::state::{Sched, Sort, Stream};
use crate::models::copy::{CopyNode, SetNode};
use crate::models::placement::Phase;
use crate::util::ffi::Answer;
use crate::util::sync::lock;
use crate::util::thread::thread_number;

/// Interval at which waits for a value read memory, and resolution of real time.
const POLL: Duration = Duration::from_micros(200);

impl Sched {
    /// Returns true if the first piece of work of a stream can be done now.
    pub fn is_ready(&self, key: u64, op: &Op) -> bool {
        match op {
            Op::Busy(..) | Op::Copying(_) | Op::Until(_) | Op::Mark(_) | Op::Copy(_) | Op::Set(_) => true,
            Op::Wait(mark) => mark.reached().is_some(),
            Op::Memory(op) => is_met(self, op),
            // Where waiting takes no time the program is called at once.
            Op::Host(_) => {
                self.clock.is_instant() || self.streams.get(&key).is_none_or(|s| self.clock.has_come(s.end()))
            }
        }
    }

    /// Does a piece of work that is ready and does not call the program.
    pub fn execute(&mut self, driver: &'static Driver, key: u64, op: Op) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let now = self.clock.now(stream.gpu);
        match op {
            Op::Busy(ns, phases) => {
                let start = stream.end_ns.max(now);
                stream.end_ns = start.saturating_add(ns);
                if ns > 0 {
                    let end = stream.end_ns;
                    stream.push_end(&mut self.clock, end);
                    works_until(driver, &self.clock, stream.gpu, end);
                }
                let gpu = stream.gpu;
                if !phases.is_empty() {
                    self.place(driver, gpu, now, start, &phases);
                }
            }
            Op::Copying(ns) => {
                let ns = self.clock.of_wall(stream.gpu, ns);
                stream.end_ns = stream.end_ns.max(now).saturating_add(ns);
                let end = stream.end_ns;
                stream.push_end(&mut self.clock, end);
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
            Op::Copy(copy) => copy_bytes(driver, &copy, stream.device),
            Op::Set(set) => set_bytes(driver, &set, stream.device),
            Op::Host(_) => {}
        }
    }

    /// Puts what kernels have at work from `start` on into this process's plan for a GPU, whose time is `now`.
    fn place(&mut self, driver: &Driver, gpu: usize, now: u64, start: u64, phases: &[Phase]) {
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
/// any more is left alone: the graph was launched already, and no call is left that could return an error.
fn copy_bytes(driver: &'static Driver, copy: &CopyNode, device: CUdevice) {
    let (width, rows) = (copy.WidthInBytes as u64, copy.Height as u64);
    for (target, to, source, from) in copy.planes().unwrap_or_default() {
        let _ = copy::rows(driver, device, (target, to), (source, from), width, rows);
    }
}

/// As [`copy_bytes`], for a memset.
fn set_bytes(driver: &'static Driver, set: &SetNode, device: CUdevice) {
    let set = Set {
        address: set.dst,
        pitch: set.pitch as u64,
        value: set.value,
        element: set.elementSize,
        width: set.width as u64,
        rows: set.height as u64,
    };
    let _ = set::fill(driver, device, &set);
}

/// Tells those who would lock the process whether work waits. Called under the scheduler's lock.
fn set_pending(driver: &Driver, pending: bool) {
    driver.process.set_pending(pending);
}

/// Kernels of this process will be on a GPU up to a moment.
fn works_until(driver: &'static Driver, clock: &Clock, gpu: usize, end_ns: u64) {
    if driver.launches.real_time {
        launch::publish(driver, gpu, clock.now(gpu), end_ns);
    }
}

/// Tells the worker that there is work; starts it if it does not run yet.
pub fn wake_worker(driver: &'static Driver) {
    set_pending(driver, true);
    let mut started = lock(&driver.scheduler.worker);
    if !*started {
        *started =
            std::thread::Builder::new().name("emulated-gpu".into()).spawn(move || work(driver)).is_ok();
    }
    driver.scheduler.work.notify_one();
}

/// Lets the worker call the program, in no stream's order.
pub fn call_later(driver: &'static Driver, state: &mut Sched, calls: Vec<HostCall>) {
    if !calls.is_empty() {
        state.later.extend(calls);
        wake_worker(driver);
    }
}

fn work(driver: &'static Driver) {
    block_signals();
    let mut state = driver.sched();
    loop {
        if let Some(call) = state.later.pop_front() {
            drop(state);
            call.call();
            state = driver.sched();
        } else if let Some((key, op)) = state.next_ready() {
            if let Op::Host(call) = op {
                if let Some(stream) = state.streams.get_mut(&key) {
                    stream.running = true;
                }
                drop(state);
                call.call();
                state = driver.sched();
                let state = &mut *state;
                if let Some(stream) = state.streams.get_mut(&key) {
                    stream.running = false;
                    stream.end_ns = stream.end_ns.max(state.clock.now(stream.gpu));
                }
            } else {
                state.execute(driver, key, op);
            }
            state.forget_if_done(key);
            driver.scheduler.done.notify_all();
        } else if state.has_queued() {
            let poisoned = |e: std::sync::PoisonError<_>| e.into_inner();
            state = driver.scheduler.work.wait_timeout(state, POLL).unwrap_or_else(poisoned).0;
        } else {
            set_pending(driver, false);
            state = driver.scheduler.work.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
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
pub fn wait_for(
    driver: &'static Driver,
    mut state: MutexGuard<'static, Sched>,
    keys: &std::collections::BTreeSet<u64>,
) {
    let busy = |state: &Sched| keys.iter().filter_map(|k| state.streams.get(k)).any(|s| !s.is_idle());
    while busy(&state) {
        state = driver.scheduler.done.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    let ends: Vec<Moment> = keys.iter().filter_map(|key| state.streams.get(key)).map(Stream::end).collect();
    for end in ends {
        state = sleep_until(driver, state, end);
    }
}

/// Waits until a moment has come. Gives the lock back when it sleeps.
fn sleep_until(
    driver: &'static Driver,
    mut state: MutexGuard<'static, Sched>,
    moment: Moment,
) -> MutexGuard<'static, Sched> {
    loop {
        let sleep = state.clock.wait_until(moment);
        if sleep.is_zero() {
            return state;
        }
        drop(state);
        std::thread::sleep(sleep);
        state = driver.sched();
    }
}

/// Waits until a point is reached and virtual time has come to it.
pub fn wait_for_mark(driver: &'static Driver, mut state: MutexGuard<'static, Sched>, mark: &Mark) {
    let moment = loop {
        if let Some(moment) = mark.reached() {
            break moment;
        }
        state = driver.scheduler.done.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    };
    drop(sleep_until(driver, state, moment));
}

/// Waits until nothing that was queued in a stream is left, without waiting for virtual time.
pub fn drain(driver: &'static Driver, mut state: MutexGuard<'static, Sched>, key: u64) {
    while state.streams.get(&key).is_some_and(|s| !s.is_idle()) {
        state = driver.scheduler.done.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}

impl Sched {
    /// Key of the stream that a handle means in the calling thread.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE for what is not a stream; for the special handles as
    /// [`Driver::current`]; for a stream whose context is broken the error that broke it.
    pub fn find(&mut self, driver: &'static Driver, handle: CUstream) -> Answer<u64> {
        let thread = match handle {
            CUstream::NULL | CU_STREAM_LEGACY => 0,
            CU_STREAM_PER_THREAD => thread_number(),
            _ => {
                let stream = self.streams.get(&handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                if stream.closing || stream.sort != Sort::Created {
                    return Err(CUDA_ERROR_INVALID_HANDLE);
                }
                if stream.green.as_ref().is_some_and(|green| green.is_destroyed()) {
                    return Err(CUDA_ERROR_STREAM_DETACHED);
                }
                self.context(driver, stream.context)?.check()?;
                return Ok(stream.key);
            }
        };
        let (context, green) = driver.current_part()?;
        Ok(self.default_stream(&context, green, thread))
    }

    /// A context by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_CONTEXT_IS_DESTROYED.
    pub fn context(&self, driver: &'static Driver, handle: u64) -> Answer<Arc<Context>> {
        driver.contexts.get(handle).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
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
                let of = stream.green.as_ref().map_or(stream.context, |green| green.view.addr());
                self.defaults.get(&(of, 0)).copied().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Adds work to a stream: does it now if nothing stands before it, else queues it.
    pub fn enqueue(&mut self, driver: &'static Driver, key: u64, op: Op) {
        ask::submits();
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
                self.push(driver, key, Op::Wait(mark));
            }
        }
        self.push(driver, key, op);
    }

    fn push(&mut self, driver: &'static Driver, key: u64, op: Op) {
        let idle = self.streams.get(&key).is_some_and(Stream::is_idle);
        if idle && self.is_ready(key, &op) && !op.calls_host() {
            self.execute(driver, key, op);
        } else if let Some(stream) = self.streams.get_mut(&key) {
            stream.queue.push_back(op);
            wake_worker(driver);
        }
    }
}
