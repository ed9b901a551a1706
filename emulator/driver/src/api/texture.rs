//! Entry points of texture and surface objects.

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::texture::{Object, Resource, Sampling, View};
use crate::util::ffi::{Answer, In, Out};
use crate::util::sync::lock;

fn create(
    driver: &'static Driver,
    out: Out<u64>,
    resource: In<Resource>,
    sampling: Option<Sampling>,
    view: Option<View>,
) -> Answer {
    out.required()?;
    let context = driver.current()?.id;
    let resource = resource.get()?;
    resource.check(&driver.memory.lock())?;
    let handle = driver.handles.next();
    lock(&driver.textures).insert(handle, Object { context, resource, sampling, view });
    out.set(handle)
}

/// An object of a handle: a texture, or a surface.
fn find(driver: &'static Driver, handle: u64, is_texture: bool) -> Answer<Object> {
    driver.current()?;
    let found = lock(&driver.textures).get(&handle).copied();
    found.filter(|object| object.sampling.is_some() == is_texture).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn destroy(driver: &'static Driver, handle: u64, is_texture: bool) -> Answer {
    find(driver, handle, is_texture)?;
    lock(&driver.textures).remove(&handle);
    Ok(())
}

entry_points! {
    /// Makes a texture object. Only an array can be given another shape.
    fn cuTexObjectCreate(out: Out<u64>, resource: In<Resource>, sampling: In<Sampling>, view: In<View>) |driver| {
        let (given, sampling) = (resource.get()?, sampling.get()?);
        sampling.check()?;
        let view = if view.is_null() { None } else { Some(view.get()?) };
        if view.is_some() && !given.is_array() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        create(driver, out, resource, Some(sampling), view)
    }

    /// Destroys a texture object.
    fn cuTexObjectDestroy(texture: u64) |driver| {
        destroy(driver, texture, true)
    }

    /// The memory of a texture object.
    fn cuTexObjectGetResourceDesc(out: Out<Resource>, texture: u64) |driver| {
        out.set(find(driver, texture, true)?.resource)
    }

    /// Sampling parameters of a texture object.
    fn cuTexObjectGetTextureDesc(out: Out<Sampling>, texture: u64) |driver| {
        out.set(find(driver, texture, true)?.sampling.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// The shape that a texture object gives its memory, if it was given one.
    fn cuTexObjectGetResourceViewDesc(out: Out<View>, texture: u64) |driver| {
        out.set(find(driver, texture, true)?.view.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Makes a surface object of an array.
    fn cuSurfObjectCreate(out: Out<u64>, resource: In<Resource>) |driver| {
        if !resource.get()?.is_plain_array() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        create(driver, out, resource, None, None)
    }

    /// Destroys a surface object.
    fn cuSurfObjectDestroy(surface: u64) |driver| {
        destroy(driver, surface, false)
    }

    /// The memory of a surface object.
    fn cuSurfObjectGetResourceDesc(out: Out<Resource>, surface: u64) |driver| {
        out.set(find(driver, surface, false)?.resource)
    }
}
