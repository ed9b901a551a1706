//! What the driver keeps for allocation nodes, by device.
//!
//! Memory that launched graphs need is *used*; what was taken from the device for them is *reserved*.
//! It grows with use, and shrinks when it is trimmed. Reserved memory is charged as
//! [`Kind::Graph`].

use std::collections::BTreeMap;
use std::ffi::c_uint;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::ffi::{Answer, In, Out};
use crate::memory::{charge, request};
use crate::state::Driver;
use crate::stream::sched::sched;

/// Graph memory of one device in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Pool {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

/// Graph memory of all devices, by ordinal.
#[derive(Default, Debug)]
pub struct Pools(BTreeMap<CUdevice, Pool>);

/// Bytes that a node of `bytes` takes of the device.
pub fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(HOLD_GRANULE)
}

impl Pools {
    /// Takes memory into use.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY; nothing is taken then.
    pub fn acquire(&mut self, driver: &Driver, device: CUdevice, bytes: u64) -> Answer {
        let gpu = driver.device(device)?.gpu;
        let pool = self.0.entry(device).or_default();
        let used = pool.used + bytes;
        if used > pool.reserved {
            let more = used - pool.reserved;
            request(driver, gpu, more)?;
            charge(driver, gpu, Kind::Graph, more, more)?;
            pool.reserved = used;
            pool.reserved_high = pool.reserved_high.max(used);
        }
        pool.used = used;
        pool.used_high = pool.used_high.max(used);
        Ok(())
    }

    /// Memory is not in use any more; it stays reserved.
    pub fn release(&mut self, device: CUdevice, bytes: u64) {
        if let Some(pool) = self.0.get_mut(&device) {
            pool.used = pool.used.saturating_sub(bytes);
        }
    }

    /// Gives what is not in use back to the device.
    pub fn trim(&mut self, driver: &Driver, device: CUdevice) {
        let Ok(gpu) = driver.device(device).map(|d| d.gpu) else { return };
        let Some(pool) = self.0.get_mut(&device) else { return };
        let spare = pool.reserved - pool.used;
        if spare > 0 {
            pool.reserved = pool.used;
            driver.process.discharge(gpu, Kind::Graph, spare, spare);
        }
    }
}

entry_points! {
    /// Gives graph memory that is not in use back to the device.
    fn cuDeviceGraphMemTrim(device: CUdevice) |driver| {
        driver.device(device)?;
        sched().graphs.pools.trim(driver, device);
        Ok(())
    }

    /// An attribute of a device's graph memory, 64 bits.
    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: Out<u64>) |driver| {
        driver.device(device)?;
        let pool = sched().graphs.pools.0.get(&device).copied().unwrap_or_default();
        value.set(match CUgraphMem_attribute(attribute) {
            CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => pool.used,
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
        let mut state = sched();
        let pool = state.graphs.pools.0.entry(device).or_default();
        match CUgraphMem_attribute(attribute) {
            CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => pool.used_high = pool.used,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => pool.reserved_high = pool.reserved,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
