//! Giving memory back.

use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::engine::memory::{array, device, host, pool};

/// Frees whatever stands at a block's address, by its kind.
pub(crate) fn free_block(driver: &Driver, state: &mut State, block: &Block) {
    if let Some(id) = block.offered {
        driver.process.withdraw(id);
    }
    match block.kind {
        Use::Device => {
            let range = (block.base, block.size);
            device::give_range(driver, state, block.device, block.gpu, Kind::Device, range);
        }
        Use::Managed => {
            state.advice.forget(block.base, block.size);
            host::unmap(driver, block, Kind::Managed);
            pool::give_managed(driver, state, block);
        }
        Use::Host => host::unmap(driver, block, Kind::PinnedHost),
        Use::Registered => driver.process.discharge(block.gpu, Kind::PinnedHost, block.size, block.size),
        Use::Pool(handle) => pool::give(driver, state, block, handle),
        Use::Imported(_) | Use::External(_) => {
            driver.process.discharge(block.gpu, Kind::Imported, block.size, 0);
            state.space.give(block.base, block.size);
        }
        Use::Mapped { .. } | Use::Special => {}
    }
}

/// All memory of a context goes with it; pools are emptied when a device has no context left.
pub fn context_destroyed(driver: &Driver, context: &Arc<Context>) {
    let mut state = driver.memory.lock();
    let state = &mut *state;
    let mine = |b: &&Block| b.context.1 == context.id && !matches!(b.kind, Use::Mapped { .. } | Use::Special);
    let bases: Vec<u64> = state.blocks.all().filter(mine).map(|b| b.base).collect();
    for base in bases {
        if let Some(block) = state.blocks.remove(base) {
            if let Use::Imported(id) = block.kind {
                state.opened.remove(&id);
            }
            free_block(driver, state, &block);
        }
    }
    array::context_destroyed(driver, state, context);
    if !driver.contexts.all().iter().any(|other| other.device == context.device) {
        pool::trim_device(driver, state, context.device, |_| 0);
    }
}

/// Pools give back what is above their release threshold: called after every synchronisation of a
/// stream, event or context of a device.
pub fn synchronized(driver: &Driver, device: CUdevice) {
    let mut state = driver.memory.lock();
    pool::trim_device(driver, &mut state, device, |pool| pool.threshold);
}
