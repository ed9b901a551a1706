//! Entry points of arrays.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::driver::Driver;
use crate::engine::memory::array::{drop_array, drop_mipmap, find};
use crate::engine::memory::charge::request;
use crate::engine::memory::device::take_range;
use crate::engine::memory::objects::{Array, Mipmap};
use crate::engine::stream::capture;
use crate::models::array::{CUBEMAP, LAYERED, bytes_of, checked, element_bytes, requirements, widen};
use crate::util::ffi::{Answer, In, Out};

fn make(driver: &Driver, out: Out<CUarray>, desc: CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    out.required()?;
    let context = driver.current()?;
    capture::unsafe_call(driver)?;
    let bytes = checked(&desc)?;
    request(driver, context.gpu, bytes)?;
    let mut state = driver.memory.lock();
    let base = take_range(driver, &mut state, context.device, context.gpu, Kind::Array, bytes)?;
    let handle = driver.handles.next();
    let array = Array {
        element: element_bytes(desc.Format, desc.NumChannels).unwrap_or(1),
        desc,
        base,
        device: context.device,
        gpu: context.gpu,
        context: context.id,
        bytes,
        parent: false,
    };
    state.arrays.arrays.insert(handle, array);
    out.set(CUarray(handle as *mut c_void))
}

fn make_mipmap(
    driver: &Driver,
    out: Out<CUmipmappedArray>,
    desc: CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Answer {
    out.required()?;
    let context = driver.current()?;
    capture::unsafe_call(driver)?;
    checked(&desc)?;
    let layered = desc.Flags & (LAYERED | CUBEMAP) != 0;
    let largest =
        if layered { desc.Width.max(desc.Height) } else { desc.Width.max(desc.Height).max(desc.Depth) };
    let possible = largest.max(1).ilog2() + 1;
    let count = levels.clamp(1, possible);
    let half = |n: usize, level: u32| if n == 0 { 0 } else { (n >> level).max(1) };
    let shapes: Vec<CUDA_ARRAY3D_DESCRIPTOR> = (0..count)
        .map(|level| CUDA_ARRAY3D_DESCRIPTOR {
            Width: half(desc.Width, level),
            Height: half(desc.Height, level),
            Depth: if layered { desc.Depth } else { half(desc.Depth, level) },
            ..desc
        })
        .collect();
    let bytes = shapes.iter().filter_map(bytes_of).sum();
    request(driver, context.gpu, bytes)?;
    let mut state = driver.memory.lock();
    let base = take_range(driver, &mut state, context.device, context.gpu, Kind::Array, bytes)?;
    let mut at = base;
    let mut handles = Vec::new();
    for desc in shapes {
        let handle = driver.handles.next();
        let level = bytes_of(&desc).unwrap_or(0);
        let array = Array {
            element: element_bytes(desc.Format, desc.NumChannels).unwrap_or(1),
            desc,
            base: at,
            device: context.device,
            gpu: context.gpu,
            context: context.id,
            bytes: level,
            parent: true,
        };
        at += level;
        state.arrays.arrays.insert(handle, array);
        handles.push(handle);
    }
    let handle = driver.handles.next();
    let (device, gpu) = (context.device, context.gpu);
    let mipmap = Mipmap { desc, levels: handles, base, bytes, device, gpu, context: context.id };
    state.arrays.mipmaps.insert(handle, mipmap);
    out.set(CUmipmappedArray(handle as *mut c_void))
}

entry_points! {
    /// Makes a one- or two-dimensional array.
    fn cuArrayCreate_v2(out: Out<CUarray>, desc: In<CUDA_ARRAY_DESCRIPTOR>) |driver| {
        make(driver, out, widen(desc.get()?))
    }

    /// Makes an array of up to three dimensions, or of layers.
    fn cuArray3DCreate_v2(out: Out<CUarray>, desc: In<CUDA_ARRAY3D_DESCRIPTOR>) |driver| {
        make(driver, out, desc.get()?)
    }

    /// Shape of an array, as far as two dimensions say it.
    fn cuArrayGetDescriptor_v2(out: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) |driver| {
        out.required()?;
        let desc = find(&driver.memory.lock(), array)?.desc;
        out.set(CUDA_ARRAY_DESCRIPTOR {
            Width: desc.Width,
            Height: desc.Height,
            Format: desc.Format,
            NumChannels: desc.NumChannels,
        })
    }

    /// Shape of an array.
    fn cuArray3DGetDescriptor_v2(out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) |driver| {
        out.required()?;
        out.set(find(&driver.memory.lock(), array)?.desc)
    }

    /// Ends an array; levels of mipmapped arrays end with those.
    fn cuArrayDestroy(array: CUarray) |driver| {
        capture::unsafe_call(driver)?;
        let mut state = driver.memory.lock();
        if find(&state, array)?.parent {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        drop_array(driver, &mut state, array.addr());
        Ok(())
    }

    /// Memory that an array takes.
    fn cuArrayGetMemoryRequirements(
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice,
    ) |driver| {
        out.required()?;
        driver.device(device)?;
        out.set(requirements(find(&driver.memory.lock(), array)?.bytes))
    }

    /// Makes a mipmapped array; too many levels become as many as there can be.
    fn cuMipmappedArrayCreate(
        out: Out<CUmipmappedArray>, desc: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: c_uint,
    ) |driver| {
        make_mipmap(driver, out, desc.get()?, levels)
    }

    /// A level of a mipmapped array.
    fn cuMipmappedArrayGetLevel(out: Out<CUarray>, mipmap: CUmipmappedArray, level: c_uint) |driver| {
        out.required()?;
        let state = driver.memory.lock();
        let mipmap = state.arrays.mipmaps.get(&mipmap.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let handle = mipmap.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(CUarray(*handle as *mut c_void))
    }

    /// Ends a mipmapped array.
    fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray) |driver| {
        capture::unsafe_call(driver)?;
        let mut state = driver.memory.lock();
        if !state.arrays.mipmaps.contains_key(&mipmap.addr()) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        drop_mipmap(driver, &mut state, mipmap.addr());
        Ok(())
    }

    /// Memory that a mipmapped array takes.
    fn cuMipmappedArrayGetMemoryRequirements(
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, mipmap: CUmipmappedArray, device: CUdevice,
    ) |driver| {
        out.required()?;
        driver.device(device)?;
        let state = driver.memory.lock();
        let mipmap = state.arrays.mipmaps.get(&mipmap.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let _ = mipmap.desc;
        out.set(requirements(mipmap.bytes))
    }
}
