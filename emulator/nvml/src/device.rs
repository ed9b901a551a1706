//! Description of a device: handles, names, addresses, fixed figures.

use std::ffi::{c_char, c_int, c_uint};

use radrm_emulator_machine::{GpuSpec, Machine};

use crate::api::*;
use crate::state::Device;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfo {
    /// Address with a domain of four digits.
    pub bus_id_legacy: [u8; 16],
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
    /// Device and vendor.
    pub pci_device_id: u32,
    /// Board.
    pub pci_sub_system_id: u32,
    /// Address with a domain of eight digits.
    pub bus_id: [u8; 32],
}
const _: () = assert!(size_of::<PciInfo>() == 68);

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines, decoders, encoders, JPEG and flow engines; slices of GPU and compute instance.
    pub engines_and_slices: [u32; 7],
    /// Memory (MiB).
    pub memory_mib: u64,
}
const _: () = assert!(size_of::<Attributes>() == 40);

/// PCI address of a GPU: (legacy, present) form.
pub fn bus_ids(machine: &Machine, gpu: usize) -> (String, String) {
    let (domain, bus, device) = machine.spec().pci(gpu);
    (format!("{domain:04X}:{bus:02X}:{device:02X}.0"), format!("{domain:08X}:{bus:02X}:{device:02X}.0"))
}

/// Address of a device.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn pci(machine: &Machine, device: Device) -> Answer<PciInfo> {
    let gpu = device.gpu(machine)?;
    let (domain, bus, slot) = machine.spec().pci(gpu);
    let (legacy, present) = bus_ids(machine, gpu);
    Ok(PciInfo {
        bus_id_legacy: fixed_text(&legacy),
        domain,
        bus,
        device: slot,
        pci_device_id: device.spec(machine)?.pci_device_id,
        pci_sub_system_id: 0,
        bus_id: fixed_text(&present),
    })
}

/// The GPU with a PCI address: with or without domain and function, of any number of digits.
fn by_bus_id(machine: &Machine, text: &str) -> Option<usize> {
    let text = text.split('.').next()?;
    let mut numbers = text.split(':').rev().map(|part| u32::from_str_radix(part, 16).ok());
    let (device, bus) = (numbers.next()??, numbers.next()??);
    let domain = numbers.next().unwrap_or(Some(0))?;
    (0..machine.gpu_count()).find(|gpu| machine.spec().pci(*gpu) == (domain, bus, device))
}

fn serial(machine: &Machine, gpu: usize) -> String {
    let bytes = machine.spec().uuid(gpu);
    let number = bytes.iter().take(5).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    format!("{:013}", number)
}

/// `nvmlDeviceArchitecture_t` of a compute capability.
pub fn architecture((major, minor): (u32, u32)) -> u32 {
    match (major, minor) {
        (..=5, _) => 3,
        (6, _) => 4,
        (7, 0..=4) => 5,
        (7, _) => 6,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        _ => 10,
    }
}

/// CUDA cores of a multiprocessor.
fn cores_per_sm((major, minor): (u32, u32)) -> u32 {
    match (major, minor) {
        (7, _) | (8, 0) | (6, 0) => 64,
        _ => 128,
    }
}

/// `nvmlBrandType_t`.
fn brand(spec: &GpuSpec) -> u32 {
    const TESLA: u32 = 2;
    const GEFORCE: u32 = 5;
    const NVIDIA: u32 = 14;
    if spec.name.contains("GeForce") {
        GEFORCE
    } else if spec.name.starts_with("Tesla") {
        TESLA
    } else {
        NVIDIA
    }
}

entry_points! {
    /// Number of GPUs.
    also nvmlDeviceGetCount;
    fn nvmlDeviceGetCount_v2(out: Out<c_uint>) |machine| {
        out.set(machine.gpu_count() as c_uint)
    }

    /// A GPU by number.
    also nvmlDeviceGetHandleByIndex;
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: Out<Device>) |machine| {
        let device = Device::new(index as usize);
        device.gpu(machine)?;
        out.set(device)
    }

    /// A GPU by UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: Text, out: Out<Device>) |machine| {
        let uuid = uuid.get()?.to_ascii_lowercase();
        // The prefix can be left out.
        let is_it = |gpu: &usize| {
            let own = machine.spec().uuid_text(*gpu).to_ascii_lowercase();
            own == uuid || own.split_once('-').is_some_and(|(_, number)| number == uuid)
        };
        let device = Device::new((0..machine.gpu_count()).find(is_it).ok_or(ERROR_NOT_FOUND)?);
        device.gpu(machine)?;
        out.set(device)
    }

    /// A GPU by PCI address.
    also nvmlDeviceGetHandleByPciBusId;
    fn nvmlDeviceGetHandleByPciBusId_v2(address: Text, out: Out<Device>) |machine| {
        out.set(Device::new(by_bus_id(machine, &address.get()?).ok_or(ERROR_NOT_FOUND)?))
    }

    /// A GPU by serial number.
    fn nvmlDeviceGetHandleBySerial(number: Text, out: Out<Device>) |machine| {
        let number = number.get()?;
        let found = (0..machine.gpu_count()).find(|gpu| serial(machine, *gpu) == number);
        out.set(Device::new(found.ok_or(ERROR_NOT_FOUND)?))
    }

    /// Name.
    fn nvmlDeviceGetName(device: Device, out: Out<c_char>, room: c_uint) |machine| {
        set_text(out, room, &device.spec(machine)?.name)
    }

    /// UUID.
    fn nvmlDeviceGetUUID(device: Device, out: Out<c_char>, room: c_uint) |machine| {
        set_text(out, room, &machine.spec().uuid_text(device.gpu(machine)?))
    }

    /// Serial number.
    fn nvmlDeviceGetSerial(device: Device, out: Out<c_char>, room: c_uint) |machine| {
        set_text(out, room, &serial(machine, device.gpu(machine)?))
    }

    /// Version of the firmware.
    fn nvmlDeviceGetVbiosVersion(device: Device, out: Out<c_char>, room: c_uint) |machine| {
        device.gpu(machine)?;
        set_text(out, room, "00.00.00.00.00")
    }

    /// Number on the machine, and of the device file.
    also nvmlDeviceGetMinorNumber;
    fn nvmlDeviceGetIndex(device: Device, out: Out<c_uint>) |machine| {
        out.set(device.gpu(machine)? as c_uint)
    }

    /// Number of the board.
    fn nvmlDeviceGetBoardId(device: Device, out: Out<c_uint>) |machine| {
        out.set(machine.spec().pci(device.gpu(machine)?).1 << 8)
    }

    /// PCI address.
    fn nvmlDeviceGetPciInfo_v3(device: Device, out: Out<PciInfo>) |machine| {
        out.set(pci(machine, device)?)
    }

    /// PCI address, without the present form.
    fn nvmlDeviceGetPciInfo_v2(device: Device, out: Out<[u32; 9]>) |machine| {
        let info = pci(machine, device)?;
        out.cast::<[u8; 16]>().set(info.bus_id_legacy)?;
        let tail = [info.domain, info.bus, info.device, info.pci_device_id, info.pci_sub_system_id];
        out.cast::<[u32; 4]>().after(1).cast::<[u32; 5]>().set(tail)
    }

    /// PCI address, without the present form and the board.
    fn nvmlDeviceGetPciInfo(device: Device, out: Out<[u32; 8]>) |machine| {
        let info = pci(machine, device)?;
        out.cast::<[u8; 16]>().set(info.bus_id_legacy)?;
        out.cast::<[u32; 4]>().after(1).set([info.domain, info.bus, info.device, info.pci_device_id])
    }

    /// Brand.
    fn nvmlDeviceGetBrand(device: Device, out: Out<c_uint>) |machine| {
        out.set(brand(device.spec(machine)?))
    }

    /// Architecture.
    fn nvmlDeviceGetArchitecture(device: Device, out: Out<c_uint>) |machine| {
        out.set(architecture(device.spec(machine)?.capability()))
    }

    /// Compute capability.
    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: Out<c_int>, minor: Out<c_int>) |machine| {
        let capability = device.spec(machine)?.capability();
        major.set(capability.0 as c_int)?;
        minor.set(capability.1 as c_int)
    }

    /// Figures of a MIG instance; a whole GPU has none.
    fn nvmlDeviceGetAttributes_v2(device: Device, out: Out<Attributes>) |machine| {
        let spec = device.spec(machine)?;
        if spec.mig_profile.is_none() {
            return Err(ERROR_NOT_SUPPORTED);
        }
        out.set(Attributes {
            multiprocessors: spec.sms,
            engines_and_slices: [1, 0, 0, 0, 0, 1, 1],
            memory_mib: spec.memory_mib,
        })
    }

    /// CUDA cores.
    fn nvmlDeviceGetNumGpuCores(device: Device, out: Out<c_uint>) |machine| {
        let spec = device.spec(machine)?;
        out.set(spec.sms * cores_per_sm(spec.capability()))
    }

    /// Width of the memory bus (bits).
    fn nvmlDeviceGetMemoryBusWidth(device: Device, out: Out<c_uint>) |machine| {
        out.set(device.spec(machine)?.memory_bus_bits)
    }

    /// Generation of the PCI Express link.
    also nvmlDeviceGetMaxPcieLinkGeneration;
    fn nvmlDeviceGetCurrPcieLinkGeneration(device: Device, out: Out<c_uint>) |machine| {
        out.set(device.spec(machine)?.pcie_generation)
    }

    /// Lanes of the PCI Express link.
    also nvmlDeviceGetMaxPcieLinkWidth;
    fn nvmlDeviceGetCurrPcieLinkWidth(device: Device, out: Out<c_uint>) |machine| {
        out.set(device.spec(machine)?.pcie_lanes)
    }

    /// Error correction (ECC) mode of memory, now and after the next start.
    fn nvmlDeviceGetEccMode(device: Device, now: Out<c_uint>, pending: Out<c_uint>) |machine| {
        if !device.spec(machine)?.ecc {
            return Err(ERROR_NOT_SUPPORTED);
        }
        now.set(1)?;
        pending.set(1)
    }

    /// Errors that were corrected or not: none.
    fn nvmlDeviceGetTotalEccErrors(device: Device, _kind: c_uint, _counter: c_uint, out: Out<u64>) |machine| {
        if device.spec(machine)?.ecc { out.set(0) } else { Err(ERROR_NOT_SUPPORTED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_emulator_machine::MachineSpec;

    #[test]
    fn a_gpu_is_found_by_any_form_of_its_address() {
        let machine = Machine::private(&MachineSpec::parse("2xH200").unwrap()).unwrap();
        let (legacy, present) = bus_ids(&machine, 1);
        for text in [legacy.as_str(), &present, &legacy.to_lowercase(), &legacy[5..], &legacy[5..10]] {
            assert_eq!(by_bus_id(&machine, text), Some(1), "{text}");
        }
        assert_eq!(by_bus_id(&machine, "0001:17:00.0"), None);
        assert_eq!(by_bus_id(&machine, "nonsense"), None);
    }

    #[test]
    fn architectures_follow_the_compute_capability() {
        assert_eq!([(7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0)].map(architecture), [5, 6, 7, 8, 9, 10]);
    }
}
