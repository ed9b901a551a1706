//! Entry points of memsets.

use core::ffi::{c_uint, c_ushort};

use radrm_cuda_abi::*;

use crate::api::exports::sync_stream;
use crate::engine::driver::Driver;
use crate::engine::memory::set::{Set, checked, write};
use crate::engine::stream::offer::{self, Operation, Recorded};
use crate::engine::stream::sync;
use crate::engine::transfer;
use crate::models::direction::Direction;
use crate::util::ffi::Answer;

fn run(driver: &'static Driver, set: Set, stream: Option<CUstream>) -> Answer {
    let context = driver.current()?;
    let place = stream.unwrap_or_else(sync_stream);
    sync::check(driver, &context, place)?;
    let first = checked(driver, context.device, &set)?;
    if set.width == 0 || set.rows == 0 {
        return Ok(());
    }
    if stream.is_some() {
        let Set { address: target, pitch, value, element, width, rows } = set;
        let operation = Operation::Set { target, pitch, value, element, width, rows };
        if offer::offer(driver, &context, place, operation)? != Recorded::No {
            return Ok(());
        }
    }
    let bytes = set.width.saturating_mul(set.element.into()).saturating_mul(set.rows);
    transfer::copied(driver, &context, place, bytes, Direction::OnDevice, stream.is_some())?;
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
