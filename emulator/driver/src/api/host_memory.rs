//! Entry points of page-locked host memory.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::driver::Driver;
use crate::engine::memory::charge::charge;
use crate::engine::memory::free::free_block;
use crate::engine::memory::host::map;
use crate::engine::memory::space::{Block, Use};
use crate::engine::stream::capture;
use crate::util::ffi::{Answer, Out};

fn allocate(driver: &Driver, out: Out<*mut c_void>, bytes: u64, flags: c_uint) -> Answer {
    out.required()?;
    let context = driver.current()?;
    capture::unsafe_call(driver)?;
    // Portable, device map, write combined.
    if bytes == 0 || flags & !0x7 != 0 {
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

/// Takes out the block of one kind that begins at an address and frees it; `missing` is the error for an address in no
/// such block.
fn release(driver: &Driver, address: u64, kind: Use, missing: CUresult) -> Answer {
    driver.current()?;
    let mut state = driver.memory.lock();
    let state = &mut *state;
    match state.blocks.find(address).filter(|block| block.kind == kind) {
        None => return Err(missing),
        Some(block) if block.base != address => return Err(CUDA_ERROR_INVALID_VALUE),
        Some(_) => {}
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
