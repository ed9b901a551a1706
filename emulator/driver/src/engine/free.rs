//! Freeing memory by address.

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::memory;
use crate::engine::memory::free::free_block;
use crate::engine::memory::space::Use;
use crate::util::ffi::Answer;

/// Frees memory of any kind that `cuMemFree` may free: plain, managed, and of pools.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if no such memory begins at the address.
pub fn free(driver: &'static Driver, address: u64) -> Answer {
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
/// CUDA_ERROR_INVALID_VALUE if the address is not a node's, or has no memory now.
pub(crate) fn free_special(driver: &'static Driver, address: u64) -> Answer {
    if memory::free_outside(driver, address)? { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}
