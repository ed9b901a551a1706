//! Entry points for profilers. There is no profiler.

use core::ffi::{c_char, c_uint};

use radrm_cuda_abi::*;

use crate::util::ffi::In;

entry_points! {
    /// Set a profiler up that drivers have no more.
    fn cuProfilerInitialize(_config: In<c_char>, _output: In<c_char>, _mode: c_uint) |_driver| {
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Begins profiling in the current context.
    fn cuProfilerStart() |driver| {
        driver.current().map(drop)
    }

    /// Ends profiling in the current context.
    fn cuProfilerStop() |driver| {
        driver.current().map(drop)
    }
}
