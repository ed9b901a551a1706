//! Streams and events, as far as they differ from the driver's.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use super::runtime;
use radrm_cuda_client as driver;

runtime! {
    /// Makes a stream.
    with_context radrm_cudaStreamCreate(out: *mut CUstream) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuStreamCreate(out, 0) }
    }

    /// Makes a stream with flags.
    with_context radrm_cudaStreamCreateWithFlags(out: *mut CUstream, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuStreamCreate(out, flags) }
    }

    /// Makes an event.
    with_context radrm_cudaEventCreate(out: *mut CUevent) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuEventCreate(out, 0) }
    }

    /// Makes an event with flags.
    with_context radrm_cudaEventCreateWithFlags(out: *mut CUevent, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuEventCreate(out, flags) }
    }

    /// Calls a function of the host in stream order.
    with_context radrm_cudaLaunchHostFunc(stream: CUstream, function: *const c_void, data: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuLaunchHostFunc(stream, function.cast_mut(), data) }
    }
}
