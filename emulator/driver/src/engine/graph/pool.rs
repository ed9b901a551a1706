//! Memory that the driver keeps for allocation nodes, by device.
//!
//! Memory that launched graphs need is *used*; what was taken from the device for them is *reserved*.
//! It grows with use, and shrinks when it is trimmed. Reserved memory is charged as
//! [`Kind::Graph`].

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, Kind};

use crate::engine::driver::Driver;
use crate::engine::graph::state::Pools;
use crate::engine::memory::charge::{charge, request};
use crate::util::ffi::Answer;

/// Bytes that a node of `bytes` takes of the device.
pub fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(HOLD_GRANULE)
}

impl Pools {
    /// Takes memory into use.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY; nothing is taken then.
    pub fn acquire(&mut self, driver: &'static Driver, device: CUdevice, bytes: u64) -> Answer {
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
    pub fn trim(&mut self, driver: &'static Driver, device: CUdevice) {
        let Ok(gpu) = driver.device(device).map(|d| d.gpu) else { return };
        let Some(pool) = self.0.get_mut(&device) else { return };
        let spare = pool.reserved - pool.used;
        if spare > 0 {
            pool.reserved = pool.used;
            driver.process.discharge(gpu, Kind::Graph, spare, spare);
        }
    }
}
