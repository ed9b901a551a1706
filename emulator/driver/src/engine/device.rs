//! Devices as this process numbers them.

use std::sync::Mutex;

use radrm_cuda_abi::*;
use radrm_emulator_machine::MachineSpec;

use crate::engine::context::Primary;

/// A device as this process numbers it.
pub struct Device {
    /// Ordinal.
    pub ordinal: CUdevice,
    /// GPU on the machine.
    pub gpu: usize,
    /// UUID.
    pub uuid: [u8; 16],
    /// PCI domain, bus and device.
    pub pci: (u32, u32, u32),
    /// Its primary context.
    pub primary: Mutex<Primary>,
}

impl Device {
    /// Describes a device.
    pub fn new(spec: &MachineSpec, ordinal: usize, gpu: usize) -> Self {
        Self {
            ordinal: ordinal as CUdevice,
            gpu,
            uuid: spec.uuid(gpu),
            pci: spec.pci(gpu),
            primary: Mutex::new(Primary::default()),
        }
    }

    /// PCI address as text, such as `0000:17:00.0`.
    pub fn pci_text(&self) -> String {
        format!("{:04x}:{:02x}:{:02x}.0", self.pci.0, self.pci.1, self.pci.2)
    }
}
