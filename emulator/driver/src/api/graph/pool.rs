//! Entry points of graph memory.

use std::ffi::c_uint;

use radrm_cuda_abi::*;

use crate::util::ffi::{In, Out};

entry_points! {
    /// Gives graph memory that is not in use back to the device.
    fn cuDeviceGraphMemTrim(device: CUdevice) |driver| {
        driver.device(device)?;
        driver.sched().graphs.trim(driver, device);
        Ok(())
    }

    /// An attribute of a device's graph memory, 64 bits.
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: Out<u64>) |driver| {
        driver.device(device)?;
        let state = driver.sched();
        let pool = state.graphs.pools.0.get(&device).copied().unwrap_or_default();
        value.set(match CUgraphMem_attribute(attribute) {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => state.graphs.used(device),
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => pool.used_high,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => pool.reserved,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => pool.reserved_high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Sets a high mark of a device's graph memory back, which is the only thing to set.
    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: In<u64>) |driver| {
        driver.device(device)?;
        if value.get()? != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = driver.sched();
        let used = state.graphs.used(device);
        let pool = state.graphs.pools.0.entry(device).or_default();
        match CUgraphMem_attribute(attribute) {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => pool.used_high = used,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => pool.reserved_high = pool.reserved,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
