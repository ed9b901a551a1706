//! Plain device memory, and how much there is.

use core::ffi::c_uint;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::context::Context;
use crate::ffi::{Answer, Out};
use crate::memory::ranges::Ranges;
use crate::memory::space::{Block, Use};
use crate::memory::{State, charge, free_block, request};
use crate::state::Driver;
use crate::{capture, context};

/// Addresses are multiples of this.
pub const ALIGNMENT: u64 = 512;
/// From here on an allocation has chunks of its own; below, several share one of 2 MiB.
const LARGE: u64 = 1 << 20;
/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

/// Chunks that small blocks share, by kind: a chunk is charged to the kind that it was taken for.
#[derive(Default)]
pub struct SmallChunks {
    plain: Ranges,
    arrays: Ranges,
}

impl SmallChunks {
    fn of(&mut self, kind: Kind) -> &mut Ranges {
        if kind == Kind::Array { &mut self.arrays } else { &mut self.plain }
    }
}

/// Takes an address range and charges it: in a shared chunk if it is small.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub(super) fn take_range(
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
pub(super) fn give_range(
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

/// Frees memory of any kind that `cuMemFree` may free: plain, managed, and of pools.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if no such memory begins at the address.
pub fn free(driver: &Driver, address: u64) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let mut guard = driver.memory.lock();
    let state = &mut *guard;
    let kind = state.blocks.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.kind;
    if kind == Use::Special {
        // Graphs have a lock of their own, which comes before this one.
        drop(guard);
        return free_special(driver, address);
    }
    if !matches!(kind, Use::Device | Use::Managed | Use::Pool(_) | Use::External(_)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(block) = state.blocks.remove(address) {
        free_block(driver, state, &block);
    }
    Ok(())
}

/// Frees memory of a graph's allocation node.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if the address is no node's, or has no memory now.
pub(super) fn free_special(driver: &Driver, address: u64) -> Answer {
    if crate::graph::free_outside(driver, address)? { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

entry_points! {
    /// Takes device memory.
    fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) |driver| {
        address.required()?;
        let context = driver.current()?;
        capture::unsafe_call(driver)?;
        address.set(take(driver, &context, bytes as u64)?)
    }

    /// Takes device memory in rows of at least `width` bytes.
    fn cuMemAllocPitch_v2(
        address: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    ) |driver| {
        address.required()?;
        pitch.required()?;
        let context = driver.current()?;
        capture::unsafe_call(driver)?;
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = row.checked_mul(height as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        address.set(take(driver, &context, bytes)?)?;
        pitch.set(row as usize)
    }

    /// Frees device memory.
    ///
    /// The address says whose memory it is, so a thread without a context may free as well.
    fn cuMemFree_v2(address: CUdeviceptr) |driver| {
        if let Some(context) = context::current() {
            context.check()?;
        }
        capture::unsafe_call(driver)?;
        free(driver, address)
    }

    /// The allocation that an address lies in.
    fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, size: Out<usize>, address: CUdeviceptr) |driver| {
        driver.current()?;
        let state = driver.memory.lock();
        if let Some(block) = state.blocks.find(address) {
            base.set_if_wanted(block.base);
            size.set_if_wanted(block.size as usize);
            return Ok(());
        }
        // Reserved addresses count as an allocation too.
        let (start, length) = state
            .reservations
            .range(..=address)
            .next_back()
            .filter(|(start, length)| address - **start < **length)
            .ok_or(CUDA_ERROR_NOT_FOUND)?;
        base.set_if_wanted(*start);
        size.set_if_wanted(*length as usize);
        Ok(())
    }

    /// Free and total memory of the current context's device.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |driver| {
        let memory = driver.machine.memory(driver.current()?.gpu);
        free.set_if_wanted(memory.free as usize);
        total.set_if_wanted(memory.total as usize);
        Ok(())
    }

    /// Free and total memory by the 32-bit interface: at most 4 GiB - 1.
    fn cuMemGetInfo(free: Out<c_uint>, total: Out<c_uint>) |driver| {
        let memory = driver.machine.memory(driver.current()?.gpu);
        free.set_if_wanted(u32::try_from(memory.free).unwrap_or(u32::MAX));
        total.set_if_wanted(u32::try_from(memory.total).unwrap_or(u32::MAX));
        Ok(())
    }
}
