//! Managed memory, and advice about it. It is host memory here: nothing migrates.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::memory::advice::{CPU, Hints, INVALID_DEVICE, Place, device_of, place_of};
use crate::engine::memory::host;
use crate::engine::memory::space::Use;
use crate::engine::stream::{capture, sync};
use crate::util::ffi::{Answer, In, Out};

/// `CU_MEM_ATTACH_GLOBAL`, `_HOST`, `_SINGLE`.
const ATTACH: [c_uint; 3] = [1, 2, 4];

/// Fails unless all of a range is managed memory.
fn managed(driver: &'static Driver, address: u64, bytes: u64) -> Answer {
    let state = driver.memory.lock();
    let block = state.blocks.find(address).filter(|b| b.kind == Use::Managed);
    let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let last = block.ok_or(CUDA_ERROR_INVALID_VALUE)?.end();
    // Whole pages of an allocation belong to it.
    if bytes == 0 || end > last.next_multiple_of(4096) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn place(driver: &'static Driver, location: CUmemLocation) -> Answer<Place> {
    match location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            driver.device(location.id)?;
        }
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {}
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok((location.kind.0, location.id))
}

/// Remembers advice; what takes a hint back, and "mostly read", name no location.
fn advise(
    driver: &'static Driver,
    address: u64,
    bytes: usize,
    advice: c_uint,
    location: CUmemLocation,
) -> Answer {
    driver.current()?;
    let change: Box<dyn Fn(&mut Hints)> = match advice {
        1 | 2 => Box::new(move |h| h.read_mostly = advice == 1),
        3 => {
            let place = place(driver, location)?;
            Box::new(move |h| h.preferred = Some(place))
        }
        4 => Box::new(|h| h.preferred = None),
        5 | 6 => {
            let device = device_of(Some(place(driver, location)?));
            if device == INVALID_DEVICE {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            Box::new(move |h| {
                let _new =
                    if advice == 5 { h.accessed_by.insert(device) } else { h.accessed_by.remove(&device) };
            })
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    managed(driver, address, bytes as u64)?;
    driver.memory.lock().advice.update(address, bytes as u64, change);
    Ok(())
}

fn prefetch(
    driver: &'static Driver,
    address: u64,
    bytes: usize,
    to: Option<Place>,
    stream: CUstream,
) -> Answer {
    let context = driver.current()?;
    sync::check(driver, &context, stream)?;
    managed(driver, address, bytes as u64)?;
    if to.is_some() {
        driver.memory.lock().advice.update(address, bytes as u64, |h| h.prefetched = to);
    }
    Ok(())
}

/// Several ranges: `places` names the locations and, for each, the first range that goes there.
fn batch(
    driver: &'static Driver,
    (addresses, sizes, count): (In<CUdeviceptr>, In<usize>, usize),
    places: Option<(In<CUmemLocation>, In<usize>, usize)>,
    flags: u64,
    stream: CUstream,
) -> Answer {
    if count == 0 || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut to = vec![None; count];
    if let Some((places, indices, given)) = places {
        let first = indices.list(given)?;
        if first.first() != Some(&0)
            || first.windows(2).any(|w| w[0] >= w[1])
            || first.iter().any(|i| *i >= count)
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (location, first) in places.list(given)?.into_iter().zip(first) {
            to[first..].fill(Some(place(driver, location)?));
        }
    }
    for ((address, bytes), to) in addresses.list(count)?.into_iter().zip(sizes.list(count)?).zip(to) {
        prefetch(driver, address, bytes, to, stream)?;
    }
    Ok(())
}

/// The value that all pages share.
fn shared<T: PartialEq>(hints: &[Hints], value: impl Fn(&Hints) -> T) -> Option<T> {
    let first = value(hints.first()?);
    hints.iter().all(|h| value(h) == first).then_some(first)
}

/// One attribute of a range: what holds for all of its pages.
fn attribute(hints: &[Hints], out: Out<c_void>, bytes: usize, id: c_uint) -> Answer {
    let place = |last: bool| shared(hints, |h| if last { h.prefetched } else { h.preferred }).flatten();
    let number = match (id, bytes) {
        (1, 4) => c_int::from(hints.iter().all(|h| h.read_mostly)),
        (2 | 4, 4) => device_of(place(id == 4)),
        (3, _) if bytes >= 4 && bytes.is_multiple_of(4) => {
            let mut devices = hints.first().map(|h| h.accessed_by.clone()).unwrap_or_default();
            devices.retain(|device| hints.iter().all(|h| h.accessed_by.contains(device)));
            // The host comes behind the devices.
            let host = devices.remove(&CPU).then_some(CPU);
            let list =
                devices.into_iter().chain(host).chain(std::iter::repeat(INVALID_DEVICE)).take(bytes / 4);
            return list.enumerate().try_for_each(|(i, device)| out.cast::<c_int>().set_at(i, device));
        }
        (5 | 7, 4) => place(id == 7).map_or(0, |(kind, _)| kind as c_int),
        (6 | 8, 4) => place(id == 8).map_or(0, |(_, id)| id),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    out.cast::<c_int>().set(number)
}

fn hints(driver: &'static Driver, address: u64, bytes: usize) -> Answer<Vec<Hints>> {
    managed(driver, address, bytes as u64)?;
    Ok(driver.memory.lock().advice.of(address, bytes as u64))
}

entry_points! {
    /// Takes managed memory.
    fn cuMemAllocManaged(out: Out<CUdeviceptr>, bytes: usize, flags: c_uint) |driver| {
        out.required()?;
        let context = driver.current()?;
        capture::unsafe_call(driver)?;
        if bytes == 0 || (flags != ATTACH[0] && flags != ATTACH[1]) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(host::map(driver, &context, bytes as u64, Use::Managed, flags)?)
    }

    /// Advises about managed memory (before CUDA 12.2).
    fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_uint, device: CUdevice) |driver| {
        if device != CPU {
            driver.device(device)?;
        }
        advise(driver, address, bytes, advice, place_of(device))
    }

    /// Advises about managed memory.
    fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: c_uint, place: CUmemLocation) |driver| {
        advise(driver, address, bytes, advice, place)
    }

    /// Moves managed memory (before CUDA 12.2).
    fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) |driver| {
        prefetch(driver, address, bytes, Some(place(driver, place_of(device))?), stream)
    }

    /// Moves managed memory.
    fn cuMemPrefetchAsync_v2(
        address: CUdeviceptr, bytes: usize, to: CUmemLocation, flags: c_uint, stream: CUstream,
    ) |driver| {
        let to = place(driver, to)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch(driver, address, bytes, Some(to), stream)
    }

    /// Moves several ranges of managed memory.
    fn cuMemPrefetchBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, places: In<CUmemLocation>,
        indices: In<usize>, place_count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        batch(driver, (addresses, sizes, count), Some((places, indices, place_count)), flags, stream)
    }

    /// Gives up the contents of several ranges of managed memory.
    fn cuMemDiscardBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        batch(driver, (addresses, sizes, count), None, flags, stream)
    }

    /// Gives up contents and moves ranges of managed memory.
    fn cuMemDiscardAndPrefetchBatchAsync(
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, places: In<CUmemLocation>,
        indices: In<usize>, place_count: usize, flags: u64, stream: CUstream,
    ) |driver| {
        batch(driver, (addresses, sizes, count), Some((places, indices, place_count)), flags, stream)
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
        attribute(&hints(driver, address, bytes)?, out, size, id)
    }

    /// Several attributes of a range of managed memory.
    fn cuMemRangeGetAttributes(
        out: In<Out<c_void>>, sizes: In<usize>, ids: In<c_uint>, count: usize, address: CUdeviceptr, bytes: usize,
    ) |driver| {
        let hints = hints(driver, address, bytes)?;
        let places = out.list(count)?.into_iter().zip(sizes.list(count)?).zip(ids.list(count)?);
        for ((place, size), id) in places {
            attribute(&hints, place, size, id)?;
        }
        Ok(())
    }
}
