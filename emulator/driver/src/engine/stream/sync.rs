//! Streams of a context: finding, waiting for all of them, ending.

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::stream::event;
use crate::engine::stream::op::{Op, not_in_callback};
use crate::engine::stream::queue::wait_for;
use crate::engine::stream::state::{Sched, Sort};
use crate::util::ffi::Answer;

/// Checks that a stream handle can be used in the current context; null and the two special handles can.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE and the like.
pub fn check(driver: &'static Driver, _context: &Arc<Context>, stream: CUstream) -> Answer {
    driver.sched().find(driver, stream).map(drop)
}

/// The context that a stream's work runs in: `current` for the special handles.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn context_of(driver: &'static Driver, current: &Arc<Context>, stream: CUstream) -> Answer<Arc<Context>> {
    if matches!(stream, CUstream::NULL | CU_STREAM_LEGACY | CU_STREAM_PER_THREAD) {
        return Ok(Arc::clone(current));
    }
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    let context = state.stream(key)?.context;
    state.context(driver, context)
}

/// Waits for all work of a context. The caller tells the memory side afterwards.
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of it captures, which invalidates that capture;
/// the error that broke the context.
pub fn synchronize_context(driver: &'static Driver, context: &Arc<Context>) -> Answer {
    not_in_callback()?;
    let mut state = driver.sched();
    let keys = state.streams_of(context.handle.addr());
    let captures: Vec<u64> = keys.iter().filter_map(|key| state.streams.get(key)?.capture).collect();
    if !captures.is_empty() {
        captures.into_iter().for_each(|id| state.invalidate(id));
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    state.unsafe_call()?;
    wait_for(driver, state, &keys);
    context.check()
}

impl Sched {
    /// A green context ends: captures in its streams end with it, its default streams are forgotten.
    pub fn detach(&mut self, driver: &Driver, view: CUcontext) {
        for key in self.streams_of_view(view) {
            let Some(stream) = self.streams.get(&key) else { continue };
            let is_default = stream.sort != Sort::Created;
            if let Some(capture) = stream.capture {
                self.invalidate(capture);
            }
            if is_default {
                self.abandon(driver, key);
                self.close(key);
            }
        }
        self.defaults.retain(|(of, _), _| *of != view.addr());
        self.barriers.retain(|(of, _)| *of != view.addr());
    }
}

/// A context ends: its streams, events and captures end with it, after their work.
pub fn context_destroyed(driver: &'static Driver, context: &Arc<Context>) {
    let of = context.handle.addr();
    let mut state = driver.sched();
    let keys = state.streams_of(of);
    for key in &keys {
        state.abandon(driver, *key);
    }
    for stream in state.streams.values_mut().filter(|s| s.context == of) {
        // No stream will write these values any more: a wait for them would keep the context.
        stream.queue.retain(|op| !matches!(op, Op::Memory(_)));
    }
    if not_in_callback().is_ok() {
        wait_for(driver, state, &keys);
        state = driver.sched();
    }
    forget(&mut state, of);
}

fn forget(state: &mut Sched, context: u64) {
    state.streams.retain(|_, stream| stream.context != context);
    let left = &state.streams;
    state.defaults.retain(|_, key| left.contains_key(key));
    state.barriers.retain(|(of, _)| *of != context);
    event::context_destroyed(state, context);
}
