//! Copies in streams.

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::copy::{Extent, Side, check, move_bytes};
use crate::engine::stream::offer::{self, Operation, Recorded};
use crate::engine::stream::op::{Op, not_in_callback};
use crate::engine::stream::queue::{self, wait_for};
use crate::engine::stream::{event, sync};
use crate::models::direction::Direction;
use crate::models::timing;
use crate::util::ffi::Answer;

/// One copy, as an entry point asks for it.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if an end is not what it must be, and what streams and captures say.
pub fn copy(
    driver: &'static Driver,
    target: Side,
    source: Side,
    extent: Extent,
    stream: CUstream,
    asynchronous: bool,
) -> Answer {
    let context = driver.current()?;
    sync::check(driver, &context, stream)?;
    if extent.contains(&0) {
        return Ok(());
    }
    let checked = check(driver, context.device, &target, &source, extent)?;
    let [width, rows, planes] = extent;
    if asynchronous {
        let operation = Operation::Copy {
            target: target.address,
            target_pitch: target.pitch,
            source: source.address,
            source_pitch: source.pitch,
            width,
            rows: rows * planes,
        };
        if offer::offer(driver, &context, stream, operation)? != Recorded::No {
            return Ok(());
        }
    }
    let bytes = width.saturating_mul(rows).saturating_mul(planes);
    copied(driver, &context, stream, bytes, checked.direction, asynchronous)?;
    move_bytes(checked, &target, &source, extent);
    Ok(())
}

/// Called before the bytes of every copy and memset that is not captured are moved: takes its time of
/// the stream (`asynchronous`), or waits for the stream and takes its time of the caller.
///
/// Where device memory has pages, an asynchronous copy also waits for host functions that stand before
/// it in the stream, because its bytes move at the call.
///
/// # Errors
/// As [`check`], CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_NOT_PERMITTED in a host function.
pub fn copied(
    driver: &'static Driver,
    context: &Arc<Context>,
    stream: CUstream,
    bytes: u64,
    direction: Direction,
    asynchronous: bool,
) -> Answer {
    not_in_callback()?;
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    if asynchronous {
        state.admit(key)?;
    } else {
        state.not_capturing(key)?;
    }
    let gpu = driver.gpu_spec(driver.device(context.device)?);
    let ns = timing::transfer(gpu, direction.kind(), bytes);
    driver.process.copied(context.gpu, ns);
    state.enqueue(driver, key, Op::Copying(ns));
    if !asynchronous {
        wait_for(driver, state, &event::only(key));
    } else if driver.backed && !state.stream(key)?.is_idle() {
        queue::drain(driver, state, key);
    }
    Ok(())
}
