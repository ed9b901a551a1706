//! Attributes of pointers.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::engine::memory::vmm;
use crate::util::ffi::{Answer, In, Out};

/// `CUmemorytype`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// One attribute of a pointer that stands in `block`.
fn attribute(
    driver: &Driver,
    state: &State,
    block: &Block,
    address: u64,
    id: CUpointer_attribute,
    out: Out<c_void>,
) -> Answer {
    let flag = |on: bool| out.cast::<u8>().set(u8::from(on));
    let mapping = matches!(block.kind, Use::Mapped { .. });
    let host = !block.is_device_memory();
    match id {
        CU_POINTER_ATTRIBUTE_CONTEXT => match block.context.0 {
            // Memory of pools, mappings and imports belongs to a device, not to a context.
            0 => Err(CUDA_ERROR_INVALID_VALUE),
            handle => out.cast::<u64>().set(handle),
        },
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => out.cast::<c_uint>().set(if host { HOST } else { DEVICE }),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => out.cast::<u64>().set(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            if !block.is_host_readable() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            out.cast::<u64>().set(address)
        }
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => out.cast::<c_int>().set(c_int::from(block.sync_memops)),
        CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
            let physical = if let Use::Mapped { handle, .. } = block.kind { handle } else { block.id };
            out.cast::<u64>().set(physical)
        }
        CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(block.kind == Use::Managed),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => out.cast::<c_int>().set(block.device),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(block.kind == Use::Device),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => out.cast::<u64>().set(block.base),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => out.cast::<u64>().set(block.size),
        CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            let types = match block.kind {
                Use::Pool(pool) => state.pools.get(&pool).map_or(0, |p| p.handle_types().into()),
                Use::Mapped { handle, .. } => vmm::handle_types(state, handle),
                _ => 0,
            };
            out.cast::<u64>().set(types)
        }
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => flag(!host && block.kind != Use::Managed),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            let device = driver.current()?.device;
            out.cast::<c_uint>().set(if mapping { vmm::rights(block, device) as c_uint } else { 3 })
        }
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => match block.kind {
            Use::Pool(handle) => out.cast::<u64>().set(handle),
            _ => out.cast::<u64>().set(0),
        },
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => out.cast::<u64>().set(block.size),
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => out.cast::<u64>().set(block.base),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Writes the value that `cuPointerGetAttributes` gives for a pointer that the driver does not know.
fn default(id: CUpointer_attribute, address: u64, out: Out<c_void>) -> Answer {
    match id {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => out.cast::<c_uint>().set(0),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => out.cast::<c_int>().set(-2),
        CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => out.cast::<u8>().set(0),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => out.cast::<u64>().set(address),
        CUpointer_attribute(1..=20) => out.cast::<u64>().set(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn find(state: &State, address: u64) -> Option<&Block> {
    state.blocks.find(address).filter(|b| b.kind != Use::Special || b.count > 0)
}

entry_points! {
    /// One attribute of a pointer.
    fn cuPointerGetAttribute(out: Out<c_void>, id: c_uint, address: CUdeviceptr) |driver| {
        out.required()?;
        let state = driver.memory.lock();
        let id = CUpointer_attribute(id);
        if let Some(block) = find(&state, address) {
            return attribute(driver, &state, block, address, id, out);
        }
        // Reserved addresses have a range without memory.
        let reserved = state.reservations.range(..=address).next_back();
        match (id, reserved.filter(|(base, size)| address - **base < **size)) {
            (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, Some((base, _))) => out.cast::<u64>().set(*base),
            (CU_POINTER_ATTRIBUTE_RANGE_SIZE, Some((_, size))) => out.cast::<u64>().set(*size),
            (CU_POINTER_ATTRIBUTE_MAPPED, Some(_)) => out.cast::<u8>().set(0),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Several attributes of a pointer; what does not apply gets its default.
    fn cuPointerGetAttributes(
        count: c_uint, ids: In<c_uint>, out: In<Out<c_void>>, address: CUdeviceptr,
    ) |driver| {
        let (ids, out) = (ids.list(count as usize)?, out.list(count as usize)?);
        let state = driver.memory.lock();
        let block = find(&state, address);
        for (id, place) in ids.into_iter().zip(out) {
            let id = CUpointer_attribute(id);
            let written = block.is_some_and(|b| attribute(driver, &state, b, address, id, place).is_ok());
            if !written {
                default(id, address, place)?;
            }
        }
        Ok(())
    }

    /// Sets an attribute of a pointer: whether copies of it are always synchronous.
    fn cuPointerSetAttribute(value: In<c_int>, id: c_uint, address: CUdeviceptr) |driver| {
        if CUpointer_attribute(id) != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let on = value.get()? != 0;
        let mut state = driver.memory.lock();
        state.blocks.find_mut(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.sync_memops = on;
        Ok(())
    }
}
