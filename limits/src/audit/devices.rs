//! Which processes hold how much of which GPU, as NVML tells it.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use radrm_collector::NvmlSource;

use crate::gpus::{self, Gpu};

/// A process on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Process id, in the outermost pid namespace.
    pub pid: u32,
    /// Bytes; `None` where NVML does not tell.
    pub used: Option<u64>,
}

/// A device with its processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The device.
    pub gpu: Gpu,
    /// Its processes.
    pub processes: Vec<Held>,
}

/// All devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lists {
    /// Devices with processes.
    pub devices: Vec<Listed>,
    /// Devices that do not tell, with the reason.
    pub silent: Vec<String>,
    /// Version of the kernel driver.
    pub driver: String,
}

/// Asks all devices.
///
/// # Errors
/// The end of a sentence that says why NVML does not work.
pub fn list(source: &NvmlSource) -> Result<Lists, String> {
    let nvml = gpus::open(source)?;
    let inventory = gpus::inventory(&nvml)?;
    let mut lists = Lists { driver: inventory.driver.clone(), ..Lists::default() };
    for gpu in inventory.gpus.iter().filter(|gpu| !gpu.divided) {
        let device = nvml.device_by_uuid(gpu.uuid.as_str());
        match device.and_then(|device| processes(&device)) {
            Ok(processes) => lists.devices.push(Listed { gpu: gpu.clone(), processes }),
            Err(error) => lists.silent.push(format!("{}: {}", gpu.uuid, gpus::reason(&error))),
        }
    }
    Ok(lists)
}

/// Processes with a context, with or without MPS. A process is in one list or the other; were it in
/// both, the larger figure would count.
pub fn processes(device: &Device<'_>) -> Result<Vec<Held>, NvmlError> {
    let compute = match device.running_compute_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => device.running_compute_processes_v2()?,
        other => other?,
    };
    let served = device.mps_running_compute_processes().unwrap_or_default();
    Ok(merge(compute.into_iter().chain(served)))
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
