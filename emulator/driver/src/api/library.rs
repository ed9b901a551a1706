//! Entry points of libraries.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;

use crate::api::module::{read_file, read_image};
use crate::engine::code::library::module_in;
use crate::engine::code::module;
use crate::engine::code::state::Library;
use crate::engine::driver::Driver;
use crate::models::image::Image;
use crate::util::ffi::{Answer, In, Out, Text};
use crate::util::sync::lock;

/// A library is read for the current context's device, else for the first one: images are the same
/// for all devices of the machines that are emulated.
fn reading_device(driver: &Driver) -> CUdevice {
    driver.current().map_or(0, |context| context.device)
}

fn add(driver: &Driver, image: Arc<Image>, out: Out<CUlibrary>) -> Answer {
    let library = Arc::new(Library {
        handle: driver.handles.next(),
        image,
        kernels: Mutex::new(BTreeMap::new()),
        modules: Mutex::new(HashMap::new()),
    });
    driver.code.libraries.insert(library.handle, Arc::clone(&library));
    out.set(CUlibrary(library.handle as *mut c_void))
}

entry_points! {
    /// Loads an image. Options have no effect.
    fn cuLibraryLoadData(
        library: Out<CUlibrary>,
        code: In<u8>,
        _jit_names: *mut c_void,
        _jit_values: *mut *mut c_void,
        _jit_count: c_uint,
        _names: *mut c_void,
        _values: *mut *mut c_void,
        _count: c_uint,
    ) |driver| {
        library.required()?;
        add(driver, read_image(driver, reading_device(driver), code)?, library)
    }

    /// Loads the image in a file. Options have no effect.
    fn cuLibraryLoadFromFile(
        library: Out<CUlibrary>,
        path: Text,
        _jit_names: *mut c_void,
        _jit_values: *mut *mut c_void,
        _jit_count: c_uint,
        _names: *mut c_void,
        _values: *mut *mut c_void,
        _count: c_uint,
    ) |driver| {
        library.required()?;
        add(driver, module::parse_image(driver, reading_device(driver), &read_file(path)?)?, library)
    }

    /// Unloads a library and its modules everywhere.
    fn cuLibraryUnload(library: CUlibrary) |driver| {
        let library = driver.code.library(library)?;
        driver.code.libraries.remove(library.handle);
        for kernel in std::mem::take(&mut *lock(&library.kernels)).into_values() {
            driver.code.kernels.remove(kernel.handle);
        }
        for loaded in std::mem::take(&mut *lock(&library.modules)).into_values() {
            module::unload(driver, &loaded);
        }
        Ok(())
    }

    /// A kernel by name.
    fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) |driver| {
        kernel.required()?;
        let found = driver.code.kernel_in(&driver.handles, &*driver.code.library(library)?, &name.get()?)?;
        kernel.set(CUkernel(found.handle as *mut c_void))
    }

    /// Number of kernels; 0 for an image whose contents could not be read.
    fn cuLibraryGetKernelCount(count: Out<c_uint>, library: CUlibrary) |driver| {
        count.set(driver.code.library(library)?.image.kernels.len() as c_uint)
    }

    /// The first `most` kernels.
    fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, most: c_uint, library: CUlibrary) |driver| {
        let library = driver.code.library(library)?;
        for (index, kernel) in library.image.kernels.iter().take(most as usize).enumerate() {
            kernels.set_at(index, CUkernel(driver.code.kernel_in(&driver.handles, &library, &kernel.name)?.handle as *mut c_void))?;
        }
        Ok(())
    }

    /// The library's module in the current context.
    fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) |driver| {
        module.required()?;
        let loaded = module_in(driver, &*driver.code.library(library)?, &*driver.current()?)?;
        module.set(CUmodule(loaded.handle as *mut c_void))
    }

    /// Address and size of a variable in the current context.
    fn cuLibraryGetGlobal(address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text) |driver| {
        let loaded = module_in(driver, &*driver.code.library(library)?, &*driver.current()?)?;
        let (found, size) = module::global(driver, &loaded, &name.get()?)?;
        address.set_if_wanted(found);
        bytes.set_if_wanted(size as usize);
        Ok(())
    }

    /// Managed variables are not told apart: none is found.
    fn cuLibraryGetManaged(_address: Out<CUdeviceptr>, _bytes: Out<usize>, library: CUlibrary, _name: Text) |driver| {
        driver.code.library(library)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }

    /// Unified functions do not exist here.
    fn cuLibraryGetUnifiedFunction(_function: Out<*mut c_void>, library: CUlibrary, _name: Text) |driver| {
        driver.code.library(library)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
}
