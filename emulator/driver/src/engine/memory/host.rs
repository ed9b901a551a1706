//! Page-locked host memory: taken here, or registered by the program. It is always real.

use core::ffi::c_void;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::charge::charge;
use crate::engine::memory::space::{Block, Use};
use crate::util::ffi::Answer;

const PAGE: u64 = 4096;

/// Takes real memory and keeps it as a block of `kind`.
///
/// # Errors
/// CUDA_ERROR_OUT_OF_MEMORY.
pub(crate) fn map(driver: &Driver, context: &Arc<Context>, bytes: u64, kind: Use, flags: u32) -> Answer<u64> {
    let kept_as = if kind == Use::Managed { Kind::Managed } else { Kind::PinnedHost };
    let size = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        driver.process.failed(context.gpu, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let base = address as u64;
    charge(driver, context.gpu, kept_as, bytes, size)?;
    let mut block = Block::new(base, bytes, kind, Some(context), context.device, context.gpu);
    block.flags = flags;
    driver.memory.lock().blocks.insert(block);
    Ok(base)
}

/// Gives real memory back whose block was taken out of the table.
pub(crate) fn unmap(driver: &Driver, block: &Block, kept_as: Kind) {
    let size = block.size.max(1).next_multiple_of(PAGE);
    // SAFETY: mapped in `map`, and its block was in the table until now, so this happens once.
    unsafe { libc::munmap(block.base as *mut c_void, size as usize) };
    driver.process.discharge(block.gpu, kept_as, block.size, size);
}
