//! Memory that loaded code takes.
//!
//! Code and module variables live in a region of the context that grows by [`HOLD_GRANULE`]. The
//! first granule is part of the context's own figure; what goes beyond is charged to the context's
//! kind, so that it is in what NVML says of the process and in no figure of the program's own calls,
//! as with the real driver. A module's code is taken to be as large as its image: three times the
//! text for PTX would be a guess, one time is the lower bound that needs none.

use std::collections::HashMap;
use std::sync::Mutex;

use radrm_cuda_abi::CUDA_ERROR_OUT_OF_MEMORY;
use radrm_emulator_machine::{Charge, HOLD_GRANULE, Process};

use crate::util::ffi::Answer;
use crate::util::sync::lock;

/// Bytes of code by context.
type Loaded = Mutex<HashMap<u64, u64>>;

/// Memory that `bytes` of code take beyond the context's own figure, bytes.
fn charged(bytes: u64) -> u64 {
    bytes.next_multiple_of(HOLD_GRANULE).saturating_sub(HOLD_GRANULE)
}

/// Takes memory for code.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub fn take(loaded: &Loaded, process: &Process, gpu: usize, context: u64, bytes: u64) -> Answer {
    let mut loaded = lock(loaded);
    let now = loaded.entry(context).or_default();
    let grown = charged(*now + bytes) - charged(*now);
    if grown > 0 {
        process.charge(gpu, Charge::Context, grown, grown).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    }
    *now += bytes;
    Ok(())
}

/// Gives back what [`take`] took.
pub fn give_back(loaded: &Loaded, process: &Process, gpu: usize, context: u64, bytes: u64) {
    let mut loaded = lock(loaded);
    let now = loaded.entry(context).or_default();
    let left = now.saturating_sub(bytes);
    let shrunk = charged(*now) - charged(left);
    *now = left;
    if left == 0 {
        loaded.remove(&context);
    }
    if shrunk > 0 {
        process.discharge(gpu, Charge::Context, shrunk, shrunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_beyond_the_first_granule_costs() {
        assert_eq!(charged(0), 0);
        assert_eq!(charged(HOLD_GRANULE), 0);
        assert_eq!(charged(HOLD_GRANULE + 1), HOLD_GRANULE);
    }
}
