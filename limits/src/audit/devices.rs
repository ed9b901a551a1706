//! Processes on GPUs and the memory that they hold, as NVML lists it.

use radrm_os::nvml::{Gpu, Held, Nvml, NvmlError, NvmlSource};

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
    /// Devices that do not answer, with the reason.
    pub silent: Vec<String>,
    /// Version of the kernel driver.
    pub driver: String,
}

/// Asks all devices.
///
/// # Errors
/// NVML does not work.
pub fn list(source: &NvmlSource) -> Result<Lists, NvmlError> {
    list_of(&Nvml::open(source)?)
}

/// Asks all devices of an open NVML.
///
/// # Errors
/// NVML does not work.
pub fn list_of(nvml: &Nvml) -> Result<Lists, NvmlError> {
    let inventory = nvml.inventory()?;
    let mut lists = Lists { driver: inventory.driver.clone(), ..Lists::default() };
    for gpu in inventory.gpus.iter().filter(|gpu| !gpu.divided) {
        match nvml.device(&gpu.uuid).and_then(|device| device.processes()) {
            Ok(processes) => lists.devices.push(Listed { gpu: gpu.clone(), processes }),
            Err(error) => lists.silent.push(format!("{}: {error}", gpu.uuid)),
        }
    }
    Ok(lists)
}
