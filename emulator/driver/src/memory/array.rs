//! Arrays and mipmapped arrays.
//!
//! An array takes width * height * depth elements, rounded as plain memory is; how the hardware tiles
//! it is not modelled.

use core::ffi::{c_uint, c_void};
use std::collections::HashMap;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::capture;
use crate::context::Context;
use crate::ffi::{Answer, In, Out};
use crate::memory::device::{give_range, take_range};
use crate::memory::{State, request};
use crate::state::{self, Driver};

const LAYERED: c_uint = 0x01;
const CUBEMAP: c_uint = 0x04;
/// Sparse and deferred arrays have no memory of their own; the device's attributes say that there
/// are none.
const NOT_MODELLED: c_uint = 0x40 | 0x80;
const KNOWN_FLAGS: c_uint = 0xff;

/// An array: of its own, or a level of a mipmapped one.
#[derive(Clone)]
pub struct Array {
    /// Shape.
    pub desc: CUDA_ARRAY3D_DESCRIPTOR,
    /// Address of its first element.
    pub base: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Device ordinal.
    pub device: CUdevice,
    gpu: usize,
    context: u64,
    bytes: u64,
    parent: bool,
}

impl Array {
    /// Elements in x, y and z, each at least 1.
    pub fn extent(&self) -> [u64; 3] {
        extent(&self.desc)
    }

    /// Bytes of one row, and of one plane.
    pub fn pitches(&self) -> (u64, u64) {
        let [width, height, _] = self.extent();
        (width * self.element, width * self.element * height)
    }
}

struct Mipmap {
    desc: CUDA_ARRAY3D_DESCRIPTOR,
    levels: Vec<u64>,
    base: u64,
    bytes: u64,
    device: CUdevice,
    gpu: usize,
    context: u64,
}

/// Arrays and mipmapped arrays by handle.
#[derive(Default)]
pub struct Arrays {
    arrays: HashMap<u64, Array>,
    mipmaps: HashMap<u64, Mipmap>,
}

/// Bytes of one element; `None` for a format that is not known.
pub fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let bytes = match format {
        // 8, 16 and 32 bits, integers and floats.
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        // Normalised: the format names the channels too.
        0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0xc3..=0xc5 | 0xc9..=0xcb => 2,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then_some(bytes * u64::from(channels))
}

fn extent(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> [u64; 3] {
    [desc.Width, desc.Height, desc.Depth].map(|n| (n as u64).max(1))
}

/// Bytes of an array; `None` if it is too large to say.
fn bytes_of(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    let element = element_bytes(desc.Format, desc.NumChannels)?;
    extent(desc).into_iter().try_fold(element, u64::checked_mul)
}

fn checked(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<u64> {
    if desc.Flags & NOT_MODELLED != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let cube_fits = desc.Width == desc.Height
        && if desc.Flags & LAYERED != 0 { desc.Depth.is_multiple_of(6) } else { desc.Depth == 6 };
    let flat = desc.Height == 0 && desc.Depth > 0 && desc.Flags & LAYERED == 0;
    if desc.Width == 0
        || desc.Flags & !KNOWN_FLAGS != 0
        || flat
        || (desc.Flags & CUBEMAP != 0 && !cube_fits)
        || (desc.Flags & LAYERED != 0 && desc.Depth == 0)
        || extent(desc).into_iter().zip([131_072, 65536, 16384]).any(|(n, most)| n > most)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    element_bytes(desc.Format, desc.NumChannels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    bytes_of(desc).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn make(driver: &Driver, out: Out<CUarray>, desc: CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    out.required()?;
    let context = driver.current()?;
    capture::unsafe_call(driver)?;
    let bytes = checked(&desc)?;
    request(driver, context.gpu, bytes)?;
    let mut state = driver.memory.lock();
    let base = take_range(driver, &mut state, context.device, context.gpu, Kind::Array, bytes)?;
    let handle = state::new_handle();
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

/// Array of a handle.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn find(state: &State, array: CUarray) -> Answer<&Array> {
    state.arrays.arrays.get(&array.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Device of the array that a range lies in.
pub(super) fn device_at(state: &State, address: u64, bytes: u64) -> Option<CUdevice> {
    let inside = |a: &&Array| address >= a.base && address - a.base + bytes <= a.bytes;
    state.arrays.arrays.values().find(inside).map(|a| a.device)
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
        let handle = state::new_handle();
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
    let handle = state::new_handle();
    let (device, gpu) = (context.device, context.gpu);
    let mipmap = Mipmap { desc, levels: handles, base, bytes, device, gpu, context: context.id };
    state.arrays.mipmaps.insert(handle, mipmap);
    out.set(CUmipmappedArray(handle as *mut c_void))
}

fn drop_array(driver: &Driver, state: &mut State, handle: u64) {
    if let Some(array) = state.arrays.arrays.remove(&handle) {
        give_range(driver, state, array.device, array.gpu, Kind::Array, (array.base, array.bytes));
    }
}

fn drop_mipmap(driver: &Driver, state: &mut State, handle: u64) {
    if let Some(mipmap) = state.arrays.mipmaps.remove(&handle) {
        for level in &mipmap.levels {
            state.arrays.arrays.remove(level);
        }
        give_range(driver, state, mipmap.device, mipmap.gpu, Kind::Array, (mipmap.base, mipmap.bytes));
    }
}

/// A context's arrays go with it.
pub(super) fn context_destroyed(driver: &Driver, state: &mut State, context: &Arc<Context>) {
    let table = &state.arrays;
    let mipmaps: Vec<u64> =
        table.mipmaps.iter().filter(|(_, m)| m.context == context.id).map(|(h, _)| *h).collect();
    let arrays: Vec<u64> =
        table.arrays.iter().filter(|(_, a)| a.context == context.id && !a.parent).map(|(h, _)| *h).collect();
    mipmaps.into_iter().for_each(|handle| drop_mipmap(driver, state, handle));
    arrays.into_iter().for_each(|handle| drop_array(driver, state, handle));
}

fn requirements(bytes: u64) -> CUDA_ARRAY_MEMORY_REQUIREMENTS {
    let granule = HOLD_GRANULE as usize;
    CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: (bytes as usize).next_multiple_of(granule),
        alignment: granule,
        reserved: [0; 4],
    }
}

fn widen(desc: CUDA_ARRAY_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: desc.Width,
        Height: desc.Height,
        Depth: 0,
        Format: desc.Format,
        NumChannels: desc.NumChannels,
        Flags: 0,
    }
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
