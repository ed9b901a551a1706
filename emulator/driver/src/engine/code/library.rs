//! Libraries in contexts.

use std::sync::Arc;

use crate::engine::code::module;
use crate::engine::code::state::{Library, Module};
use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::util::ffi::Answer;
use crate::util::sync::lock;

/// The library's module in a context, loaded when it is first used there.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub fn module_in(driver: &Driver, library: &Library, context: &Context) -> Answer<Arc<Module>> {
    let mut modules = lock(&library.modules);
    if let Some(module) = modules.get(&context.handle.addr()) {
        return Ok(Arc::clone(module));
    }
    let module = module::load_into(driver, context, Arc::clone(&library.image), library.handle)?;
    modules.insert(context.handle.addr(), Arc::clone(&module));
    Ok(module)
}
