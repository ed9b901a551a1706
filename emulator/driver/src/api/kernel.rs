//! Entry points of kernels: `cuKernel*`.

use std::ffi::{c_char, c_int, c_void};

use radrm_cuda_abi::*;

use crate::api::function::param;
use crate::engine::code::library::module_in;
use crate::models::function::{attribute, set_attribute};
use crate::util::ffi::Out;

entry_points! {
    /// The function of a kernel in the current context.
    fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) |driver| {
        function.required()?;
        let kernel = driver.code.kernel(kernel)?;
        let library = driver.code.libraries.get(kernel.library).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let module = module_in(driver, &library, &*driver.current()?)?;
        function.set(CUfunction(driver.code.function_in(&driver.handles, &module, &kernel.info.name)?.handle as *mut c_void))
    }

    /// Name of a kernel; lives as long as the kernel.
    fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) |driver| {
        if kernel.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        name.set(driver.code.kernel(kernel)?.name.as_ptr())
    }

    /// Library of a kernel.
    fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) |driver| {
        library.set(CUlibrary(driver.code.kernel(kernel)?.library as *mut c_void))
    }

    /// An attribute of a kernel on a device.
    fn cuKernelGetAttribute(value: Out<c_int>, attr: CUfunction_attribute, kernel: CUkernel, device: CUdevice) |driver| {
        let kernel = driver.code.kernel(kernel)?;
        let library = driver.code.libraries.get(kernel.library).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let gpu = driver.gpu_spec(driver.device(device)?);
        value.set(attribute(&kernel.info, &library.image, &kernel.settings, gpu, attr)?)
    }

    /// Sets an attribute of a kernel; what is set counts for all devices.
    fn cuKernelSetAttribute(attr: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) |driver| {
        let kernel = driver.code.kernel(kernel)?;
        let gpu = driver.gpu_spec(driver.device(device)?);
        set_attribute(&kernel.info, &kernel.settings, gpu, attr, value)
    }

    /// Has no effect.
    fn cuKernelSetCacheConfig(kernel: CUkernel, _config: u32, device: CUdevice) |driver| {
        driver.device(device)?;
        driver.code.kernel(kernel).map(drop)
    }

    /// Place and size of a parameter, in the current context.
    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) |driver| {
        driver.current()?;
        param(&driver.code.kernel(kernel)?.info, index, offset, size)
    }

    /// Number of parameters.
    fn cuKernelGetParamCount(kernel: CUkernel, count: Out<usize>) |driver| {
        count.set(driver.code.kernel(kernel)?.info.params.as_ref().map_or(0, Vec::len))
    }
}
