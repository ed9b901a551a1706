//! Managed memory, and advice about it. It is host memory here: nothing migrates.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::memory::host;
use crate::engine::memory::space::Use;
use crate::engine::stream::{capture, sync};
use crate::util::ffi::{Answer, In, Out};

/// `CU_MEM_ATTACH_GLOBAL`, `_HOST`, `_SINGLE`.
const ATTACH: [c_uint; 3] = [1, 2, 4];
/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const CPU: CUdevice = -1;
const INVALID_DEVICE: c_int = -2;

/// Fails unless all of a range is managed memory.
fn managed(driver: &'static Driver, address: u64, bytes: u64) -> Answer {
    let state = driver.memory.lock();
    let block = state.blocks.find(address).filter(|b| b.kind == Use::Managed);
    let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let last = block.ok_or(CUDA_ERROR_INVALID_VALUE)?.end();
    // Whole pages of an allocation belong to it.
    if bytes == 0 || end > last.next_multiple_of(4096) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn place(driver: &'static Driver, device: CUdevice) -> Answer {
    if device == CPU { Ok(()) } else { driver.device(device).map(drop) }
}

fn location(driver: &'static Driver, location: CUmemLocation) -> Answer {
    match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => place(driver, location.id),
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn advise(driver: &'static Driver, address: u64, bytes: usize, advice: c_uint) -> Answer {
    driver.current()?;
    if !(1..=6).contains(&advice) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    managed(driver, address, bytes as u64)
}

fn prefetch(driver: &'static Driver, address: u64, bytes: usize, stream: CUstream) -> Answer {
    let context = driver.current()?;
    sync::check(driver, &context, stream)?;
    managed(driver, address, bytes as u64)
}

fn prefetch_list(
    driver: &'static Driver,
    addresses: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    stream: CUstream,
) -> Answer {
    if count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (address, bytes) in addresses.list(count)?.into_iter().zip(sizes.list(count)?) {
        prefetch(driver, address, bytes, stream)?;
    }
    Ok(())
}

/// One attribute of a range: nothing is advised, nothing was prefetched.
fn attribute(out: Out<c_void>, bytes: usize, id: c_uint) -> Answer {
    match (id, bytes) {
        // Read mostly.
        (1, 4) => out.cast::<c_int>().set(0),
        // Preferred location, last prefetch: none.
        (2 | 4, 4) => out.cast::<c_int>().set(INVALID_DEVICE),
        // Devices that access it: a list, all empty.
        (3, _) if bytes >= 4 && bytes.is_multiple_of(4) => {
            (0..bytes / 4).try_for_each(|i| out.cast::<c_int>().set_at(i, INVALID_DEVICE))
        }
        // Types and ids of the same.
        (5..=8, 4) => out.cast::<c_int>().set(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

entry_points! {
    /// Takes managed memory.
    fn cuMemAllocManaged(out: Out<CUdeviceptr>, bytes: usize, flags: c_uint) |driver| {
        out.required()?;
        let context = driver.current()?;
        capture::unsafe_call(driver)?;
        if flags != ATTACH[0] && flags != ATTACH[1] {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(host::map(driver, &context, bytes as u64, Use::Managed, flags)?)
    }

    /// Advises about managed memory (before CUDA 12.2).
    fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_uint, device: CUdevice) |driver| {
        place(driver, device)?;
        advise(driver, address, bytes, advice)
    }

    /// Advises about managed memory.
    fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: c_uint, place: CUmemLocation) |driver| {
        location(driver, place)?;
        advise(driver, address, bytes, advice)
    }

    /// Moves managed memory (before CUDA 12.2).
    fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) |driver| {
        place(driver, device)?;
        prefetch(driver, address, bytes, stream)
    }

    /// Moves managed memory.
    fn cuMemPrefetchAsync_v2(
        address: CUdeviceptr, bytes: usize, place: CUmemLocation, flags: c_uint, stream: CUstream,
    ) |driver| {
        location(driver, place)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch(driver, address, bytes, stream)
    }

    /// Moves several ranges of managed memory.
    fn cuMemPrefetchBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, places: In<CUmemLocation>,
        indices: In<usize>, place_count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        let _ = indices;
        if flags != 0 || place_count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        places.list(place_count)?.into_iter().try_for_each(|place| location(driver, place))?;
        prefetch_list(driver, addresses, sizes, count, stream)
    }

    /// Gives up the contents of several ranges of managed memory.
    fn cuMemDiscardBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch_list(driver, addresses, sizes, count, stream)
    }

    /// Gives up contents and moves ranges of managed memory.
    fn cuMemDiscardAndPrefetchBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, places: In<CUmemLocation>,
        indices: In<usize>, place_count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        let _ = indices;
        if flags != 0 || place_count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        places.list(place_count)?.into_iter().try_for_each(|place| location(driver, place))?;
        prefetch_list(driver, addresses, sizes, count, stream)
    }

    /// Attaches managed memory to a stream.
    fn cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint) |driver| {
        let context = driver.current()?;
        sync::check(driver, &context, stream)?;
        if !ATTACH.contains(&flags) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        managed(driver, address, (bytes as u64).max(1))
    }

    /// An attribute of a range of managed memory.
    fn cuMemRangeGetAttribute(
        out: Out<c_void>, size: usize, id: c_uint, address: CUdeviceptr, bytes: usize,
    ) |driver| {
        managed(driver, address, bytes as u64)?;
        attribute(out, size, id)
    }

    /// Several attributes of a range of managed memory.
    fn cuMemRangeGetAttributes(
        out: In<Out<c_void>>, sizes: In<usize>, ids: In<c_uint>, count: usize, address: CUdeviceptr, bytes: usize,
    ) |driver| {
        managed(driver, address, bytes as u64)?;
        let places = out.list(count)?.into_iter().zip(sizes.list(count)?).zip(ids.list(count)?);
        for ((place, size), id) in places {
            attribute(place, size, id)?;
        }
        Ok(())
    }
}
