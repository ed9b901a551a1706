//! Plain device memory, and how much there is.

use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::charge::{charge, request};
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::util::ffi::Answer;

/// Addresses are multiples of this.
pub const ALIGNMENT: u64 = 512;
/// From here on an allocation has chunks of its own; below, several share one of 2 MiB.
const LARGE: u64 = 1 << 20;

/// Takes an address range and charges it: in a shared chunk if it is small.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub(crate) fn take_range(
    driver: &Driver,
    state: &mut State,
    device: CUdevice,
    gpu: usize,
    kind: Kind,
    bytes: u64,
) -> Answer<u64> {
    if bytes >= LARGE {
        let held = bytes.checked_next_multiple_of(HOLD_GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        charge(driver, gpu, kind, bytes, held)?;
        return state.space.take(held, HOLD_GRANULE).inspect_err(|_| {
            driver.process.discharge(gpu, kind, bytes, held);
        });
    }
    let size = bytes.next_multiple_of(ALIGNMENT);
    let chunks = state.small[device as usize].of(kind);
    if let Some(base) = chunks.take(size, ALIGNMENT) {
        charge(driver, gpu, kind, bytes, 0)?;
        return Ok(base);
    }
    charge(driver, gpu, kind, bytes, HOLD_GRANULE)?;
    let chunk = state.space.take(HOLD_GRANULE, HOLD_GRANULE).inspect_err(|_| {
        driver.process.discharge(gpu, kind, bytes, HOLD_GRANULE);
    })?;
    chunks.add_chunk(chunk, HOLD_GRANULE);
    Ok(chunks.take(size, ALIGNMENT).unwrap_or(chunk))
}

/// Gives back what [`take_range`] took.
pub(crate) fn give_range(
    driver: &Driver,
    state: &mut State,
    device: CUdevice,
    gpu: usize,
    kind: Kind,
    (base, bytes): (u64, u64),
) {
    if bytes >= LARGE {
        state.space.give(base, bytes);
        driver.process.discharge(gpu, kind, bytes, bytes.next_multiple_of(HOLD_GRANULE));
        return;
    }
    let chunks = state.small[device as usize].of(kind);
    let mut held = 0;
    if let Some((chunk, size)) = chunks.give(base, bytes.next_multiple_of(ALIGNMENT)) {
        chunks.drop_chunk(chunk);
        state.space.give(chunk, size);
        held = size;
    }
    driver.process.discharge(gpu, kind, bytes, held);
}

/// Takes plain device memory of the context's device.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for 0 bytes, CUDA_ERROR_OUT_OF_MEMORY.
pub fn take(driver: &Driver, context: &Arc<Context>, bytes: u64) -> Answer<u64> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    request(driver, context.gpu, bytes)?;
    let mut state = driver.memory.lock();
    let base = take_range(driver, &mut state, context.device, context.gpu, Kind::Device, bytes)?;
    state.blocks.insert(Block::new(base, bytes, Use::Device, Some(context), context.device, context.gpu));
    Ok(base)
}
