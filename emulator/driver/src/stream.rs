//! Streams and virtual time.
//!
//! | module | is |
//! |---|---|
//! | [`clock`] | virtual time, and how it relates to the wall clock |
//! | [`sched`] | all streams behind one lock |
//! | [`queue`] | work in streams, the worker that calls host functions, waiting |
//! | [`memops`] | values that streams wait for and write |
//! | `api` | entry points |

mod api;
pub mod clock;
pub mod memops;
pub mod queue;
pub mod sched;

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::context::Context;
use crate::event;
use crate::ffi::Answer;
use crate::launch::timing::{self, TransferKind};
use crate::state::Driver;
use queue::{Op, not_in_callback, wait_for};
use sched::{Sched, sched};

/// Way of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Between places of host memory.
    HostToHost,
    /// To a device.
    HostToDevice,
    /// From a device.
    DeviceToHost,
    /// Within a device; memsets too.
    OnDevice,
    /// From one device to another.
    Peer,
}

impl Direction {
    fn kind(self) -> TransferKind {
        match self {
            Self::HostToHost => TransferKind::HostToHost,
            Self::HostToDevice => TransferKind::HostToDevice,
            Self::DeviceToHost => TransferKind::DeviceToHost,
            Self::OnDevice => TransferKind::DeviceToDevice,
            Self::Peer => TransferKind::PeerToPeer,
        }
    }
}

/// Whether a stream handle can be used in the current context; null and the two special handles can.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE and the like.
pub fn check(driver: &Driver, _context: &Arc<Context>, stream: CUstream) -> Answer {
    sched().find(driver, stream).map(drop)
}

/// The context that a stream's work runs in: `current` for the special handles.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn context_of(driver: &Driver, current: &Arc<Context>, stream: CUstream) -> Answer<Arc<Context>> {
    if matches!(stream, CUstream::NULL | CU_STREAM_LEGACY | CU_STREAM_PER_THREAD) {
        return Ok(Arc::clone(current));
    }
    let mut state = sched();
    let key = state.find(driver, stream)?;
    let context = state.stream(key)?.context;
    state.context(driver, context)
}

/// Called before the bytes of every copy and memset that is not captured are moved: takes its time of
/// the stream (`asynchronous`), or waits for the stream and takes its time of the caller.
///
/// Where device memory has pages, an asynchronous copy also waits for host functions that stand before
/// it in the stream, because its bytes move at the call.
///
/// # Errors
/// As [`check`], CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_NOT_PERMITTED in a host function.
pub fn copied(
    driver: &Driver,
    context: &Arc<Context>,
    stream: CUstream,
    bytes: u64,
    direction: Direction,
    asynchronous: bool,
) -> Answer {
    not_in_callback()?;
    let mut state = sched();
    let key = state.find(driver, stream)?;
    if asynchronous {
        state.admit(key)?;
    } else {
        state.not_capturing(key)?;
    }
    let gpu = driver.gpu_spec(driver.device(context.device)?);
    let ns = timing::transfer(gpu, direction.kind(), bytes);
    driver.process.copied(context.gpu, ns);
    state.enqueue(key, Op::Copying(ns));
    if !asynchronous {
        wait_for(state, &event::only(key));
    } else if driver.backed && !state.stream(key)?.is_idle() {
        queue::drain(state, key);
    }
    Ok(())
}

/// Waits for all work of a context. The caller tells the memory side afterwards.
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream of it captures, which invalidates that capture;
/// the error that broke the context.
pub fn synchronize_context(_driver: &Driver, context: &Arc<Context>) -> Answer {
    not_in_callback()?;
    let mut state = sched();
    let keys = state.streams_of(context.handle.addr());
    let captures: Vec<u64> = keys.iter().filter_map(|key| state.streams.get(key)?.capture).collect();
    if !captures.is_empty() {
        captures.into_iter().for_each(|id| state.invalidate(id));
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    state.unsafe_call()?;
    wait_for(state, &keys);
    context.check()
}

/// A context was made.
pub fn context_created(_driver: &Driver, _context: &Arc<Context>) {}

/// A context ends: its streams, events and captures end with it, after their work.
pub fn context_destroyed(driver: &Driver, context: &Arc<Context>) {
    let of = context.handle.addr();
    let mut state = sched();
    let keys = state.streams_of(of);
    for key in &keys {
        state.abandon(*key);
    }
    for stream in state.streams.values_mut().filter(|s| s.context == of) {
        // Values that nobody will write any more must not keep the context.
        stream.queue.retain(|op| !matches!(op, Op::Memory(_)));
    }
    if not_in_callback().is_ok() {
        wait_for(state, &keys);
        state = sched();
    }
    forget(&mut state, of);
    drop(state);
    crate::graph::context_destroyed(driver, context);
}

fn forget(state: &mut Sched, context: u64) {
    state.streams.retain(|_, stream| stream.context != context);
    state.defaults.retain(|(of, _), _| *of != context);
    event::context_destroyed(state, context);
}
