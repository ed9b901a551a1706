//! Entry points of modules.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::code::module::{global, load_into, parse_image, refused, unload};
use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::stream::capture;
use crate::models::image::Image;
use crate::models::load;
use crate::util::ffi::{Answer, In, Out, Text};

/// Reads an image that a caller points to, for a device.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for null, else as [`refused`] says.
pub fn read_image(driver: &Driver, device: CUdevice, image: In<u8>) -> Answer<Arc<Image>> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and then a C caller promises a complete image.
    let bytes = unsafe { load::bytes_at(image.raw().cast()) }.map_err(refused)?;
    parse_image(driver, device, bytes)
}

/// Reads a file with an image.
///
/// # Errors
/// CUDA_ERROR_FILE_NOT_FOUND.
pub fn read_file(path: Text) -> Answer<Vec<u8>> {
    std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

fn load_current(
    driver: &Driver,
    out: Out<CUmodule>,
    image: impl FnOnce(&Context) -> Answer<Arc<Image>>,
) -> Answer {
    out.required()?;
    capture::unsafe_call(driver)?;
    let context = driver.current()?;
    let module = load_into(driver, &context, image(&context)?, 0)?;
    out.set(CUmodule(module.handle as *mut c_void))
}

entry_points! {
    /// Loads the image in a file into the current context.
    fn cuModuleLoad(module: Out<CUmodule>, path: Text) |driver| {
        load_current(driver, module, |context| parse_image(driver, context.device, &read_file(path)?))
    }

    /// Loads an image into the current context.
    fn cuModuleLoadData(module: Out<CUmodule>, image: In<u8>) |driver| {
        load_current(driver, module, |context| read_image(driver, context.device, image))
    }

    /// As `cuModuleLoadData`; options of the compiler have no effect.
    fn cuModuleLoadDataEx(
        module: Out<CUmodule>,
        image: In<u8>,
        _options: c_uint,
        _names: *mut c_void,
        _values: *mut *mut c_void,
    ) |driver| {
        load_current(driver, module, |context| read_image(driver, context.device, image))
    }

    /// As `cuModuleLoadData`.
    fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: In<u8>) |driver| {
        load_current(driver, module, |context| read_image(driver, context.device, image))
    }

    /// Unloads a module; one that belongs to a library goes with the library.
    fn cuModuleUnload(module: CUmodule) |driver| {
        let module = driver.code.module(module)?;
        capture::unsafe_call(driver)?;
        if module.library != 0 {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        unload(driver, &module);
        Ok(())
    }

    /// A function by name.
    fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) |driver| {
        function.required()?;
        let found = driver.code.function_in(&driver.handles, &*driver.code.module(module)?, &name.get()?)?;
        function.set(CUfunction(found.handle as *mut c_void))
    }

    /// Number of functions; 0 for an image whose contents could not be read.
    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) |driver| {
        count.set(driver.code.module(module)?.image.kernels.len() as c_uint)
    }

    /// The first `most` functions.
    fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, most: c_uint, module: CUmodule) |driver| {
        let module = driver.code.module(module)?;
        for (index, kernel) in module.image.kernels.iter().take(most as usize).enumerate() {
            functions.set_at(index, CUfunction(driver.code.function_in(&driver.handles, &module, &kernel.name)?.handle as *mut c_void))?;
        }
        Ok(())
    }

    /// Address and size of a variable.
    fn cuModuleGetGlobal_v2(address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text) |driver| {
        let (found, size) = global(driver, &*driver.code.module(module)?, &name.get()?)?;
        address.set_if_wanted(found);
        bytes.set_if_wanted(size as usize);
        Ok(())
    }

    /// Modules are loaded at once here.
    fn cuModuleGetLoadingMode(mode: Out<u32>) |_driver| {
        const EAGER: u32 = 1;
        mode.set(EAGER)
    }

    /// Images without texture references have none by any name.
    fn cuModuleGetTexRef(_reference: Out<CUtexref>, module: CUmodule, _name: *const c_char) |driver| {
        driver.code.module(module)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }

    /// As `cuModuleGetTexRef`.
    fn cuModuleGetSurfRef(_reference: Out<CUsurfref>, module: CUmodule, _name: *const c_char) |driver| {
        driver.code.module(module)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
}
