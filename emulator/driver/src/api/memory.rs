//! Entry points of plain device memory.

use core::ffi::c_uint;

use radrm_cuda_abi::*;
use radrm_emulator_machine::MemoryUse;

use crate::engine::context;
use crate::engine::driver::Driver;
use crate::engine::free::free;
use crate::engine::memory::device::take;
use crate::engine::stream::capture;
use crate::util::ffi::Out;

/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

/// Memory of a GPU as this process sees it: a limit of MPS shows as free memory only.
fn memory_seen(driver: &Driver, gpu: usize) -> MemoryUse {
    let memory = driver.machine.memory_seen(gpu);
    let left = driver.launches.memory_limit().map(|limit| limit.saturating_sub(driver.process.held(gpu)));
    MemoryUse { free: memory.free.min(left.unwrap_or(u64::MAX)), ..memory }
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
        let memory = memory_seen(driver, driver.current()?.gpu);
        free.set_if_wanted(memory.free as usize);
        total.set_if_wanted(memory.total as usize);
        Ok(())
    }

    /// Free and total memory by the 32-bit interface: at most 4 GiB - 1.
    fn cuMemGetInfo(free: Out<c_uint>, total: Out<c_uint>) |driver| {
        let memory = memory_seen(driver, driver.current()?.gpu);
        free.set_if_wanted(u32::try_from(memory.free).unwrap_or(u32::MAX));
        total.set_if_wanted(u32::try_from(memory.total).unwrap_or(u32::MAX));
        Ok(())
    }
}
