//! Memory of a device.

use radrm_emulator_machine::{Machine, MemoryUse};

use crate::api::*;
use crate::state::Device;

/// `nvmlMemory_t`, bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Charged by living processes.
    pub used: u64,
}
const _: () = assert!(size_of::<Memory>() == 24);

/// `nvmlMemory_v2_t`, bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryV2 {
    /// [`version_of`] this structure, 2.
    pub version: u32,
    /// All.
    pub total: u64,
    /// Kept by the device itself: nothing here.
    pub reserved: u64,
    /// Free.
    pub free: u64,
    /// Charged by living processes.
    pub used: u64,
}
const _: () = assert!(size_of::<MemoryV2>() == 40);

/// `nvmlBAR1Memory_t`, bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar1 {
    /// All.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Used.
    pub used: u64,
}

/// What the ledger says of a device's memory; where it is the host's, NVML tells none.
fn memory(machine: &Machine, device: Device) -> Answer<MemoryUse> {
    if device.spec(machine)?.integrated {
        return Err(ERROR_NOT_SUPPORTED);
    }
    Ok(machine.memory(device.gpu(machine)?))
}

entry_points! {
    /// Memory.
    fn nvmlDeviceGetMemoryInfo(device: Device, out: Out<Memory>) |machine| {
        let memory = memory(machine, device)?;
        out.set(Memory { total: memory.total, free: memory.free, used: memory.used })
    }

    /// Memory; the caller says which version of the structure it has.
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: Out<MemoryV2>) |machine| {
        let memory = memory(machine, device)?;
        let version = out.cast::<u32>().get()?;
        if version != version_of::<MemoryV2>(2) {
            return Err(ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        out.set(MemoryV2 { version, total: memory.total, reserved: 0, free: memory.free, used: memory.used })
    }

    /// The window through which the host sees the memory: as large as the memory, not in use.
    fn nvmlDeviceGetBAR1MemoryInfo(device: Device, out: Out<Bar1>) |machine| {
        let total = device.spec(machine)?.memory_bytes().next_power_of_two();
        out.set(Bar1 { total, free: total, used: 0 })
    }
}
