//! Arrays and mipmapped arrays.
//!
//! An array takes width * height * depth elements, rounded as plain memory is; how the hardware tiles
//! it is not modelled.

use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::device::give_range;
use crate::engine::memory::objects::Array;
use crate::engine::memory::state::State;
use crate::util::ffi::Answer;

/// Array of a handle.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn find(state: &State, array: CUarray) -> Answer<&Array> {
    state.arrays.arrays.get(&array.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Device of the array that a range lies in.
pub(crate) fn device_at(state: &State, address: u64, bytes: u64) -> Option<CUdevice> {
    let inside = |a: &&Array| address >= a.base && address - a.base + bytes <= a.bytes;
    state.arrays.arrays.values().find(inside).map(|a| a.device)
}

pub(crate) fn drop_array(driver: &Driver, state: &mut State, handle: u64) {
    if let Some(array) = state.arrays.arrays.remove(&handle) {
        give_range(driver, state, array.device, array.gpu, Kind::Array, (array.base, array.bytes));
    }
}

pub(crate) fn drop_mipmap(driver: &Driver, state: &mut State, handle: u64) {
    if let Some(mipmap) = state.arrays.mipmaps.remove(&handle) {
        for level in &mipmap.levels {
            state.arrays.arrays.remove(level);
        }
        give_range(driver, state, mipmap.device, mipmap.gpu, Kind::Array, (mipmap.base, mipmap.bytes));
    }
}

/// A context's arrays go with it.
pub(crate) fn context_destroyed(driver: &Driver, state: &mut State, context: &Arc<Context>) {
    let table = &state.arrays;
    let mipmaps: Vec<u64> =
        table.mipmaps.iter().filter(|(_, m)| m.context == context.id).map(|(h, _)| *h).collect();
    let arrays: Vec<u64> =
        table.arrays.iter().filter(|(_, a)| a.context == context.id && !a.parent).map(|(h, _)| *h).collect();
    mipmaps.into_iter().for_each(|handle| drop_mipmap(driver, state, handle));
    arrays.into_iter().for_each(|handle| drop_array(driver, state, handle));
}
