//! Streams and virtual time.

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::context::Context;
use crate::ffi::Answer;
use crate::state::Driver;

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

/// Whether a stream handle can be used in the current context; null and the two special handles can.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE and the like.
pub fn check(_driver: &Driver, _context: &Arc<Context>, _stream: CUstream) -> Answer {
    Ok(())
}

/// The context that a stream's work runs in: `current` for the special handles.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn context_of(_driver: &Driver, current: &Arc<Context>, _stream: CUstream) -> Answer<Arc<Context>> {
    Ok(current.clone())
}

/// Called for every copy and memset that is not captured: takes its time of the stream
/// (`asynchronous`) or of the caller.
///
/// # Errors
/// As [`check`].
pub fn copied(
    _driver: &Driver,
    _context: &Arc<Context>,
    _stream: CUstream,
    _bytes: u64,
    _direction: Direction,
    _asynchronous: bool,
) -> Answer {
    Ok(())
}

/// Waits for all work of a context. The caller tells the memory side afterwards.
///
/// # Errors
/// The error that broke the context.
pub fn synchronize_context(_driver: &Driver, _context: &Arc<Context>) -> Answer {
    Ok(())
}

/// A context was made.
pub fn context_created(_driver: &Driver, _context: &Arc<Context>) {}

/// A context ends: its streams end with it.
pub fn context_destroyed(_driver: &Driver, _context: &Arc<Context>) {}
