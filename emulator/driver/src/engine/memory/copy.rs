//! Copies: of every family, checked against what the driver knows of both ends.
//!
//! Nothing is read from or written to device memory that has no pages: what is copied from there is
//! zeros.

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::memory::space::Use;
use crate::engine::memory::state::State;
use crate::engine::memory::{array, vmm, zeros};
use crate::models::direction::Direction;
use crate::util::ffi::Answer;

/// A box of bytes in memory: rows of a plane lie `pitch` apart, planes `plane`.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// First byte.
    pub address: u64,
    /// Distance of rows.
    pub pitch: u64,
    /// Distance of planes.
    pub plane: u64,
    /// True if only device memory is valid here.
    pub device_only: bool,
}

impl Side {
    /// Bytes in a row, wherever they are.
    pub fn linear(address: u64) -> Self {
        Self { address, pitch: 0, plane: 0, device_only: false }
    }

    /// Bytes in a row of device memory.
    pub fn device(address: u64) -> Self {
        Self { device_only: true, ..Self::linear(address) }
    }
}

/// Bytes of a row, rows of a plane, planes.
pub type Extent = [u64; 3];

/// Location of a side, once it was looked up.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// True if there are pages behind it.
    pub(crate) readable: bool,
    /// Device of device memory.
    pub(crate) device: Option<CUdevice>,
}

/// Looks up `bytes` from `address` on: all of it must be one known allocation, mappings side by side,
/// an array, or memory of the host that the driver knows nothing about.
fn look_up(
    driver: &'static Driver,
    state: &State,
    device: CUdevice,
    side: &Side,
    bytes: u64,
) -> Answer<Place> {
    let end = side.address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let Some(block) = state.blocks.find(side.address) else {
        if let Some(owner) = array::device_at(state, side.address, bytes) {
            return Ok(Place { readable: driver.backed, device: Some(owner) });
        }
        if side.device_only || side.address == 0 || state.space.contains(side.address) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        return Ok(Place { readable: true, device: None });
    };
    if block.kind == Use::Special && block.count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let place = Place {
        readable: driver.backed || block.is_host_readable(),
        device: block.is_device_memory().then_some(block.device),
    };
    if !matches!(block.kind, Use::Mapped { .. }) {
        return if end <= block.end() { Ok(place) } else { Err(CUDA_ERROR_INVALID_VALUE) };
    }
    let mut at = block.base;
    while at < end {
        let next = state.blocks.find(at).filter(|b| matches!(b.kind, Use::Mapped { .. }));
        let next = next.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if vmm::rights(next, device) == 0 && vmm::rights(next, next.device) == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        at = next.end();
    }
    Ok(place)
}

/// Bytes from the first to the last of a box.
fn span(side: &Side, extent: Extent) -> Option<u64> {
    let [width, rows, planes] = extent;
    let planes = side.plane.checked_mul(planes - 1)?;
    side.pitch.checked_mul(rows - 1)?.checked_add(planes)?.checked_add(width)
}

/// Way of a checked copy, and whether each end has pages.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// Way.
    pub direction: Direction,
    pub(crate) target_readable: bool,
    pub(crate) source_readable: bool,
}

/// Checks both ends of a copy.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn check(
    driver: &'static Driver,
    device: CUdevice,
    target: &Side,
    source: &Side,
    extent: Extent,
) -> Answer<Checked> {
    let state = driver.memory.lock();
    let side = |side: &Side| {
        look_up(driver, &state, device, side, span(side, extent).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    };
    let (to, from) = (side(target)?, side(source)?);
    let direction = match (from.device, to.device) {
        (None, None) => Direction::HostToHost,
        (None, Some(_)) => Direction::HostToDevice,
        (Some(_), None) => Direction::DeviceToHost,
        (Some(a), Some(b)) if a == b => Direction::OnDevice,
        _ => Direction::Peer,
    };
    Ok(Checked { direction, target_readable: to.readable, source_readable: from.readable })
}

/// Moves the bytes of a checked copy, as far as there are any.
pub fn move_bytes(checked: Checked, target: &Side, source: &Side, extent: Extent) {
    let [width, rows, planes] = extent;
    if !checked.target_readable {
        return;
    }
    let contiguous =
        |side: &Side| (side.pitch == width || rows == 1) && (side.plane == width * rows || planes == 1);
    let (width, rows, planes) = if contiguous(target) && contiguous(source) {
        (width * rows * planes, 1, 1)
    } else {
        (width, rows, planes)
    };
    for plane in 0..planes {
        for row in 0..rows {
            let to = target.address + plane * target.plane + row * target.pitch;
            let from = source.address + plane * source.plane + row * source.pitch;
            // SAFETY: both ends were looked up: they are allocations of this driver that have pages, or
            // host memory for which the caller vouches.
            unsafe {
                if checked.source_readable {
                    std::ptr::copy(from as *const u8, to as *mut u8, width as usize);
                } else {
                    zeros::write(to as *mut u8, width as usize);
                }
            }
        }
    }
}

/// Copies rows for a graph's node: checked and moved, no time taken.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if an end is not valid.
pub fn rows(
    driver: &'static Driver,
    device: CUdevice,
    (target, target_pitch): (u64, u64),
    (source, source_pitch): (u64, u64),
    width: u64,
    rows: u64,
) -> Answer<Direction> {
    if width == 0 || rows == 0 {
        return Ok(Direction::OnDevice);
    }
    let side = |address, pitch| Side { address, pitch, plane: 0, device_only: false };
    let (target, source, extent) = (side(target, target_pitch), side(source, source_pitch), [width, rows, 1]);
    let checked = check(driver, device, &target, &source, extent)?;
    move_bytes(checked, &target, &source, extent);
    Ok(checked.direction)
}

/// Host view of memory that has pages: managed and host memory, and device memory if it is backed.
/// `None` if there are no pages.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if the range is not valid.
pub fn host_view(
    driver: &'static Driver,
    device: CUdevice,
    address: u64,
    bytes: u64,
) -> Answer<Option<*mut u8>> {
    let place = look_up(driver, &driver.memory.lock(), device, &Side::linear(address), bytes)?;
    Ok(place.readable.then_some(address as *mut u8))
}
