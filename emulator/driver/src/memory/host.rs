//! Page-locked host memory: taken here, or registered by the program. It is always real.

use core::ffi::{c_uint, c_void};
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::capture;
use crate::context::Context;
use crate::ffi::{Answer, Out};
use crate::memory::space::{Block, Use};
use crate::memory::{charge, free_block};
use crate::state::Driver;

const PAGE: u64 = 4096;

/// Takes real memory and keeps it as a block of `kind`.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for 0 bytes, CUDA_ERROR_OUT_OF_MEMORY.
pub(super) fn map(driver: &Driver, context: &Arc<Context>, bytes: u64, kind: Use, flags: u32) -> Answer<u64> {
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let kept_as = if kind == Use::Managed { Kind::Managed } else { Kind::PinnedHost };
    let size = bytes.checked_next_multiple_of(PAGE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
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
pub(super) fn unmap(driver: &Driver, block: &Block, kept_as: Kind) {
    let size = block.size.next_multiple_of(PAGE);
    // SAFETY: mapped in `map`, and its block was in the table until now, so this happens once.
    unsafe { libc::munmap(block.base as *mut c_void, size as usize) };
    driver.process.discharge(block.gpu, kept_as, block.size, size);
}

fn allocate(driver: &Driver, out: Out<*mut c_void>, bytes: u64, flags: c_uint) -> Answer {
    out.required()?;
    let context = driver.current()?;
    capture::unsafe_call(driver)?;
    // Portable, device map, write combined.
    if flags & !0x7 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Under unified addressing all of it is portable and mapped.
    let base = map(driver, &context, bytes, Use::Host, flags | 0x2)?;
    out.set(base as *mut c_void)
}

fn register(driver: &Driver, address: u64, bytes: u64, flags: c_uint) -> Answer {
    let context = driver.current()?;
    if address == 0 || bytes == 0 || flags & !0xf != 0 || address.checked_add(bytes).is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = driver.memory.lock();
    if state.space.contains(address) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if state.blocks.overlaps(address, bytes) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    charge(driver, context.gpu, Kind::PinnedHost, bytes, bytes)?;
    let mut block = Block::new(address, bytes, Use::Registered, Some(&context), context.device, context.gpu);
    block.flags = flags | 0x2;
    state.blocks.insert(block);
    Ok(())
}

/// Takes out the block of one kind that begins at an address and frees it.
fn release(driver: &Driver, address: u64, kind: Use, missing: CUresult) -> Answer {
    driver.current()?;
    let mut state = driver.memory.lock();
    let state = &mut *state;
    if state.blocks.at(address).is_none_or(|block| block.kind != kind) {
        return Err(missing);
    }
    if let Some(block) = state.blocks.remove(address) {
        free_block(driver, state, &block);
    }
    Ok(())
}

fn device_pointer(driver: &Driver, address: u64, flags: c_uint) -> Answer<u64> {
    driver.current()?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let state = driver.memory.lock();
    let block = state.blocks.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !block.is_host_readable() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(address) }
}

entry_points! {
    /// Takes page-locked host memory.
    fn cuMemHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |driver| {
        allocate(driver, out, bytes as u64, flags)
    }

    /// Takes page-locked host memory.
    fn cuMemAllocHost_v2(out: Out<*mut c_void>, bytes: usize) |driver| {
        allocate(driver, out, bytes as u64, 0)
    }

    /// Takes page-locked host memory, by the 32-bit interface.
    fn cuMemAllocHost(out: Out<*mut c_void>, bytes: c_uint) |driver| {
        allocate(driver, out, u64::from(bytes), 0)
    }

    /// Frees page-locked host memory.
    fn cuMemFreeHost(address: u64) |driver| {
        capture::unsafe_call(driver)?;
        release(driver, address, Use::Host, CUDA_ERROR_INVALID_VALUE)
    }

    /// Locks memory of the program's own.
    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: c_uint) |driver| {
        register(driver, address, bytes as u64, flags)
    }

    /// Unlocks memory of the program's own.
    fn cuMemHostUnregister(address: u64) |driver| {
        release(driver, address, Use::Registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    /// Device address of host memory: the same.
    fn cuMemHostGetDevicePointer_v2(out: Out<CUdeviceptr>, address: u64, flags: c_uint) |driver| {
        out.required()?;
        out.set(device_pointer(driver, address, flags)?)
    }

    /// Flags of host memory.
    fn cuMemHostGetFlags(flags: Out<c_uint>, address: u64) |driver| {
        flags.required()?;
        driver.current()?;
        let state = driver.memory.lock();
        let block = state.blocks.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match block.kind {
            Use::Host | Use::Registered => flags.set(block.flags),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
