//! Entry points of functions: `cuFunc*`. They take functions only; a kernel's handle is invalid here,
//! as with the real driver.

use std::ffi::{c_char, c_int, c_void};

use radrm_cuda_abi::*;

use crate::models::function::{attribute, set_attribute};
use crate::models::image::KernelInfo;
use crate::util::ffi::{Answer, Out};

/// Place and size of a parameter.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE beyond the last one, or where the image does not tell.
pub fn param(info: &KernelInfo, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    let params = info.params.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (at, bytes) = *params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    offset.set(at)?;
    size.set_if_wanted(bytes);
    Ok(())
}

entry_points! {
    /// Name of a function; lives as long as its module.
    fn cuFuncGetName(name: Out<*const c_char>, function: CUfunction) |driver| {
        if function.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        name.set(driver.code.function(function)?.name.as_ptr())
    }

    /// Module of a function.
    fn cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) |driver| {
        module.set(CUmodule(driver.code.function(function)?.module as *mut c_void))
    }

    /// An attribute of a function.
    fn cuFuncGetAttribute(value: Out<c_int>, attr: CUfunction_attribute, function: CUfunction) |driver| {
        let function = driver.code.function(function)?;
        let module = driver.code.module(CUmodule(function.module as *mut c_void))?;
        let gpu = driver.gpu_spec(driver.device(function.device)?);
        value.set(attribute(&function.info, &module.image, &function.settings, gpu, attr)?)
    }

    /// Sets an attribute of a function.
    fn cuFuncSetAttribute(function: CUfunction, attr: CUfunction_attribute, value: c_int) |driver| {
        let function = driver.code.function(function)?;
        let gpu = driver.gpu_spec(driver.device(function.device)?);
        set_attribute(&function.info, &function.settings, gpu, attr, value)
    }

    /// Has no effect.
    fn cuFuncSetCacheConfig(function: CUfunction, _config: u32) |driver| {
        driver.code.function(function).map(drop)
    }

    /// Has no effect.
    fn cuFuncSetSharedMemConfig(function: CUfunction, _config: u32) |driver| {
        driver.code.function(function).map(drop)
    }

    /// Place and size of a parameter.
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) |driver| {
        param(&driver.code.function(function)?.info, index, offset, size)
    }

    /// Number of parameters.
    fn cuFuncGetParamCount(function: CUfunction, count: Out<usize>) |driver| {
        count.set(driver.code.function(function)?.info.params.as_ref().map_or(0, Vec::len))
    }

    /// Functions are loaded with their module.
    fn cuFuncIsLoaded(state: Out<u32>, function: CUfunction) |driver| {
        const LOADED: u32 = 1;
        driver.code.function(function)?;
        state.set(LOADED)
    }

    /// Functions are loaded with their module.
    fn cuFuncLoad(function: CUfunction) |driver| {
        driver.code.function(function).map(drop)
    }
}
