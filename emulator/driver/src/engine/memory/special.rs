//! Memory whose address comes before its memory: allocation nodes of graphs, variables of modules.
//!
//! Nothing is charged here. An address is reserved, is valid for copies while it is mapped, and is
//! given back; who asks for it does the accounting.

use radrm_cuda_abi::*;
use radrm_emulator_machine::HOLD_GRANULE;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::Memory;
use crate::util::ffi::Answer;

/// Takes an address for `bytes` on a context's device. It is not mapped yet.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for 0 bytes, CUDA_ERROR_OUT_OF_MEMORY.
pub fn special_reserve(memory: &Memory, context: &Context, bytes: u64) -> Answer<CUdeviceptr> {
    reserve(memory, Some(context), context.device, context.gpu, bytes)
}

/// As [`special_reserve`], on a device and for no context.
///
/// # Errors
/// As [`special_reserve`], and CUDA_ERROR_INVALID_DEVICE.
pub fn special_reserve_on(driver: &Driver, device: CUdevice, bytes: u64) -> Answer<CUdeviceptr> {
    let gpu = driver.device(device)?.gpu;
    reserve(&driver.memory, None, device, gpu, bytes)
}

fn reserve(
    memory: &Memory,
    context: Option<&Context>,
    device: CUdevice,
    gpu: usize,
    bytes: u64,
) -> Answer<CUdeviceptr> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = memory.lock();
    let base = state.space.take(bytes, HOLD_GRANULE)?;
    state.blocks.insert(Block::new(base, bytes, Use::Special, context, device, gpu));
    Ok(base)
}

/// Makes a reserved address valid.
pub fn special_map(memory: &Memory, address: CUdeviceptr) {
    set_mapped(memory, address, 1);
}

/// Makes an address invalid again; it stays reserved.
pub fn special_unmap(memory: &Memory, address: CUdeviceptr) {
    set_mapped(memory, address, 0);
}

fn set_mapped(memory: &Memory, address: CUdeviceptr, mapped: u64) {
    let mut state = memory.lock();
    if let Some(block) = state.blocks.at(address).filter(|b| b.kind == Use::Special) {
        block.count = mapped;
    }
}

/// Gives an address back.
pub fn special_release(memory: &Memory, address: CUdeviceptr) {
    let mut state = memory.lock();
    if state.blocks.at(address).is_some_and(|b| b.kind == Use::Special)
        && let Some(block) = state.blocks.remove(address)
    {
        state.space.give(block.base, block.size);
    }
}
