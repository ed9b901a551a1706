//! Virtual memory management: physical memory, reserved addresses, and mappings between them.
//!
//! Contents belong to addresses here, not to physical memory: memory that is mapped elsewhere later
//! is found empty there, also where memory is backed. Memory that other processes may map is the exception:
//! where memory is backed, it has pages of its own (`pages`).

use core::ffi::c_void;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::engine::driver::Driver;
use crate::engine::memory::pool::POSIX_FD;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::util::ffi::Answer;

/// Sizes and addresses are multiples of this.
pub const GRANULARITY: u64 = HOLD_GRANULE;
/// Bits of rights per device in a mapping's `count`.
pub(crate) const RIGHTS: u32 = 2;

/// Checks properties; gives the device and whether the memory is the host's.
pub(crate) fn place(driver: &Driver, prop: &CUmemAllocationProp) -> Answer<(CUdevice, usize, bool)> {
    if prop.kind != CU_MEM_ALLOCATION_TYPE_PINNED || prop.requestedHandleTypes & !POSIX_FD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match prop.location.kind {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            let device = driver.device(prop.location.id)?;
            Ok((device.ordinal, device.gpu, false))
        }
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            let device = driver.device(0)?;
            Ok((device.ordinal, device.gpu, true))
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Gives physical memory back when neither a handle nor a mapping is left.
pub(crate) fn drop_if_unused(driver: &Driver, state: &mut State, handle: u64) {
    if state.physical.get(&handle).is_none_or(|p| p.references > 0 || p.mappings > 0) {
        return;
    }
    if let Some(physical) = state.physical.remove(&handle) {
        let kind = physical.kind();
        let held = if kind == Kind::Vmm { physical.size } else { 0 };
        driver.process.discharge(physical.gpu, kind, physical.size, held);
        if let Some(id) = physical.offered {
            driver.process.withdraw(id);
        }
    }
}

/// The reservation that a range lies in.
pub(crate) fn reservation(state: &State, base: u64, size: u64) -> Answer<(u64, u64)> {
    let found = state.reservations.range(..=base).next_back().map(|(b, s)| (*b, *s));
    found
        .filter(|(start, length)| base.checked_add(size).is_some_and(|end| end <= start + length))
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn aligned(values: &[u64]) -> Answer {
    if values.iter().all(|v| v.is_multiple_of(GRANULARITY)) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Mappings that fill a range exactly, as their first bytes.
pub(crate) fn mappings(state: &State, base: u64, size: u64) -> Answer<Vec<u64>> {
    let end = base.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut at = base;
    let mut bases = Vec::new();
    for block in state.blocks.within(base, size) {
        if block.base != at || !matches!(block.kind, Use::Mapped { .. }) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        bases.push(block.base);
        at = block.end();
    }
    if at != end || size == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(bases)
}

/// Lets the host touch a range, or not, where the memory mode alone would not say so.
pub(crate) fn set_host_access(driver: &Driver, base: u64, size: u64, open: bool) {
    if driver.backed {
        return;
    }
    let protection = if open { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    // SAFETY: the range lies in one of this process's arenas and is mapped by the program to host
    // memory; contents are dropped only when that mapping ends.
    unsafe {
        if !open {
            libc::madvise(base as *mut c_void, size as usize, libc::MADV_DONTNEED);
        }
        libc::mprotect(base as *mut c_void, size as usize, protection);
    }
}

/// Handle types that physical memory can be exported as.
pub(crate) fn handle_types(state: &State, handle: u64) -> u64 {
    state.physical.get(&handle).map_or(0, |p| p.prop.requestedHandleTypes.into())
}

/// Rights of a device to a mapping: 0 none, 1 read, 3 read and write.
pub fn rights(block: &Block, device: CUdevice) -> u64 {
    block.count >> (device as u32 * RIGHTS) & 3
}
