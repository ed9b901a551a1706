//! Entry points of the copies.

use core::ffi::c_void;

use radrm_cuda_abi::*;

use crate::api::exports::sync_stream;
use crate::engine::driver::Driver;
use crate::engine::memory::array;
use crate::engine::memory::copy::{Extent, Side};
use crate::engine::transfer::copy;
use crate::util::ffi::{Answer, In, Out};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

fn linear(
    driver: &'static Driver,
    target: Side,
    source: Side,
    bytes: usize,
    stream: Option<CUstream>,
) -> Answer {
    copy(driver, target, source, [bytes as u64, 1, 1], stream.unwrap_or_else(sync_stream), stream.is_some())
}

/// An array from an offset in bytes on, as it was one row.
fn array_bytes(driver: &'static Driver, array: CUarray, offset: usize, bytes: usize) -> Answer<Side> {
    let state = driver.memory.lock();
    let array = array::find(&state, array)?;
    let (_, plane) = array.pitches();
    let end = (offset as u64).checked_add(bytes as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if end > plane * array.extent()[2] {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Side::device(array.base + offset as u64))
}

/// One side of a two- or three-dimensional copy, as the structures describe it.
struct Description {
    kind: u32,
    host: u64,
    device: u64,
    array: CUarray,
    pitch: usize,
    height: usize,
    at: [usize; 3],
}

/// One side of a copy of rows, from the fields of that side.
macro_rules! sides {
    ($c:ident: $kind:ident, $host:ident, $device:ident, $array:ident, $pitch:ident, $x:ident, $y:ident) => {
        Description {
            kind: $c.$kind,
            host: $c.$host as u64,
            device: $c.$device,
            array: $c.$array,
            pitch: $c.$pitch,
            height: 0,
            at: [$c.$x, $c.$y, 0],
        }
    };
}

impl Description {
    fn side(&self, driver: &'static Driver, extent: Extent) -> Answer<Side> {
        let [x, y, z] = self.at.map(|n| n as u64);
        let [width, rows, planes] = extent;
        if self.kind == ARRAY {
            let state = driver.memory.lock();
            let array = array::find(&state, self.array)?;
            let (pitch, plane) = array.pitches();
            let [_, height, depth] = array.extent();
            if x + width > pitch || y + rows > height || z + planes > depth {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let address = array.base + z * plane + y * pitch + x;
            return Ok(Side { address, pitch, plane, device_only: true });
        }
        let pitch = if self.pitch == 0 { x + width } else { self.pitch as u64 };
        let height = if self.height == 0 { y + rows } else { self.height as u64 };
        if pitch < x + width || (planes > 1 && height < y + rows) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let plane = pitch.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let base = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let offset = [z.checked_mul(plane), y.checked_mul(pitch), Some(x)];
        let address = offset.into_iter().try_fold(base, |sum, part| sum.checked_add(part?));
        let device_only = self.kind == DEVICE;
        Ok(Side { address: address.ok_or(CUDA_ERROR_INVALID_VALUE)?, pitch, plane, device_only })
    }
}

fn boxes(
    driver: &'static Driver,
    from: &Description,
    to: &Description,
    extent: [usize; 3],
    stream: Option<CUstream>,
) -> Answer {
    let extent = extent.map(|n| n as u64);
    if extent.contains(&0) {
        return driver.current().map(drop);
    }
    if extent.iter().try_fold(1u64, |product, n| product.checked_mul(*n)).is_none_or(|bytes| bytes > 1 << 50)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (target, source) = (to.side(driver, extent)?, from.side(driver, extent)?);
    copy(driver, target, source, extent, stream.unwrap_or_else(sync_stream), stream.is_some())
}

fn copy_2d(driver: &'static Driver, c: In<CUDA_MEMCPY2D>, stream: Option<CUstream>) -> Answer {
    let c = c.get()?;
    let from = sides!(c: srcMemoryType, srcHost, srcDevice, srcArray, srcPitch, srcXInBytes, srcY);
    let to = sides!(c: dstMemoryType, dstHost, dstDevice, dstArray, dstPitch, dstXInBytes, dstY);
    boxes(driver, &from, &to, [c.WidthInBytes, c.Height, 1], stream)
}

fn copy_3d(driver: &'static Driver, c: In<CUDA_MEMCPY3D>, stream: Option<CUstream>) -> Answer {
    let c = c.get()?;
    let mut from = sides!(c: srcMemoryType, srcHost, srcDevice, srcArray, srcPitch, srcXInBytes, srcY);
    let mut to = sides!(c: dstMemoryType, dstHost, dstDevice, dstArray, dstPitch, dstXInBytes, dstY);
    (from.height, from.at[2], to.height, to.at[2]) = (c.srcHeight, c.srcZ, c.dstHeight, c.dstZ);
    boxes(driver, &from, &to, [c.WidthInBytes, c.Height, c.Depth], stream)
}

fn peer(driver: &'static Driver, contexts: [CUcontext; 2]) -> Answer {
    for context in contexts {
        driver.contexts.get(context.addr()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?.check()?;
    }
    Ok(())
}

fn batch(
    driver: &'static Driver,
    targets: In<CUdeviceptr>,
    sources: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    stream: CUstream,
) -> Result<(), (CUresult, usize)> {
    let at_all = |code| (code, usize::MAX);
    // A batch cannot go to the legacy stream.
    if count == 0 || stream.is_null() || stream == CU_STREAM_LEGACY {
        return Err(at_all(CUDA_ERROR_INVALID_VALUE));
    }
    let list = |result: Answer<Vec<u64>>| result.map_err(at_all);
    let (targets, sources) = (list(targets.list(count))?, list(sources.list(count))?);
    let sizes = sizes.list(count).map_err(at_all)?;
    for (i, ((target, source), size)) in targets.into_iter().zip(sources).zip(sizes).enumerate() {
        if size == 0 {
            return Err((CUDA_ERROR_INVALID_VALUE, i));
        }
        linear(driver, Side::linear(target), Side::linear(source), size, Some(stream))
            .map_err(|code| (code, i))?;
    }
    Ok(())
}

fn operand(operand: &CUmemcpy3DOperand) -> Description {
    let [a, b, c, d] = operand.words;
    let array = operand.kind == 2;
    Description {
        kind: if array { ARRAY } else { UNIFIED },
        host: 0,
        device: a,
        array: CUarray(a as *mut c_void),
        pitch: if array { 0 } else { b as usize },
        height: if array { 0 } else { c as usize },
        at: if array { [b as usize, c as usize, d as usize] } else { [0; 3] },
    }
}

fn batch_3d(
    driver: &'static Driver,
    list: In<CUDA_MEMCPY3D_BATCH_OP>,
    count: usize,
    stream: CUstream,
) -> Result<(), (CUresult, usize)> {
    let at_all = |code| (code, usize::MAX);
    if count == 0 || stream.is_null() || stream == CU_STREAM_LEGACY {
        return Err(at_all(CUDA_ERROR_INVALID_VALUE));
    }
    for (i, op) in list.list(count).map_err(at_all)?.iter().enumerate() {
        let (mut from, mut to) = (operand(&op.src), operand(&op.dst));
        // Widths count elements of the array that takes part, else bytes.
        let element = {
            let state = driver.memory.lock();
            [&from, &to]
                .iter()
                .filter(|d| d.kind == ARRAY)
                .find_map(|d| array::find(&state, d.array).ok().map(|a| a.element))
        };
        let element = element.unwrap_or(1) as usize;
        for side in [&mut from, &mut to] {
            side.pitch *= element;
            side.at[0] *= element;
        }
        let extent = [op.width.saturating_mul(element), op.height.max(1), op.depth.max(1)];
        boxes(driver, &from, &to, extent, Some(stream)).map_err(|code| (code, i))?;
    }
    Ok(())
}

fn with_index(result: Result<(), (CUresult, usize)>, out: Out<usize>) -> Answer {
    result.map_err(|(code, index)| {
        out.set_if_wanted(index);
        code
    })
}

/// Writes copies from one address to another: the call that waits, the one in stream order, and what the two addresses
/// must be.
macro_rules! linear_copies {
    ($($(#[$meta:meta])* fn $now:ident, fn $queued:ident: $target:ident, $source:ident;)*) => { entry_points! { $(
        $(#[$meta])*
        fn $now(target: u64, source: u64, bytes: usize) |driver| {
            linear(driver, Side::$target(target), Side::$source(source), bytes, None)
        }

        $(#[$meta])*
        ///
        /// In stream order.
        fn $queued(target: u64, source: u64, bytes: usize, stream: CUstream) |driver| {
            linear(driver, Side::$target(target), Side::$source(source), bytes, Some(stream))
        }
    )* } };
}

linear_copies! {
    /// Copies between any places.
    fn cuMemcpy, fn cuMemcpyAsync: linear, linear;
    /// Copies to the device.
    fn cuMemcpyHtoD_v2, fn cuMemcpyHtoDAsync_v2: device, linear;
    /// Copies from the device.
    fn cuMemcpyDtoH_v2, fn cuMemcpyDtoHAsync_v2: linear, device;
    /// Copies on the device.
    fn cuMemcpyDtoD_v2, fn cuMemcpyDtoDAsync_v2: device, device;
}

entry_points! {
    /// Copies from device to device.
    fn cuMemcpyPeer(
        target: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize,
    ) |driver| {
        peer(driver, [to, from])?;
        linear(driver, Side::device(target), Side::device(source), bytes, None)
    }

    /// Copies from device to device, in stream order.
    fn cuMemcpyPeerAsync(
        target: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize, stream: CUstream,
    ) |driver| {
        peer(driver, [to, from])?;
        linear(driver, Side::device(target), Side::device(source), bytes, Some(stream))
    }

    /// Copies from the host to an array.
    fn cuMemcpyHtoA_v2(array: CUarray, offset: usize, source: u64, bytes: usize) |driver| {
        linear(driver, array_bytes(driver, array, offset, bytes)?, Side::linear(source), bytes, None)
    }

    /// Copies from the host to an array, in stream order.
    fn cuMemcpyHtoAAsync_v2(array: CUarray, offset: usize, source: u64, bytes: usize, stream: CUstream) |driver| {
        linear(driver, array_bytes(driver, array, offset, bytes)?, Side::linear(source), bytes, Some(stream))
    }

    /// Copies from an array to the host.
    fn cuMemcpyAtoH_v2(target: u64, array: CUarray, offset: usize, bytes: usize) |driver| {
        linear(driver, Side::linear(target), array_bytes(driver, array, offset, bytes)?, bytes, None)
    }

    /// Copies from an array to the host, in stream order.
    fn cuMemcpyAtoHAsync_v2(target: u64, array: CUarray, offset: usize, bytes: usize, stream: CUstream) |driver| {
        linear(driver, Side::linear(target), array_bytes(driver, array, offset, bytes)?, bytes, Some(stream))
    }

    /// Copies from device memory to an array.
    fn cuMemcpyDtoA_v2(array: CUarray, offset: usize, source: CUdeviceptr, bytes: usize) |driver| {
        linear(driver, array_bytes(driver, array, offset, bytes)?, Side::device(source), bytes, None)
    }

    /// Copies from an array to device memory.
    fn cuMemcpyAtoD_v2(target: CUdeviceptr, array: CUarray, offset: usize, bytes: usize) |driver| {
        linear(driver, Side::device(target), array_bytes(driver, array, offset, bytes)?, bytes, None)
    }

    /// Copies from array to array.
    fn cuMemcpyAtoA_v2(target: CUarray, to: usize, source: CUarray, from: usize, bytes: usize) |driver| {
        let target = array_bytes(driver, target, to, bytes)?;
        linear(driver, target, array_bytes(driver, source, from, bytes)?, bytes, None)
    }

    /// Copies rows.
    fn cuMemcpy2D_v2(description: In<CUDA_MEMCPY2D>) |driver| {
        copy_2d(driver, description, None)
    }

    /// Copies rows whose pitch may be anything.
    fn cuMemcpy2DUnaligned_v2(description: In<CUDA_MEMCPY2D>) |driver| {
        copy_2d(driver, description, None)
    }

    /// Copies rows, in stream order.
    fn cuMemcpy2DAsync_v2(description: In<CUDA_MEMCPY2D>, stream: CUstream) |driver| {
        copy_2d(driver, description, Some(stream))
    }

    /// Copies a box.
    fn cuMemcpy3D_v2(description: In<CUDA_MEMCPY3D>) |driver| {
        copy_3d(driver, description, None)
    }

    /// Copies a box, in stream order.
    fn cuMemcpy3DAsync_v2(description: In<CUDA_MEMCPY3D>, stream: CUstream) |driver| {
        copy_3d(driver, description, Some(stream))
    }

    /// Copies a box from device to device.
    fn cuMemcpy3DPeer(description: In<CUDA_MEMCPY3D>) |driver| {
        copy_3d(driver, description, None)
    }

    /// Copies a box from device to device, in stream order.
    fn cuMemcpy3DPeerAsync(description: In<CUDA_MEMCPY3D>, stream: CUstream) |driver| {
        copy_3d(driver, description, Some(stream))
    }

    /// Several copies (CUDA 12.8).
    fn cuMemcpyBatchAsync(
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<u32>, indices: In<usize>, attribute_count: usize, failed: Out<usize>, stream: CUstream,
    ) |driver| {
        let _ = (attributes, indices, attribute_count);
        with_index(batch(driver, targets, sources, sizes, count, stream), failed)
    }

    /// Several copies (from CUDA 13).
    fn cuMemcpyBatchAsync_v2(
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<u32>, indices: In<usize>, attribute_count: usize, stream: CUstream,
    ) |driver| {
        let _ = (attributes, indices, attribute_count);
        batch(driver, targets, sources, sizes, count, stream).map_err(|(code, _)| code)
    }

    /// One copy with attributes.
    fn cuMemcpyWithAttributesAsync(
        target: CUdeviceptr, source: CUdeviceptr, bytes: usize, attributes: In<u32>, stream: CUstream,
    ) |driver| {
        let _ = attributes;
        linear(driver, Side::linear(target), Side::linear(source), bytes, Some(stream))
    }

    /// Several copies of boxes (CUDA 12.8).
    fn cuMemcpy3DBatchAsync(
        count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, failed: Out<usize>, flags: u64, stream: CUstream,
    ) |driver| {
        let _ = flags;
        with_index(batch_3d(driver, list, count, stream), failed)
    }

    /// Several copies of boxes (from CUDA 13).
    fn cuMemcpy3DBatchAsync_v2(
        count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream,
    ) |driver| {
        let _ = flags;
        batch_3d(driver, list, count, stream).map_err(|(code, _)| code)
    }

    /// One copy of a box with attributes.
    fn cuMemcpy3DWithAttributesAsync(op: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream) |driver| {
        let _ = flags;
        batch_3d(driver, op, 1, stream).map_err(|(code, _)| code)
    }
}
