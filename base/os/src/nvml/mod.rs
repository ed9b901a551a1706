//! The one client of NVML. It is loaded when it is opened; nothing links to it.

mod device;
mod inventory;
mod monitor;

use std::path::PathBuf;

use nvml_wrapper::error::NvmlError as Code;
use radrm_base::machine_file;

pub use device::{Device, GroupMemory, Held, Memory, NO_LIMIT};
pub use inventory::{Gpu, Inventory, uuid_bytes, uuid_text};
pub use monitor::{Metrics, Monitor};

/// NVML library to query, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NvmlSource {
    /// The system's.
    #[default]
    System,
    /// The library at this path (the emulator's).
    Library(PathBuf),
    /// None.
    Off,
}

/// Memory that the driver itself takes for a process.
/// NVML reports it beyond the process's account, at a moment when the account did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverOverhead {
    /// Process id.
    pub pid: u32,
    /// UUID of the GPU, `GPU-…`.
    pub gpu: String,
    /// Its product name.
    pub model: String,
    /// Version of the kernel driver; empty if unknown.
    pub driver: String,
    /// Size of the memory, bytes.
    pub bytes: u64,
}

/// Reason that NVML does not answer. The text is the end of a sentence.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum NvmlError {
    #[error("its library was not found")]
    NoLibrary,
    #[error("the kernel driver is not loaded")]
    NoDriver,
    #[error("this user may not use it")]
    NoPermission,
    #[error("the driver is too old")]
    TooOld,
    #[error("the kernel module and the libraries are of different driver versions")]
    VersionMismatch,
    #[error("the GPU is lost")]
    Lost,
    #[error("it was not found")]
    NotFound,
    #[error("it is not supported")]
    NotSupported,
    #[error("it is switched off")]
    Off,
    #[error("{0}")]
    Other(String),
}

impl From<Code> for NvmlError {
    fn from(code: Code) -> Self {
        match code {
            Code::LibloadingError(_) => Self::NoLibrary,
            Code::DriverNotLoaded => Self::NoDriver,
            Code::NoPermission => Self::NoPermission,
            Code::FailedToLoadSymbol(_) | Code::FunctionNotFound => Self::TooOld,
            Code::LibRmVersionMismatch => Self::VersionMismatch,
            Code::GpuLost => Self::Lost,
            Code::NotFound => Self::NotFound,
            Code::NotSupported => Self::NotSupported,
            other => Self::Other(other.to_string()),
        }
    }
}

impl NvmlError {
    /// Returns true if a GPU that was there is gone, not merely silent.
    #[must_use]
    pub fn means_lost(&self) -> bool {
        matches!(self, Self::Lost | Self::NotFound)
    }
}

/// NVML, opened.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

impl Nvml {
    /// Opens NVML.
    ///
    /// # Errors
    /// Its library or the driver is missing, or it is switched off.
    pub fn open(source: &NvmlSource) -> Result<Self, NvmlError> {
        let library = match source {
            // The name without a version belongs to a development package.
            NvmlSource::System => "libnvidia-ml.so.1".as_ref(),
            NvmlSource::Library(path) => path.as_os_str(),
            NvmlSource::Off => return Err(NvmlError::Off),
        };
        let opened = nvml_wrapper::Nvml::builder().lib_path(library).init()?;
        if let (NvmlSource::Library(_), Some(machine)) = (source, std::env::var_os(machine_file::VARIABLE)) {
            // The emulator's library maps the machine's file, which every user of the machine may shorten.
            let _ = radrm_guard::protect_file(machine.as_ref());
        }
        Ok(Self(opened))
    }

    /// Version of the kernel driver.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        self.0.sys_driver_version().ok()
    }

    /// Newest CUDA version that the driver supports (12080 = 12.8).
    #[must_use]
    pub fn cuda(&self) -> Option<u32> {
        self.0.sys_cuda_driver_version().ok().and_then(|version| u32::try_from(version).ok())
    }

    /// The GPU or instance with this uuid.
    ///
    /// # Errors
    /// [`NvmlError::NotFound`] if there is none.
    pub fn device(&self, uuid: &str) -> Result<Device<'_>, NvmlError> {
        Ok(Device::new(&self.0, self.0.device_by_uuid(uuid)?))
    }

    /// The device for a GPU of the driver. A MIG instance has a uuid of another form for NVML; the PCI address
    /// is the last resort, and names the whole card.
    ///
    /// # Errors
    /// As [`Nvml::device`].
    pub fn device_or_card(&self, uuid: &str, pci_bus_id: &str) -> Result<Device<'_>, NvmlError> {
        let instance = uuid.replacen("GPU-", "MIG-", 1);
        self.device(uuid).or_else(|error| self.device(&instance).map_err(|_| error)).or_else(|error| {
            Ok(Device::new(&self.0, self.0.device_by_pci_bus_id(pci_bus_id).map_err(|_| error)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_nvml_is_reported_in_words() {
        let error = Nvml::open(&NvmlSource::Library("/none".into())).unwrap_err();
        assert_eq!(error.to_string(), "its library was not found");
        assert!(matches!(Nvml::open(&NvmlSource::Off), Err(NvmlError::Off)));
    }
}
