//! NVML's figures of one device at one moment.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError as Code, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::{Monitor, NvmlError};

/// A GPU or a MIG instance.
#[derive(Debug)]
pub struct Device<'n> {
    pub(super) nvml: &'n nvml_wrapper::Nvml,
    pub(super) device: nvml_wrapper::Device<'n>,
}

/// Memory of a device, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// In use by any process, and by the driver.
    pub used: u64,
    /// Not in use.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// A hard limit that limits nothing.
pub const NO_LIMIT: u64 = u64::MAX;

/// Limits that the driver keeps for a control group on a device, and what the group's processes hold; bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMemory {
    /// Memory that is guaranteed to the group.
    pub soft: u64,
    /// The driver refuses what is above it; [`NO_LIMIT`] is none.
    pub hard: u64,
    /// Memory that the group's processes hold, contexts included.
    pub used: u64,
}

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct SetLimits {
    group: *const c_char,
    soft: u64,
    hard: u64,
}

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
struct GetLimits {
    limits: SetLimits,
    used: u64,
}

/// A process on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Process id, in the outermost pid namespace.
    pub pid: u32,
    /// Bytes; `None` where NVML does not report it.
    pub used: Option<u64>,
}

impl<'n> Device<'n> {
    pub(super) fn new(nvml: &'n nvml_wrapper::Nvml, device: nvml_wrapper::Device<'n>) -> Self {
        Self { nvml, device }
    }

    /// NVML's number of it.
    #[must_use]
    pub fn index(&self) -> Option<u32> {
        self.device.index().ok()
    }

    /// Its memory.
    ///
    /// # Errors
    /// [`NvmlError::Lost`] and others.
    pub fn memory(&self) -> Result<Memory, NvmlError> {
        let memory = self.device.memory_info()?;
        Ok(Memory { used: memory.used, free: memory.free, total: memory.total })
    }

    /// Per cent of the time in which a kernel ran, and in which memory was read or written.
    #[must_use]
    pub fn utilization(&self) -> Option<(u32, u32)> {
        self.device.utilization_rates().ok().map(|rates| (rates.gpu, rates.memory))
    }

    /// Power, mW.
    #[must_use]
    pub fn power_mw(&self) -> Option<u32> {
        self.device.power_usage().ok()
    }

    /// Energy since the driver was loaded, mJ.
    #[must_use]
    pub fn energy_mj(&self) -> Option<u64> {
        self.device.total_energy_consumption().ok()
    }

    /// Degrees Celsius.
    #[must_use]
    pub fn temperature(&self) -> Option<u32> {
        self.device.temperature(TemperatureSensor::Gpu).ok()
    }

    /// Clock of the SMs, MHz.
    #[must_use]
    pub fn sm_clock_mhz(&self) -> Option<u32> {
        self.device.clock_info(Clock::SM).ok()
    }

    /// Clock of the memory, MHz.
    #[must_use]
    pub fn memory_clock_mhz(&self) -> Option<u32> {
        self.device.clock_info(Clock::Memory).ok()
    }

    /// Bytes per second over PCI Express, from and to the GPU. Takes 40 ms.
    #[must_use]
    pub fn pcie(&self) -> Option<(f64, f64)> {
        let rate = |counter| self.device.pcie_throughput(counter).ok().map(|kib| f64::from(kib) * 1024.0);
        Some((rate(PcieUtilCounter::Send)?, rate(PcieUtilCounter::Receive)?))
    }

    /// Processes with a context, with or without MPS. A process is in one list or the other; were it in both,
    /// the larger figure would count.
    ///
    /// # Errors
    /// As [`Device::memory`].
    pub fn processes(&self) -> Result<Vec<Held>, NvmlError> {
        let compute = match self.device.running_compute_processes() {
            Err(Code::FailedToLoadSymbol(_)) => self.device.running_compute_processes_v2()?,
            other => other?,
        };
        let served = self.device.mps_running_compute_processes().unwrap_or_default();
        Ok(merge(compute.into_iter().chain(served)))
    }

    /// Sets the limits of a control group, named by its directory below `/sys/fs/cgroup`. Soft 0 and hard
    /// [`NO_LIMIT`] clear them.
    ///
    /// # Errors
    /// [`NvmlError::TooOld`] before driver 615, [`NvmlError::NoPermission`] for all but root, [`NvmlError::NotFound`] for
    /// a group that does not exist or has no `dmem` controller where the kernel has it, [`NvmlError::NotSupported`] with
    /// MIG.
    pub fn set_group_memory(&self, group: &Path, soft: u64, hard: u64) -> Result<(), NvmlError> {
        let group = path(group)?;
        let mut limits = SetLimits { group: group.as_ptr(), soft, hard };
        self.limits_call(b"nvmlDeviceSetMemoryLimits_v1\0", &raw mut limits)
    }

    /// The limits that hold in a control group: its own, or those of a group above it.
    ///
    /// # Errors
    /// As [`Device::set_group_memory`]; [`NvmlError::NotFound`] or [`NvmlError::NotSupported`] also where no group is
    /// limited.
    pub fn group_memory(&self, group: &Path) -> Result<GroupMemory, NvmlError> {
        let group = path(group)?;
        let limits = SetLimits { group: group.as_ptr(), soft: 0, hard: NO_LIMIT };
        let mut found = GetLimits { limits, used: 0 };
        self.limits_call(b"nvmlDeviceGetMemoryLimits_v1\0", &raw mut found)?;
        Ok(GroupMemory { soft: found.limits.soft, hard: found.limits.hard, used: found.used })
    }

    /// Calls a function of this form, which nvml-wrapper does not have.
    fn limits_call<T>(&self, name: &[u8], limits: *mut T) -> Result<(), NvmlError> {
        type Call<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> c_uint;
        // SAFETY: a function of this name has this form.
        let call = unsafe { self.nvml.lib().__library.get::<Call<T>>(name) };
        let call = call.map_err(|_| NvmlError::TooOld)?;
        // SAFETY: the handle is of the library that `nvml` keeps open; the structure lives as long as the call.
        nvml_try(unsafe { call(self.device.handle().cast(), limits) })?;
        Ok(())
    }

    /// Its performance monitor (GPM).
    ///
    /// # Errors
    /// [`NvmlError::NotSupported`] before Hopper.
    pub fn monitor(&self) -> Result<Monitor<'n>, NvmlError> {
        if self.device.gpm_support()? { Ok(Monitor::new(self.nvml)) } else { Err(NvmlError::NotSupported) }
    }
}

fn path(group: &Path) -> Result<CString, NvmlError> {
    CString::new(group.as_os_str().as_bytes()).map_err(|_| NvmlError::NotFound)
}

fn merge(lists: impl IntoIterator<Item = ProcessInfo>) -> Vec<Held> {
    let mut found: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for info in lists {
        let used = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let known = found.entry(info.pid).or_default();
        *known = used.max(*known);
    }
    found.into_iter().map(|(pid, used)| Held { pid, used }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_two_lists_is_one() {
        let info = |pid, used| ProcessInfo {
            pid,
            used_gpu_memory: used,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let lists = [
            info(7, UsedGpuMemory::Used(5)),
            info(3, UsedGpuMemory::Unavailable),
            info(7, UsedGpuMemory::Used(9)),
            info(7, UsedGpuMemory::Unavailable),
        ];
        assert_eq!(merge(lists), [Held { pid: 3, used: None }, Held { pid: 7, used: Some(9) }]);
    }
}
