//! Machine whose GPUs a command is about, and its NVML.

use std::path::Path;

use radrm_base::machine_file;
use radrm_os::nvml::NvmlSource;

use super::jobs::Job;
use crate::LimitError;
use crate::ledgers::Ledgers;
use crate::program::libraries;
use crate::start::Machine;

/// A machine: this computer, or an emulated one.
#[derive(Debug)]
pub struct Node {
    /// Its GPUs.
    pub machine: Machine,
    /// Its ledgers.
    pub ledgers: Ledgers,
    /// Its NVML.
    pub source: NvmlSource,
}

impl Node {
    /// The emulated machine in this file, or the computer.
    ///
    /// # Errors
    /// One sentence: the emulated NVML is missing.
    pub fn of(file: Option<&Path>) -> Result<Self, LimitError> {
        let source = match file {
            None => NvmlSource::System,
            Some(file) => {
                let file = std::path::absolute(file).map_err(|error| LimitError::file(file, &error))?;
                if !file.is_file() {
                    return Err(LimitError::NoMachine(file));
                }
                // SAFETY: called while this process has one thread.
                unsafe { std::env::set_var(machine_file::VARIABLE, &file) };
                NvmlSource::Library(libraries::find(libraries::EMULATED_NVML)?)
            }
        };
        Ok(Self { machine: Machine::new(source.clone()), ledgers: Ledgers::of(file), source })
    }

    /// The machine of a job's processes.
    ///
    /// # Errors
    /// One sentence: the emulated NVML is missing.
    pub fn of_job(job: &Job) -> Result<Self, LimitError> {
        Self::of(job.machine().as_deref())
    }

    /// Name of a GPU in tables: its number, or the beginning of its UUID.
    #[must_use]
    pub fn label(&self, uuid: &[u8; 16]) -> String {
        let known = self.machine.inventory().ok();
        let gpu = known.as_ref().and_then(|inventory| inventory.of_bytes(uuid));
        match gpu {
            Some(gpu) => match gpu.index {
                Some(index) => index.to_string(),
                None => gpu.uuid.chars().take(12).collect(),
            },
            None => radrm_os::nvml::uuid_text(uuid).chars().take(12).collect(),
        }
    }
}
