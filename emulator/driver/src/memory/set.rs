//! Memsets.

use core::ffi::{c_uint, c_ushort};

use radrm_cuda_abi::*;

use crate::capture::{self, Operation, Recorded};
use crate::exports::sync_stream;
use crate::ffi::Answer;
use crate::memory::copy::host_view;
use crate::state::Driver;
use crate::stream::{self, Direction};

/// A memset: `rows` rows of `width` elements of `element` bytes, `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// First byte.
    pub address: u64,
    /// Distance of rows.
    pub pitch: u64,
    /// Value of an element.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub rows: u64,
}

impl Set {
    fn span(&self) -> Option<u64> {
        let width = self.width.checked_mul(self.element.into())?;
        self.pitch.checked_mul(self.rows - 1)?.checked_add(width)
    }
}

/// Checks a memset and does it, as far as there are pages. No time is taken.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn fill(driver: &Driver, device: CUdevice, set: &Set) -> Answer {
    if let Some(first) = checked(driver, device, set)? {
        write(first, set);
    }
    Ok(())
}

fn checked(driver: &Driver, device: CUdevice, set: &Set) -> Answer<Option<*mut u8>> {
    let narrow = set.rows > 1 && set.pitch < set.width.saturating_mul(set.element.into());
    if !set.address.is_multiple_of(set.element.into()) || narrow {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if set.width == 0 || set.rows == 0 {
        return Ok(None);
    }
    let state_knows = driver.memory.lock().blocks.find(set.address).is_some();
    if !state_knows {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    host_view(driver, device, set.address, set.span().ok_or(CUDA_ERROR_INVALID_VALUE)?)
}

fn write(first: *mut u8, set: &Set) {
    let bytes = set.value.to_le_bytes();
    let element = set.element as usize;
    for row in 0..set.rows {
        // SAFETY: the whole range was looked up and has pages.
        let row = unsafe {
            std::slice::from_raw_parts_mut(
                first.add((row * set.pitch) as usize),
                set.width as usize * element,
            )
        };
        if bytes[..element].iter().all(|b| *b == bytes[0]) {
            row.fill(bytes[0]);
        } else {
            row.chunks_exact_mut(element).for_each(|place| place.copy_from_slice(&bytes[..element]));
        }
    }
}

fn run(driver: &Driver, set: Set, stream: Option<CUstream>) -> Answer {
    let context = driver.current()?;
    let place = stream.unwrap_or_else(sync_stream);
    stream::check(driver, &context, place)?;
    let first = checked(driver, context.device, &set)?;
    if set.width == 0 || set.rows == 0 {
        return Ok(());
    }
    if stream.is_some() {
        let Set { address: target, pitch, value, element, width, rows } = set;
        let operation = Operation::Set { target, pitch, value, element, width, rows };
        if capture::offer(driver, &context, place, operation)? != Recorded::No {
            return Ok(());
        }
    }
    let bytes = set.width.saturating_mul(set.element.into()).saturating_mul(set.rows);
    stream::copied(driver, &context, place, bytes, Direction::OnDevice, stream.is_some())?;
    if let Some(first) = first {
        write(first, &set);
    }
    Ok(())
}

fn row(address: u64, value: u32, element: u32, count: usize) -> Set {
    Set { address, pitch: 0, value, element, width: count as u64, rows: 1 }
}

fn plane(address: u64, pitch: usize, value: u32, element: u32, (width, rows): (usize, usize)) -> Set {
    Set { address, pitch: pitch as u64, value, element, width: width as u64, rows: rows as u64 }
}

entry_points! {
    /// Sets bytes.
    fn cuMemsetD8_v2(address: CUdeviceptr, value: u8, count: usize) |driver| {
        run(driver, row(address, value.into(), 1, count), None)
    }

    /// Sets 16-bit words.
    fn cuMemsetD16_v2(address: CUdeviceptr, value: c_ushort, count: usize) |driver| {
        run(driver, row(address, value.into(), 2, count), None)
    }

    /// Sets 32-bit words.
    fn cuMemsetD32_v2(address: CUdeviceptr, value: c_uint, count: usize) |driver| {
        run(driver, row(address, value, 4, count), None)
    }

    /// Sets bytes, in stream order.
    fn cuMemsetD8Async(address: CUdeviceptr, value: u8, count: usize, stream: CUstream) |driver| {
        run(driver, row(address, value.into(), 1, count), Some(stream))
    }

    /// Sets 16-bit words, in stream order.
    fn cuMemsetD16Async(address: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) |driver| {
        run(driver, row(address, value.into(), 2, count), Some(stream))
    }

    /// Sets 32-bit words, in stream order.
    fn cuMemsetD32Async(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) |driver| {
        run(driver, row(address, value, 4, count), Some(stream))
    }

    /// Sets bytes in rows.
    fn cuMemsetD2D8_v2(address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) |driver| {
        run(driver, plane(address, pitch, value.into(), 1, (width, height)), None)
    }

    /// Sets 16-bit words in rows.
    fn cuMemsetD2D16_v2(address: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize) |driver| {
        run(driver, plane(address, pitch, value.into(), 2, (width, height)), None)
    }

    /// Sets 32-bit words in rows.
    fn cuMemsetD2D32_v2(address: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize) |driver| {
        run(driver, plane(address, pitch, value, 4, (width, height)), None)
    }

    /// Sets bytes in rows, in stream order.
    fn cuMemsetD2D8Async(
        address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    ) |driver| {
        run(driver, plane(address, pitch, value.into(), 1, (width, height)), Some(stream))
    }

    /// Sets 16-bit words in rows, in stream order.
    fn cuMemsetD2D16Async(
        address: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream,
    ) |driver| {
        run(driver, plane(address, pitch, value.into(), 2, (width, height)), Some(stream))
    }

    /// Sets 32-bit words in rows, in stream order.
    fn cuMemsetD2D32Async(
        address: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream,
    ) |driver| {
        run(driver, plane(address, pitch, value, 4, (width, height)), Some(stream))
    }
}
