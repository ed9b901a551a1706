//! cuDNN: handles, the backend's descriptors, and the older interface.
//!
//! | module | is |
//! |---|---|
//! | [`backend`] | descriptors of the graph interface |
//! | [`workspace`] | how much memory an operation wants from its caller |
//! | [`legacy`] | descriptors of tensors and convolutions, and what is asked of them |
//! | [`rnn`] | recurrent networks |

pub mod backend;
pub mod legacy;
pub mod rnn;
pub mod workspace;

use core::ffi::{CStr, c_char, c_int};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Out, set_text};

use crate::handles::{Registry, library};
use crate::runtime;

/// A handle: it remembers its stream. Its creation takes no memory that calls of the program's allocator
/// see; the library's code is part of the context's figure.
static HANDLES: Registry<u64> = Registry::new();

const VERSION: [c_int; 3] = [9, 26, 0];

/// A driver's code as a status of cuDNN.
fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => 2000,
        CUDA_ERROR_NOT_SUPPORTED => 3000,
        CUDA_ERROR_OUT_OF_MEMORY => 4004,
        CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_NO_DEVICE => 1001,
        _ => 4000,
    }
}

library! { status;
    /// Makes a handle.
    fn radrm_cudnnCreate(out: Out<u64>) {
        out.required()?;
        runtime::memory::device_now()?;
        out.set(HANDLES.add(0))
    }

    /// Destroys a handle.
    fn radrm_cudnnDestroy(handle: u64) {
        HANDLES.remove(handle).map(|_| ())
    }

    /// Sets the stream.
    fn radrm_cudnnSetStream(handle: u64, stream: u64) {
        HANDLES.with(handle, |own| *own = stream)
    }

    /// The stream.
    fn radrm_cudnnGetStream(handle: u64, out: Out<u64>) {
        out.set(HANDLES.with(handle, |own| *own)?)
    }

    /// A part of the version.
    fn radrm_cudnnGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| VERSION.get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Errors that kernels report later: none.
    fn radrm_cudnnQueryRuntimeError(_handle: u64, out: Out<c_int>, _mode: c_int, _tag: u64) {
        out.set(0)
    }
}

/// Version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudnnGetVersion() -> usize {
    (VERSION[0] * 10000 + VERSION[1] * 100 + VERSION[2]).unsigned_abs() as usize
}

/// Version of the runtime that it was made for.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudnnGetCudartVersion() -> usize {
    13020
}

/// The newest device that it knows.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudnnGetMaxDeviceVersion() -> usize {
    1210
}

const NAMES: &[(c_int, &CStr)] = &[
    (0, c"CUDNN_STATUS_SUCCESS"),
    (1001, c"CUDNN_STATUS_NOT_INITIALIZED"),
    (2000, c"CUDNN_STATUS_BAD_PARAM"),
    (3000, c"CUDNN_STATUS_NOT_SUPPORTED"),
    (4000, c"CUDNN_STATUS_INTERNAL_ERROR"),
    (4004, c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    (5000, c"CUDNN_STATUS_EXECUTION_FAILED"),
];

/// A status in words: its name.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudnnGetErrorString(status: c_int) -> *const c_char {
    NAMES.iter().find(|(code, _)| *code == status).map_or(c"CUDNN_UNKNOWN_STATUS", |(_, name)| name).as_ptr()
}

/// The last error at length: nothing is kept.
///
/// # Safety
/// `text` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_cudnnGetLastErrorString(text: Out<c_char>, room: usize) {
    let _ = set_text(text, room, "");
}
