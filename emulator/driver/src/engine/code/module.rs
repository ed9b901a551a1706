//! Modules in contexts: loading, unloading, variables.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;

use crate::engine::code::footprint;
use crate::engine::code::state::Module;
use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::special::{special_map, special_release, special_reserve, special_unmap};
use crate::models::image::{Image, ImageError};
use crate::models::load;
use crate::util::ffi::Answer;
use crate::util::sync::lock;

/// The code that a caller gets for an image that was refused.
pub fn refused(error: ImageError) -> CUresult {
    match error {
        ImageError::NotAnImage | ImageError::Malformed => CUDA_ERROR_INVALID_IMAGE,
        ImageError::BadPtx => CUDA_ERROR_INVALID_PTX,
        ImageError::NoBinary => CUDA_ERROR_NO_BINARY_FOR_GPU,
    }
}

/// Parses an image for a device.
///
/// # Errors
/// As [`refused`] says.
pub fn parse_image(driver: &Driver, device: CUdevice, bytes: &[u8]) -> Answer<Arc<Image>> {
    let capability = driver.gpu_spec(driver.device(device)?).capability();
    load::parse(bytes, capability).map(Arc::new).map_err(refused)
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
    footprint::take(&driver.code.loaded, &driver.process, gpu, context.handle.addr(), bytes)?;
    let module = Arc::new(Module {
        handle: driver.handles.next(),
        context: context.handle.addr(),
        device,
        image,
        library,
        functions: Mutex::new(BTreeMap::new()),
        globals: Mutex::new(HashMap::new()),
        footprint: bytes,
    });
    driver.code.modules.insert(module.handle, Arc::clone(&module));
    Ok(module)
}

/// Takes a module out of its context.
pub fn unload(driver: &Driver, module: &Module) {
    driver.code.modules.remove(module.handle);
    for function in std::mem::take(&mut *lock(&module.functions)).into_values() {
        driver.code.functions.remove(function.handle);
    }
    for (address, _) in std::mem::take(&mut *lock(&module.globals)).into_values() {
        special_unmap(&driver.memory, address);
        special_release(&driver.memory, address);
    }
    if let Ok(device) = driver.device(module.device) {
        footprint::give_back(
            &driver.code.loaded,
            &driver.process,
            device.gpu,
            module.context,
            module.footprint,
        );
    }
}

/// Unloads all modules of a context that is going away.
pub fn context_destroyed(driver: &Driver, context: u64) {
    for module in driver.code.modules.all().into_iter().filter(|m| m.context == context) {
        if let Some(library) = driver.code.libraries.get(module.library) {
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
    let address = special_reserve(&driver.memory, &context, variable.bytes.max(1))?;
    special_map(&driver.memory, address);
    globals.insert(name.to_owned(), (address, variable.bytes));
    Ok((address, variable.bytes))
}
