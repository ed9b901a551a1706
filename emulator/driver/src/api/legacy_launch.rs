//! The way to launch that CUDA 4.0 replaced: block shape and parameters are set on the function.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use crate::api::launch::{Request, launch};
use crate::engine::driver::Driver;
use crate::util::ffi::Answer;

/// Bytes of parameters that a function can have by this interface.
const PARAMS: u64 = 4096;

fn start(
    driver: &'static Driver,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Answer {
    let own = driver.code.function(function)?;
    let side = |n: c_int| u32::try_from(n).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let block = [0, 1, 2].map(|i| own.legacy.block[i].load(Relaxed));
    // The parameters stand in the function; their values do not matter here.
    let mut none: [*mut c_void; 1] = [std::ptr::null_mut()];
    launch(
        driver,
        &Request {
            function,
            grid: [side(width)?, side(height)?, 1],
            block,
            shared: own.legacy.shared.load(Relaxed),
            stream,
            params: std::ptr::null(),
            extra: none.as_mut_ptr(),
            cooperative: false,
            attributes: &[],
        },
    )
}

/// Notes that a function has parameters up to `end`.
fn param(driver: &Driver, function: CUfunction, offset: c_int, bytes: c_uint) -> Answer {
    let own = driver.code.function(function)?;
    let end = u64::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)? + u64::from(bytes);
    if end > PARAMS {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    own.legacy.params.fetch_max(end, Relaxed);
    Ok(())
}

entry_points! {
    /// Sets the shape of a block.
    fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) |driver| {
        let own = driver.code.function(function)?;
        for (place, value) in own.legacy.block.iter().zip([x, y, z]) {
            let value = u32::try_from(value).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            place.store(value, Relaxed);
        }
        Ok(())
    }

    /// Sets the dynamic shared memory of a block.
    fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) |driver| {
        driver.code.function(function)?.legacy.shared.store(bytes, Relaxed);
        Ok(())
    }

    /// Sets the size of all parameters.
    fn cuParamSetSize(function: CUfunction, bytes: c_uint) |driver| {
        param(driver, function, 0, bytes)
    }

    /// Sets an integer parameter.
    fn cuParamSeti(function: CUfunction, offset: c_int, _value: c_uint) |driver| {
        param(driver, function, offset, 4)
    }

    /// Sets a floating-point parameter.
    fn cuParamSetf(function: CUfunction, offset: c_int, _value: f32) |driver| {
        param(driver, function, offset, 4)
    }

    /// Sets a parameter of any kind.
    fn cuParamSetv(function: CUfunction, offset: c_int, value: *mut c_void, bytes: c_uint) |driver| {
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        param(driver, function, offset, bytes)
    }

    /// Launches one block.
    fn cuLaunch(function: CUfunction) |driver| {
        start(driver, function, 1, 1, CUstream::NULL)
    }

    /// Launches a grid.
    fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) |driver| {
        start(driver, function, width, height, CUstream::NULL)
    }

    /// Launches a grid into a stream.
    fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) |driver| {
        start(driver, function, width, height, stream)
    }
}
