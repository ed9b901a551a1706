//! Copies to and from arrays. Positions in arrays and widths are in bytes here, as the driver has them; only boxes
//! ([`super::copy`]) count in elements.

use core::ffi::{c_int, c_uint};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In};

use super::copy::{Copy3D, Position, box_of};
use super::memory::{Extent, PitchedPtr};
use super::{array, device, runtime};
use radrm_cuda_client as driver;

/// `CU_MEMORYTYPE_ARRAY`, and memory that the driver finds out about by its address.
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// One side of a copy of rows.
#[derive(Clone, Copy)]
enum Side {
    /// An array, from a byte of a row on.
    Array(CUarray, usize, usize),
    /// Memory, with the bytes of a row.
    Memory(u64, usize),
}

fn rows(target: Side, source: Side, width: usize, height: usize) -> CUDA_MEMCPY2D {
    let fields = |side| match side {
        Side::Array(array, x, y) => (ARRAY, array, x, y, 0, 0),
        Side::Memory(address, pitch) => (UNIFIED, CUarray::NULL, 0, 0, address, pitch),
    };
    let (to, from) = (fields(target), fields(source));
    CUDA_MEMCPY2D {
        srcXInBytes: from.2,
        srcY: from.3,
        srcMemoryType: from.0,
        srcHost: core::ptr::null(),
        srcDevice: from.4,
        srcArray: from.1,
        srcPitch: from.5,
        dstXInBytes: to.2,
        dstY: to.3,
        dstMemoryType: to.0,
        dstHost: core::ptr::null_mut(),
        dstDevice: to.4,
        dstArray: to.1,
        dstPitch: to.5,
        WidthInBytes: width,
        Height: height,
    }
}

/// Copies rows, at once or in a stream's order.
fn copy(target: Side, source: Side, (width, height): (usize, usize), stream: Option<CUstream>) -> Answer {
    let copy = rows(target, source, width, height);
    // SAFETY: as the caller of the runtime promises.
    unsafe {
        match stream {
            None => driver::cuMemcpy2D_v2(&raw const copy),
            Some(stream) => driver::cuMemcpy2DAsync_v2(&raw const copy, stream),
        }
    }
}

/// Parts of a run of bytes that begins in the middle of a row: (row, byte of the row, bytes of a row, rows).
fn parts(pitch: usize, x: usize, y: usize, bytes: usize) -> Vec<(usize, usize, usize, usize)> {
    let first = bytes.min(pitch.saturating_sub(x));
    let (whole, last) = ((bytes - first) / pitch.max(1), (bytes - first) % pitch.max(1));
    [(y, x, first, 1), (y + 1, 0, pitch, whole), (y + 1 + whole, 0, last, 1)]
        .into_iter()
        .filter(|(.., width, height)| width * height > 0)
        .collect()
}

/// Copies a run of bytes between an array, from a byte of a row on, and memory.
fn run(
    (array, x, y): (CUarray, usize, usize),
    memory: u64,
    bytes: usize,
    to_array: bool,
    stream: Option<CUstream>,
) -> Answer {
    let pitch = array::describe(array)?
        .Width
        .checked_mul(array::element_bytes(array)?)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if x >= pitch {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut address = memory;
    for (row, at, width, height) in parts(pitch, x, y, bytes) {
        let (own, other) = (Side::Array(array, at, row), Side::Memory(address, width));
        let (target, source) = if to_array { (own, other) } else { (other, own) };
        copy(target, source, (width, height), stream)?;
        address += (width * height) as u64;
    }
    Ok(())
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3DPeer {
    source_array: CUarray,
    source_position: Position,
    source: PitchedPtr,
    source_device: c_int,
    target_array: CUarray,
    target_position: Position,
    target: PitchedPtr,
    target_device: c_int,
    extent: Extent,
}

const _: () = assert!(size_of::<Copy3DPeer>() == 168);

/// A box between devices: in the driver's form the contexts stand where other boxes have reserved members.
fn peer_box(copy: &Copy3DPeer) -> Answer<CUDA_MEMCPY3D> {
    let plain = Copy3D::between(
        (copy.target_array, copy.target_position, copy.target),
        (copy.source_array, copy.source_position, copy.source),
        copy.extent,
    );
    let mut own = box_of(&plain)?;
    own.reserved0 = device::primary(copy.source_device)?.addr() as *mut _;
    own.reserved1 = device::primary(copy.target_device)?.addr() as *mut _;
    Ok(own)
}

/// Sets a box of bytes: each plane is rows of one pitch, and planes lie as many rows apart as memory has.
fn set_box(memory: PitchedPtr, value: c_int, extent: Extent, stream: Option<CUstream>) -> Answer {
    let plane = memory.pitch.checked_mul(memory.height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if extent.width > memory.pitch || (extent.depth > 1 && extent.height > memory.height) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if extent.width == 0 || extent.height == 0 {
        return Ok(());
    }
    for z in 0..extent.depth {
        let address = z
            .checked_mul(plane)
            .and_then(|offset| memory.address.checked_add(offset as u64))
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (pitch, value, width, height) = (memory.pitch, value as u8, extent.width, extent.height);
        // SAFETY: no pointers.
        unsafe {
            match stream {
                None => driver::cuMemsetD2D8_v2(address, pitch, value, width, height)?,
                Some(stream) => driver::cuMemsetD2D8Async(address, pitch, value, width, height, stream)?,
            }
        }
    }
    Ok(())
}

runtime! {
    /// Copies rows to an array.
    with_context radrm_cudaMemcpy2DToArray(
        array: CUarray, x: usize, y: usize, source: u64, pitch: usize, width: usize, height: usize, _kind: c_uint,
    ) {
        copy(Side::Array(array, x, y), Side::Memory(source, pitch), (width, height), None)
    }

    /// Copies rows to an array in stream order.
    with_context radrm_cudaMemcpy2DToArrayAsync(
        array: CUarray, x: usize, y: usize, source: u64, pitch: usize, width: usize, height: usize, _kind: c_uint,
        stream: CUstream,
    ) {
        copy(Side::Array(array, x, y), Side::Memory(source, pitch), (width, height), Some(stream))
    }

    /// Copies rows from an array.
    with_context radrm_cudaMemcpy2DFromArray(
        target: u64, pitch: usize, array: CUarray, x: usize, y: usize, width: usize, height: usize, _kind: c_uint,
    ) {
        copy(Side::Memory(target, pitch), Side::Array(array, x, y), (width, height), None)
    }

    /// Copies rows from an array in stream order.
    with_context radrm_cudaMemcpy2DFromArrayAsync(
        target: u64, pitch: usize, array: CUarray, x: usize, y: usize, width: usize, height: usize, _kind: c_uint,
        stream: CUstream,
    ) {
        copy(Side::Memory(target, pitch), Side::Array(array, x, y), (width, height), Some(stream))
    }

    /// Copies rows between arrays.
    with_context radrm_cudaMemcpy2DArrayToArray(
        target: CUarray, to_x: usize, to_y: usize, source: CUarray, x: usize, y: usize, width: usize, height: usize,
        _kind: c_uint,
    ) {
        copy(Side::Array(target, to_x, to_y), Side::Array(source, x, y), (width, height), None)
    }

    /// Copies a run of bytes to an array.
    with_context radrm_cudaMemcpyToArray(
        array: CUarray, x: usize, y: usize, source: u64, bytes: usize, _kind: c_uint,
    ) {
        run((array, x, y), source, bytes, true, None)
    }

    /// Copies a run of bytes to an array in stream order.
    with_context radrm_cudaMemcpyToArrayAsync(
        array: CUarray, x: usize, y: usize, source: u64, bytes: usize, _kind: c_uint, stream: CUstream,
    ) {
        run((array, x, y), source, bytes, true, Some(stream))
    }

    /// Copies a run of bytes from an array.
    with_context radrm_cudaMemcpyFromArray(
        target: u64, array: CUarray, x: usize, y: usize, bytes: usize, _kind: c_uint,
    ) {
        run((array, x, y), target, bytes, false, None)
    }

    /// Copies a run of bytes from an array in stream order.
    with_context radrm_cudaMemcpyFromArrayAsync(
        target: u64, array: CUarray, x: usize, y: usize, bytes: usize, _kind: c_uint, stream: CUstream,
    ) {
        run((array, x, y), target, bytes, false, Some(stream))
    }

    /// Copies a box between devices.
    with_context radrm_cudaMemcpy3DPeer(copy: In<Copy3DPeer>) {
        let copy = peer_box(&copy.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy3DPeer((&raw const copy).cast()) }
    }

    /// Copies a box between devices in stream order.
    with_context radrm_cudaMemcpy3DPeerAsync(copy: In<Copy3DPeer>, stream: CUstream) {
        let copy = peer_box(&copy.get()?)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemcpy3DPeerAsync((&raw const copy).cast(), stream) }
    }

    /// Sets bytes in a box.
    with_context radrm_cudaMemset3D(memory: PitchedPtr, value: c_int, extent: Extent) {
        set_box(memory, value, extent, None)
    }

    /// Sets bytes in a box, in stream order.
    with_context radrm_cudaMemset3DAsync(memory: PitchedPtr, value: c_int, extent: Extent, stream: CUstream) {
        set_box(memory, value, extent, Some(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_bytes_goes_on_in_the_next_row() {
        assert_eq!(parts(16, 0, 0, 16), [(0, 0, 16, 1)]);
        assert_eq!(parts(16, 12, 1, 4), [(1, 12, 4, 1)]);
        assert_eq!(parts(16, 12, 1, 40), [(1, 12, 4, 1), (2, 0, 16, 2), (4, 0, 4, 1)]);
        assert_eq!(parts(16, 0, 0, 0), []);
        for (x, bytes) in [(0, 100), (5, 11), (15, 1), (3, 64)] {
            let sum: usize = parts(16, x, 2, bytes).iter().map(|(.., width, height)| width * height).sum();
            assert_eq!(sum, bytes, "{x}");
        }
    }
}
