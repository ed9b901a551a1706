//! The linker: `cuLink*`. Nothing is compiled; the result is an image that holds all inputs and that
//! the module loader takes.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::code::module::{parse_image, refused};
use crate::engine::code::state::Link;
use crate::engine::driver::Driver;
use crate::models::{load, lto};
use crate::util::ffi::{Answer, Out, Text};
use crate::util::sync::lock;

/// Kinds of input that name themselves as text: everything else is kept as it is.
const INPUT_PTX: u32 = 1;
/// `CU_JIT_INPUT_NVVM`: LTO-IR.
const INPUT_NVVM: u32 = 5;

fn link(driver: &Driver, state: CUlinkState) -> Answer<Arc<Link>> {
    driver.code.links.get(state.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn add(driver: &Driver, state: CUlinkState, kind: u32, bytes: &[u8]) -> Answer {
    let link = link(driver, state)?;
    let bytes = if kind == INPUT_PTX { bytes.split(|b| *b == 0).next().unwrap_or_default() } else { bytes };
    let device = driver.current().map_or(0, |c| c.device);
    if kind == INPUT_PTX {
        parse_image(driver, device, bytes)?;
    }
    if kind == INPUT_NVVM || lto::looks_like_lto(bytes) {
        lto::check(bytes, driver.gpu_spec(driver.device(device)?).capability()).map_err(refused)?;
    }
    lock(&link.inputs).push(bytes.to_vec());
    Ok(())
}

fn add_data(driver: &Driver, state: CUlinkState, kind: u32, data: *const c_void, size: usize) -> Answer {
    if data.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and then a C caller promises `size` bytes.
    add(driver, state, kind, unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) })
}

fn add_file(driver: &Driver, state: CUlinkState, kind: u32, path: Text) -> Answer {
    add(driver, state, kind, &std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?)
}

entry_points! {
    /// Begins a link. Options have no effect.
    fn cuLinkCreate_v2(_count: c_uint, _names: *mut c_void, _values: *mut *mut c_void, state: Out<CUlinkState>) |driver| {
        state.required()?;
        let handle = driver.handles.next();
        driver.code.links.insert(handle, Arc::new(Link::default()));
        state.set(CUlinkState(handle as *mut c_void))
    }

    /// Adds an input.
    fn cuLinkAddData_v2(
        state: CUlinkState, kind: u32, data: *mut c_void, size: usize, _name: *const c_char, _count: c_uint,
        _names: *mut c_void, _values: *mut *mut c_void,
    ) |driver| {
        add_data(driver, state, kind, data, size)
    }

    /// Adds a file.
    fn cuLinkAddFile_v2(
        state: CUlinkState, kind: u32, path: Text, _count: c_uint, _names: *mut c_void, _values: *mut *mut c_void,
    ) |driver| {
        add_file(driver, state, kind, path)
    }

    /// Ends a link; the image lives until `cuLinkDestroy`.
    fn cuLinkComplete(state: CUlinkState, image: Out<*mut c_void>, size: Out<usize>) |driver| {
        image.required()?;
        let link = link(driver, state)?;
        let joined = load::join(&lock(&link.inputs)).into_boxed_slice();
        let device = driver.current().map_or(0, |c| c.device);
        let capability = driver.gpu_spec(driver.device(device)?).capability();
        load::parse(&joined, capability).map_err(refused)?;
        let mut output = lock(&link.output);
        let joined = output.insert(joined);
        image.set(joined.as_mut_ptr().cast())?;
        size.set_if_wanted(joined.len());
        Ok(())
    }

    /// Forgets a link and its image.
    fn cuLinkDestroy(state: CUlinkState) |driver| {
        driver.code.links.remove(state.addr()).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
