//! Entry points of modules.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;

use super::image::{Image, ImageError};
use super::registry::{FUNCTIONS, MODULES, Module};
use super::{footprint, load};
use crate::context::Context;
use crate::ffi::{Answer, In, Out, Text};
use crate::memory::{special_map, special_release, special_reserve, special_unmap};
use crate::state::{Driver, lock, new_handle};

/// The code that a caller gets for an image that was refused.
pub fn refused(error: ImageError) -> CUresult {
    match error {
        ImageError::NotAnImage | ImageError::Malformed => CUDA_ERROR_INVALID_IMAGE,
        ImageError::BadPtx => CUDA_ERROR_INVALID_PTX,
        ImageError::NoBinary => CUDA_ERROR_NO_BINARY_FOR_GPU,
    }
}

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

/// Parses an image for a device.
///
/// # Errors
/// As [`refused`] says.
pub fn parse_image(driver: &Driver, device: CUdevice, bytes: &[u8]) -> Answer<Arc<Image>> {
    let capability = driver.gpu_spec(driver.device(device)?).capability();
    load::parse(bytes, capability).map(Arc::new).map_err(refused)
}

/// Reads a file with an image.
///
/// # Errors
/// CUDA_ERROR_FILE_NOT_FOUND.
pub fn read_file(path: Text) -> Answer<Vec<u8>> {
    std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)
}

/// Loads an image into a context.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub fn load_into(driver: &Driver, context: &Context, image: Arc<Image>, library: u64) -> Answer<Arc<Module>> {
    let variables: u64 = image.globals.iter().map(|g| g.bytes).sum();
    let bytes = image.size as u64 + variables;
    let device = context.device;
    let gpu = driver.device(device)?.gpu;
    footprint::take(&driver.process, gpu, context.handle.addr(), bytes)?;
    let module = Arc::new(Module {
        handle: new_handle(),
        context: context.handle.addr(),
        device,
        image,
        library,
        functions: Mutex::new(BTreeMap::new()),
        globals: Mutex::new(HashMap::new()),
        footprint: bytes,
    });
    MODULES.insert(module.handle, Arc::clone(&module));
    Ok(module)
}

/// Takes a module out of its context.
pub fn unload(driver: &Driver, module: &Module) {
    MODULES.remove(module.handle);
    for function in std::mem::take(&mut *lock(&module.functions)).into_values() {
        FUNCTIONS.remove(function.handle);
    }
    for (address, _) in std::mem::take(&mut *lock(&module.globals)).into_values() {
        special_unmap(driver, address);
        special_release(driver, address);
    }
    if let Ok(device) = driver.device(module.device) {
        footprint::give_back(&driver.process, device.gpu, module.context, module.footprint);
    }
}

/// Unloads all modules of a context that is going away.
pub fn context_destroyed(driver: &Driver, context: u64) {
    for module in MODULES.all().into_iter().filter(|m| m.context == context) {
        if let Some(library) = super::registry::LIBRARIES.get(module.library) {
            lock(&library.modules).remove(&context);
        }
        unload(driver, &module);
    }
}

/// Address and size of a module's variable. An opaque image has no variables that are known.
///
/// # Errors
/// CUDA_ERROR_NOT_FOUND, CUDA_ERROR_OUT_OF_MEMORY.
pub fn global(driver: &Driver, module: &Module, name: &str) -> Answer<(CUdeviceptr, u64)> {
    let mut globals = lock(&module.globals);
    if let Some(found) = globals.get(name) {
        return Ok(*found);
    }
    let variable = module.image.globals.iter().find(|g| g.name == name).ok_or(CUDA_ERROR_NOT_FOUND)?;
    let context = driver.contexts.get(module.context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let address = special_reserve(driver, &context, variable.bytes.max(1))?;
    special_map(driver, address);
    globals.insert(name.to_owned(), (address, variable.bytes));
    Ok((address, variable.bytes))
}

fn load_current(
    driver: &Driver,
    out: Out<CUmodule>,
    image: impl FnOnce(&Context) -> Answer<Arc<Image>>,
) -> Answer {
    out.required()?;
    crate::capture::unsafe_call(driver)?;
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
        let module = Module::of(module)?;
        crate::capture::unsafe_call(driver)?;
        if module.library != 0 {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        unload(driver, &module);
        Ok(())
    }

    /// A function by name.
    fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) |_driver| {
        function.required()?;
        let found = Module::of(module)?.function(&name.get()?)?;
        function.set(CUfunction(found.handle as *mut c_void))
    }

    /// Number of functions; 0 for an image whose contents could not be read.
    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) |_driver| {
        count.set(Module::of(module)?.image.kernels.len() as c_uint)
    }

    /// The first `most` functions.
    fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, most: c_uint, module: CUmodule) |_driver| {
        let module = Module::of(module)?;
        for (index, kernel) in module.image.kernels.iter().take(most as usize).enumerate() {
            functions.set_at(index, CUfunction(module.function(&kernel.name)?.handle as *mut c_void))?;
        }
        Ok(())
    }

    /// Address and size of a variable.
    fn cuModuleGetGlobal_v2(address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text) |driver| {
        let (found, size) = global(driver, &*Module::of(module)?, &name.get()?)?;
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
    fn cuModuleGetTexRef(_reference: Out<CUtexref>, module: CUmodule, _name: *const c_char) |_driver| {
        Module::of(module)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }

    /// As `cuModuleGetTexRef`.
    fn cuModuleGetSurfRef(_reference: Out<CUsurfref>, module: CUmodule, _name: *const c_char) |_driver| {
        Module::of(module)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
}
