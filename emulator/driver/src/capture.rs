//! Stream capture, as far as memory calls have to know of it.

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::context::Context;
use crate::ffi::Answer;
use crate::state::Driver;

/// A stream-ordered memory call as a capture sees it.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// `cuMemAllocAsync` and its kin.
    Alloc {
        /// Device of the pool.
        device: CUdevice,
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// `cuMemFreeAsync`.
    Free {
        /// Address.
        address: CUdeviceptr,
    },
    /// Any copy: one row has `width` bytes.
    Copy {
        /// First byte written.
        target: CUdeviceptr,
        /// First byte read.
        source: CUdeviceptr,
        /// Bytes of a row.
        width: u64,
        /// Rows, over all planes.
        rows: u64,
    },
    /// Any memset.
    Set {
        /// First byte written.
        target: CUdeviceptr,
        /// Distance of rows in bytes.
        pitch: u64,
        /// Value of an element.
        value: u32,
        /// Bytes of an element: 1, 2 or 4.
        element: u32,
        /// Elements of a row.
        width: u64,
        /// Rows.
        rows: u64,
    },
}

/// What came of an operation that was offered to a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// The stream is not capturing: go on.
    No,
    /// It is a node of the graph now.
    Yes,
    /// It is an allocation node; the memory will be here.
    At(CUdeviceptr),
}

/// Offers a stream-ordered memory call to the capture that its stream may be part of.
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED and the like.
pub fn offer(
    _driver: &Driver,
    _context: &Arc<Context>,
    _stream: CUstream,
    _operation: Operation,
) -> Answer<Recorded> {
    Ok(Recorded::No)
}

/// Called by every call that may not run while a capture is under way that the calling thread
/// respects (allocations, synchronous copies): such a call invalidates the capture.
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
pub fn unsafe_call(_driver: &Driver) -> Answer {
    Ok(())
}
