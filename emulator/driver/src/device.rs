//! Devices: which of the machine's GPUs this process sees, and what they say of themselves.

use core::ffi::{c_char, c_int, c_uint};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use radrm_cuda_abi::*;
use radrm_emulator_machine::MachineSpec;

use crate::context::Primary;
use crate::ffi::{Answer, Out, Text, set_text};
use crate::state::{self, Driver};

mod attributes;

pub use attributes::attribute;

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

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves, in its order.
///
/// As the driver reads it: entries are numbers, or beginnings of UUIDs (`GPU-...`, `MIG-...`) that
/// name exactly one GPU. The list ends before the first entry that is not valid; a GPU that is named
/// twice makes the whole list void. An unset variable leaves all GPUs, an empty one none.
pub fn visible(spec: &MachineSpec, list: Option<&str>) -> Vec<usize> {
    let Some(list) = list else { return (0..spec.gpu.len()).collect() };
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let Some(gpu) = named(spec, entry) else { break };
        if chosen.contains(&gpu) {
            return Vec::new();
        }
        chosen.push(gpu);
    }
    chosen
}

fn named(spec: &MachineSpec, entry: &str) -> Option<usize> {
    let count = spec.gpu.len();
    if entry.starts_with("GPU-") || entry.starts_with("MIG-") {
        let wanted = entry.to_ascii_lowercase();
        let mut found =
            (0..count).filter(|gpu| spec.uuid_text(*gpu).to_ascii_lowercase().starts_with(&wanted));
        let first = found.next()?;
        return found.next().is_none().then_some(first);
    }
    // As atoi: what follows the digits does not count, but without digits there is no number.
    let digits = entry.find(|c: char| !c.is_ascii_digit()).unwrap_or(entry.len());
    entry[..digits].parse().ok().filter(|gpu| *gpu < count)
}

/// Whether one device can use another's memory: both whole GPUs of the same model.
///
/// # Errors
/// CUDA_ERROR_INVALID_DEVICE.
pub fn can_access(driver: &Driver, device: CUdevice, peer: CUdevice) -> Answer<bool> {
    let (one, other) = (driver.device(device)?, driver.device(peer)?);
    let (a, b) = (driver.gpu_spec(one), driver.gpu_spec(other));
    Ok(device != peer && a.name == b.name && a.mig_profile.is_none() && b.mig_profile.is_none())
}

/// Makes the driver ready. Flags must be 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let made = std::panic::catch_unwind(state::init);
    match made {
        Ok(Ok(_)) => {
            note_process();
            CUDA_SUCCESS
        }
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

/// Tells a dry run that this process is one of its own: others may be on the same machine.
fn note_process() {
    static NOTED: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    // Relaxed: a line too many does no harm.
    if NOTED.swap(own, Ordering::Relaxed) != own {
        crate::exports::note("process", "uses the GPU");
    }
}

/// Version of the driver; also before `cuInit`.
///
/// # Safety
/// `version` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> CUresult {
    state::call_before_init(|driver| {
        version.required()?;
        let number = match driver {
            Some(driver) => driver.version(),
            None => state::early().version,
        };
        version.set(number as c_int)
    })
}

entry_points! {
    /// Number of devices.
    fn cuDeviceGetCount(count: Out<c_int>) |driver| {
        count.set(driver.devices.len() as c_int)
    }

    /// A device by ordinal.
    fn cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) |driver| {
        device.required()?;
        device.set(driver.device(ordinal)?.ordinal)
    }

    /// A device's name.
    fn cuDeviceGetName(name: Out<c_char>, len: c_int, device: CUdevice) |driver| {
        name.required()?;
        set_text(name, len, &driver.gpu_spec(driver.device(device)?).name)
    }

    /// A device's UUID; of a MIG instance the instance's.
    fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice) |driver| {
        uuid.required()?;
        uuid.set(CUuuid { bytes: driver.device(device)?.uuid })
    }

    /// Identifier on Windows: none here.
    fn cuDeviceGetLuid(luid: Out<c_char>, mask: Out<c_uint>, device: CUdevice) |driver| {
        let _ = (luid, mask);
        driver.device(device)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// A device's memory.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) |driver| {
        bytes.required()?;
        bytes.set(driver.gpu_spec(driver.device(device)?).memory_bytes() as usize)
    }

    /// A device's memory by the 32-bit interface: at most 4 GiB - 1.
    fn cuDeviceTotalMem(bytes: Out<c_uint>, device: CUdevice) |driver| {
        bytes.required()?;
        let memory = driver.gpu_spec(driver.device(device)?).memory_bytes();
        bytes.set(u32::try_from(memory).unwrap_or(u32::MAX))
    }

    /// A device's compute capability.
    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice) |driver| {
        let (a, b) = driver.gpu_spec(driver.device(device)?).capability();
        major.set(a as c_int)?;
        minor.set(b as c_int)
    }

    /// An attribute of a device.
    fn cuDeviceGetAttribute(value: Out<c_int>, id: c_int, device: CUdevice) |driver| {
        value.required()?;
        let device = driver.device(device)?;
        value.set(attribute(driver, device, id).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// The old set of properties.
    fn cuDeviceGetProperties(properties: Out<[c_int; 14]>, device: CUdevice) |driver| {
        properties.required()?;
        let device = driver.device(device)?;
        let get = |id| attribute(driver, device, id).unwrap_or(0);
        // maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock,
        // totalConstantMemory, SIMDWidth, memPitch, regsPerBlock, clockRate, textureAlign
        properties.set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].map(get))
    }

    /// A device by PCI address; domain and function may be left out.
    fn cuDeviceGetByPCIBusId(out: Out<CUdevice>, address: Text) |driver| {
        out.required()?;
        let wanted = parse_pci(&address.get()?).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let device = driver.devices.iter().find(|d| d.pci == wanted).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        out.set(device.ordinal)
    }

    /// A device's PCI address.
    fn cuDeviceGetPCIBusId(address: Out<c_char>, len: c_int, device: CUdevice) |driver| {
        address.required()?;
        set_text(address, len, &driver.device(device)?.pci_text())
    }

    /// Whether a device can use another's memory.
    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: CUdevice, peer: CUdevice) |driver| {
        can.required()?;
        can.set(c_int::from(can_access(driver, device, peer)?))
    }

    /// An attribute of a pair of devices.
    fn cuDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_int, source: CUdevice, target: CUdevice) |driver| {
        value.required()?;
        let access = can_access(driver, source, target)?;
        if source == target {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let linked = access && driver.gpu_spec(driver.device(source)?).nvlink_gbs > 0.0;
        value.set(match attribute {
            // PERFORMANCE_RANK
            1 => c_int::from(!linked),
            // ACCESS_SUPPORTED, ACCESS_ACCESS_SUPPORTED (arrays)
            2 | 4 => c_int::from(access),
            // NATIVE_ATOMIC_SUPPORTED
            3 => c_int::from(linked),
            5 => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Whether contexts can have a share of the SMs: not modelled.
    fn cuDeviceGetExecAffinitySupport(supported: Out<c_int>, kind: c_uint, device: CUdevice) |driver| {
        driver.device(device)?;
        if kind != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        supported.set(0)
    }

    /// Widest linear texture.
    fn cuDeviceGetTexture1DLinearMaxWidth(
        width: Out<usize>, format: c_uint, channels: c_uint, device: CUdevice,
    ) |driver| {
        driver.device(device)?;
        crate::memory::array::element_bytes(format, channels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        width.set(1 << 28)
    }
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
fn parse_pci(text: &str) -> Option<(u32, u32, u32)> {
    let number = |t: &str| u32::from_str_radix(t, 16).ok();
    let parts: Vec<&str> = text.trim().split(':').collect();
    let (domain, bus, rest) = match parts.as_slice() {
        [domain, bus, rest] => (number(domain)?, number(bus)?, rest),
        [bus, rest] => (0, number(bus)?, rest),
        _ => return None,
    };
    let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
    (number(function)? == 0).then_some((domain, bus, number(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_read_as_the_driver_does() {
        let spec = MachineSpec::parse("4xT4").unwrap();
        let uuid = spec.uuid_text(2);
        let check =
            |list: &str, expected: &[usize]| assert_eq!(visible(&spec, Some(list)), expected, "{list}");
        assert_eq!(visible(&spec, None), [0, 1, 2, 3]);
        check("2,3", &[2, 3]);
        check("3, 0", &[3, 0]);
        check("", &[]);
        check("-1", &[]);
        check("0,-1,1", &[0]);
        check("1,9,0", &[1]);
        check("0,0", &[]);
        check(&uuid, &[2]);
        check(&uuid[..12], &[2]);
        check(&uuid.to_uppercase(), &[2]);
        check("GPU-", &[]);
        check("NoDevFiles", &[]);
        check(&format!("0,{uuid},GPU-ffffffffffff,1"), &[0, 2]);
    }

    #[test]
    fn mig_instances_are_named_by_their_own_uuid() {
        let spec = MachineSpec::from_toml(
            "m",
            "[[gpu]]\nmodel = \"A100\"\nmig_profile = \"1g.5gb\"\nmemory_mib = 4864\nsms = 14\ncount = 2",
        )
        .unwrap();
        assert!(spec.uuid_text(1).starts_with("MIG-"));
        assert_eq!(visible(&spec, Some(&spec.uuid_text(1))), [1]);
    }

    #[test]
    fn pci_addresses_are_read() {
        assert_eq!(parse_pci("0000:3d:00.0"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("3D:00"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("00000000:3D:00.0"), Some((0, 0x3d, 0)));
        assert_eq!(parse_pci("3d"), None);
        assert_eq!(parse_pci("0000:3d:00.1"), None);
    }
}
