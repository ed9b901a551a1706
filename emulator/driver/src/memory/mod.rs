//! Everything that takes, copies or describes memory.

use std::sync::Arc;

use radrm_cuda_abi::CUdevice;
use radrm_emulator_machine::Machine;

use crate::context::Context;
use crate::device::Device;
use crate::state::Driver;

pub mod array;

/// The process's memory.
pub struct Memory {}

impl Memory {
    /// Nothing yet.
    pub fn new(_machine: &Machine, _devices: &[Device], _backed: bool) -> Self {
        Self {}
    }
}

/// All memory of a context goes with it.
pub fn context_destroyed(_driver: &Driver, _context: &Arc<Context>) {}

/// Pools give back what is above their release threshold: called after every synchronisation of a
/// stream, event or context of a device.
pub fn synchronized(_driver: &Driver, _device: CUdevice) {}
