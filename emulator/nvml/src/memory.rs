//! Memory of a device.

use std::path::Path;

use radrm_emulator_machine::{GroupError, Machine};

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

/// `nvmlSetMemoryLimits_v1_t`, bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SetLimits {
    /// The control group's directory.
    pub group: Text,
    /// Guaranteed.
    pub soft: u64,
    /// More is refused.
    pub hard: u64,
}
const _: () = assert!(size_of::<SetLimits>() == 24);

/// `nvmlGetMemoryLimits_v1_t`, bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GetLimits {
    /// The limits.
    pub limits: SetLimits,
    /// Memory that the group's processes hold.
    pub used: u64,
}
const _: () = assert!(size_of::<GetLimits>() == 32);

/// The first CUDA version whose driver has limits for control groups: 13.4, driver 615.
const LIMITS_SINCE: u32 = 13040;

/// Limits of control groups: of newer drivers, and not of MIG instances.
fn limited(machine: &Machine, device: Device) -> Answer<usize> {
    if machine.spec().driver_version < LIMITS_SINCE {
        return Err(ERROR_FUNCTION_NOT_FOUND);
    }
    let spec = device.spec(machine)?;
    if spec.mig || spec.mig_profile.is_some() {
        return Err(ERROR_NOT_SUPPORTED);
    }
    device.gpu(machine)
}

/// The GPU of a device that has memory of its own; where it is the host's, NVML reports none.
fn with_memory(machine: &Machine, device: Device) -> Answer<usize> {
    if device.spec(machine)?.integrated {
        return Err(ERROR_NOT_SUPPORTED);
    }
    device.gpu(machine)
}

entry_points! {
    /// Memory.
    fn nvmlDeviceGetMemoryInfo(device: Device, out: Out<Memory>) |machine| {
        let memory = machine.memory(with_memory(machine, device)?);
        out.set(Memory { total: memory.total, free: memory.free, used: memory.used })
    }

    /// Memory; the caller says which version of the structure it has.
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: Out<MemoryV2>) |machine| {
        let memory = machine.memory_seen(with_memory(machine, device)?);
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

    /// Sets the limits of a control group, as root. Soft 0 and hard 2^64 - 1 clear them.
    fn nvmlDeviceSetMemoryLimits_v1(device: Device, limits: Out<SetLimits>) |machine| {
        let gpu = limited(machine, device)?;
        // SAFETY: always works.
        if unsafe { libc::geteuid() } != 0 {
            return Err(ERROR_NO_PERMISSION);
        }
        let limits = limits.get()?;
        let path = limits.group.get()?;
        machine.set_group_memory(Path::new(&path), gpu, limits.soft, limits.hard).map_err(|error| match error {
            GroupError::NotFound => ERROR_NOT_FOUND,
            GroupError::Invalid => ERROR_INVALID_ARGUMENT,
            GroupError::Full => ERROR_INSUFFICIENT_RESOURCES,
        })
    }

    /// The limits that hold in a control group, and what it holds. Where no group is limited the answer is that of the
    /// driver's backend `misc`.
    fn nvmlDeviceGetMemoryLimits_v1(device: Device, out: Out<GetLimits>) |machine| {
        let gpu = limited(machine, device)?;
        let GetLimits { limits, .. } = out.get()?;
        let path = limits.group.get()?;
        let found = machine.group_memory(Path::new(&path), gpu).ok_or(ERROR_NOT_SUPPORTED)?;
        out.set(GetLimits {
            limits: SetLimits { soft: found.soft, hard: found.hard, ..limits },
            used: found.used,
        })
    }
}
