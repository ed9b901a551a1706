//! Copies and memsets. The runtime's kinds become the driver's functions.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In};

use super::memory::{Extent, PitchedPtr};
use super::{array, counts, device, known, memory, runtime};
use radrm_cuda_client as driver;

const HOST_TO_HOST: c_uint = 0;
const HOST_TO_DEVICE: c_uint = 1;
const DEVICE_TO_HOST: c_uint = 2;
const DEVICE_TO_DEVICE: c_uint = 3;
const BY_ADDRESS: c_uint = 4;
/// cudaErrorInvalidMemcpyDirection.
const INVALID_DIRECTION: CUresult = CUresult(21);
/// Memory that the driver finds out about by its address.
const UNIFIED: u32 = 4;
const ARRAY: u32 = 3;

/// `cudaPos`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Position {
    x: usize,
    y: usize,
    z: usize,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3D {
    source_array: CUarray,
    source_position: Position,
    source: PitchedPtr,
    target_array: CUarray,
    target_position: Position,
    target: PitchedPtr,
    extent: Extent,
    kind: c_uint,
}

impl Copy3D {
    /// A copy of a box between two places.
    pub(super) fn between(
        target: (CUarray, Position, PitchedPtr),
        source: (CUarray, Position, PitchedPtr),
        extent: Extent,
    ) -> Self {
        Self {
            source_array: source.0,
            source_position: source.1,
            source: source.2,
            target_array: target.0,
            target_position: target.1,
            target: target.2,
            extent,
            kind: BY_ADDRESS,
        }
    }
}

fn copy(target: u64, source: u64, bytes: usize, kind: c_uint) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: as the caller of the runtime promises.
    unsafe {
        match kind {
            HOST_TO_HOST | BY_ADDRESS => {
                driver::cuMemcpy(target, source, bytes)?;
                if !memory::is_device(target) {
                    counts::read_back(target, source, bytes);
                }
            }
            HOST_TO_DEVICE => {
                driver::cuMemcpyHtoD_v2(target, source as *const c_void, bytes)?;
                known::written(target, source, bytes);
            }
            DEVICE_TO_HOST => {
                driver::cuMemcpyDtoH_v2(target as *mut c_void, source, bytes)?;
                known::read(target, source, bytes);
                counts::read_back(target, source, bytes);
            }
            DEVICE_TO_DEVICE => {
                driver::cuMemcpyDtoD_v2(target, source, bytes)?;
                known::copied(target, source, bytes);
            }
            _ => return Err(INVALID_DIRECTION),
        }
    }
    Ok(())
}

fn copy_async(target: u64, source: u64, bytes: usize, kind: c_uint, stream: CUstream) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: as the caller of the runtime promises.
    unsafe {
        match kind {
            HOST_TO_HOST | BY_ADDRESS => {
                driver::cuMemcpyAsync(target, source, bytes, stream)?;
                if !memory::is_device(target) {
                    counts::read_back(target, source, bytes);
                }
            }
            HOST_TO_DEVICE => {
                driver::cuMemcpyHtoDAsync_v2(target, source as *const c_void, bytes, stream)?;
                known::written(target, source, bytes);
            }
            DEVICE_TO_HOST => {
                driver::cuMemcpyDtoHAsync_v2(target as *mut c_void, source, bytes, stream)?;
                known::read(target, source, bytes);
                counts::read_back(target, source, bytes);
            }
            DEVICE_TO_DEVICE => {
                driver::cuMemcpyDtoDAsync_v2(target, source, bytes, stream)?;
                known::copied(target, source, bytes);
            }
            _ => return Err(INVALID_DIRECTION),
        }
    }
    Ok(())
}

fn plane(
    (target, target_pitch): (u64, usize),
    (source, source_pitch): (u64, usize),
    (width, height): (usize, usize),
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: UNIFIED,
        srcHost: core::ptr::null(),
        srcDevice: source,
        srcArray: CUarray::NULL,
        srcPitch: source_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: UNIFIED,
        dstHost: core::ptr::null_mut(),
        dstDevice: target,
        dstArray: CUarray::NULL,
        dstPitch: target_pitch,
        WidthInBytes: width,
        Height: height,
    }
}

/// A copy in the driver's form. Beside an array the runtime counts in its elements: there its own position, and the
/// extent of the whole copy.
pub(super) fn box_of(copy: &Copy3D) -> Answer<CUDA_MEMCPY3D> {
    let unit = |array: CUarray| if array.is_null() { Ok(1) } else { array::element_bytes(array) };
    let (source_unit, target_unit) = (unit(copy.source_array)?, unit(copy.target_array)?);
    let bytes = |count: usize, unit: usize| count.checked_mul(unit).ok_or(CUDA_ERROR_INVALID_VALUE);
    // Both arrays have elements of one size, or the copy is none.
    if !copy.source_array.is_null() && !copy.target_array.is_null() && source_unit != target_unit {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let width = bytes(copy.extent.width, source_unit.max(target_unit))?;
    let side = |array: CUarray| if array.is_null() { UNIFIED } else { ARRAY };
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: bytes(copy.source_position.x, source_unit)?,
        srcY: copy.source_position.y,
        srcZ: copy.source_position.z,
        srcLOD: 0,
        srcMemoryType: side(copy.source_array),
        srcHost: core::ptr::null(),
        srcDevice: copy.source.address,
        srcArray: copy.source_array,
        reserved0: core::ptr::null_mut(),
        srcPitch: copy.source.pitch,
        srcHeight: copy.source.height,
        dstXInBytes: bytes(copy.target_position.x, target_unit)?,
        dstY: copy.target_position.y,
        dstZ: copy.target_position.z,
        dstLOD: 0,
        dstMemoryType: side(copy.target_array),
        dstHost: core::ptr::null_mut(),
        dstDevice: copy.target.address,
        dstArray: copy.target_array,
        reserved1: core::ptr::null_mut(),
        dstPitch: copy.target.pitch,
        dstHeight: copy.target.height,
        WidthInBytes: width,
        Height: copy.extent.height,
        Depth: copy.extent.depth,
    })
}

/// A copy of one row, in the driver's form.
pub(super) fn row_of(target: u64, source: u64, bytes: usize) -> CUDA_MEMCPY3D {
    let side = |address| PitchedPtr { address, pitch: bytes, width: bytes, height: 1 };
    let origin = Position { x: 0, y: 0, z: 0 };
    let memory = |address| (CUarray::NULL, origin, side(address));
    let copy = Copy3D::between(memory(target), memory(source), Extent { width: bytes, height: 1, depth: 1 });
    // Without arrays there is nothing that could not be expressed.
    box_of(&copy).unwrap_or_else(|_| unreachable!("no array"))
}

/// Address of a part of a variable.
fn part(shadow: *const c_void, offset: usize, bytes: usize) -> Answer<u64> {
    let (address, size) = super::code::variable(shadow)?;
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(address + offset as u64)
}

runtime! {
    /// Copies.
    with_context radrm_cudaMemcpy(target: u64, source: u64, bytes: usize, kind: c_uint) {
        copy(target, source, bytes, kind)
    }

    /// Copies in stream order.
    with_context radrm_cudaMemcpyAsync(target: u64, source: u64, bytes: usize, kind: c_uint, stream: CUstream) {
        copy_async(target, source, bytes, kind, stream)
    }

    /// Copies in the order of the thread's own stream.
    with_context radrm_cudaMemcpyAsync_ptsz(
        target: u64, source: u64, bytes: usize, kind: c_uint, stream: CUstream,
    ) {
        let stream = if stream.is_null() { CU_STREAM_PER_THREAD } else { stream };
        copy_async(target, source, bytes, kind, stream)
    }

    /// Copies between devices.
    with_context radrm_cudaMemcpyPeer(target: u64, to: c_int, source: u64, from: c_int, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpyPeer(target, device::primary(to)?, source, device::primary(from)?, bytes) }
    }

    /// Copies between devices in stream order.
    with_context radrm_cudaMemcpyPeerAsync(
        target: u64, to: c_int, source: u64, from: c_int, bytes: usize, stream: CUstream,
    ) {
        let (to, from) = (device::primary(to)?, device::primary(from)?);
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpyPeerAsync(target, to, source, from, bytes, stream) }
    }

    /// Copies rows.
    with_context radrm_cudaMemcpy2D(
        target: u64, target_pitch: usize, source: u64, source_pitch: usize, width: usize, height: usize, _kind: c_uint,
    ) {
        let copy = plane((target, target_pitch), (source, source_pitch), (width, height));
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy2D_v2(&raw const copy) }
    }

    /// Copies rows in stream order.
    with_context radrm_cudaMemcpy2DAsync(
        target: u64, target_pitch: usize, source: u64, source_pitch: usize, width: usize, height: usize, _kind: c_uint,
        stream: CUstream,
    ) {
        let copy = plane((target, target_pitch), (source, source_pitch), (width, height));
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy2DAsync_v2(&raw const copy, stream) }
    }

    /// Copies a box.
    with_context radrm_cudaMemcpy3D(copy: In<Copy3D>) {
        let copy = box_of(&copy.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy3D_v2(&raw const copy) }
    }

    /// Copies a box in stream order.
    with_context radrm_cudaMemcpy3DAsync(copy: In<Copy3D>, stream: CUstream) {
        let copy = box_of(&copy.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy3DAsync_v2(&raw const copy, stream) }
    }

    /// Copies to a variable.
    with_context radrm_cudaMemcpyToSymbol(
        shadow: *const c_void, source: u64, bytes: usize, offset: usize, kind: c_uint,
    ) {
        copy(part(shadow, offset, bytes)?, source, bytes, kind)
    }

    /// Copies to a variable in stream order.
    with_context radrm_cudaMemcpyToSymbolAsync(
        shadow: *const c_void, source: u64, bytes: usize, offset: usize, kind: c_uint, stream: CUstream,
    ) {
        copy_async(part(shadow, offset, bytes)?, source, bytes, kind, stream)
    }

    /// Copies from a variable.
    with_context radrm_cudaMemcpyFromSymbol(
        target: u64, shadow: *const c_void, bytes: usize, offset: usize, kind: c_uint,
    ) {
        copy(target, part(shadow, offset, bytes)?, bytes, kind)
    }

    /// Copies from a variable in stream order.
    with_context radrm_cudaMemcpyFromSymbolAsync(
        target: u64, shadow: *const c_void, bytes: usize, offset: usize, kind: c_uint, stream: CUstream,
    ) {
        copy_async(target, part(shadow, offset, bytes)?, bytes, kind, stream)
    }

    /// Sets bytes.
    with_context radrm_cudaMemset(address: u64, value: c_int, count: usize) {
        // SAFETY: no pointers.
        unsafe { driver::cuMemsetD8_v2(address, value as u8, count)? };
        known::forget(address, count as u64);
        Ok(())
    }

    /// Sets bytes in stream order.
    with_context radrm_cudaMemsetAsync(address: u64, value: c_int, count: usize, stream: CUstream) {
        // SAFETY: no pointers.
        unsafe { driver::cuMemsetD8Async(address, value as u8, count, stream)? };
        known::forget(address, count as u64);
        Ok(())
    }

    /// Sets bytes in rows.
    with_context radrm_cudaMemset2D(address: u64, pitch: usize, value: c_int, width: usize, height: usize) {
        // SAFETY: no pointers.
        unsafe { driver::cuMemsetD2D8_v2(address, pitch, value as u8, width, height) }
    }

    /// Sets bytes in rows, in stream order.
    with_context radrm_cudaMemset2DAsync(
        address: u64, pitch: usize, value: c_int, width: usize, height: usize, stream: CUstream,
    ) {
        // SAFETY: no pointers.
        unsafe { driver::cuMemsetD2D8Async(address, pitch, value as u8, width, height, stream) }
    }
}
