//! Entry points of devices, and `cuInit`.

use core::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use crate::api::{entry, process};
use crate::engine::driver::{Driver, can_access};
use crate::models::array;
use crate::models::attributes::attribute;
use crate::models::devices::parse_pci;
use crate::util::ffi::{Out, Text, set_text};
use crate::util::notes;

/// Makes the driver ready. Flags must be 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let made = std::panic::catch_unwind(process::init);
    match made {
        Ok(Ok(driver)) => {
            note_process(driver);
            CUDA_SUCCESS
        }
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

/// Tells a dry run that this process is one of its own: others may be on the same machine.
fn note_process(driver: &Driver) {
    let own = std::process::id();
    // Relaxed: a line too many does no harm.
    if driver.noted.swap(own, Relaxed) != own {
        notes::note("process", "uses the GPU");
    }
}

/// Version of the driver; also before `cuInit`.
///
/// # Safety
/// `version` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> CUresult {
    entry::call_before_init(|driver| {
        version.required()?;
        let number = match driver {
            Some(driver) => driver.version(),
            None => process::early().version,
        };
        version.set(number as c_int)
    })
}

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;

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
        if id == MULTIPROCESSORS {
            return value.set(driver.multiprocessors(device) as c_int);
        }
        value.set(attribute(driver.gpu_spec(device), device.pci, id).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// The old set of properties.
    fn cuDeviceGetProperties(properties: Out<[c_int; 14]>, device: CUdevice) |driver| {
        properties.required()?;
        let device = driver.device(device)?;
        let get = |id| attribute(driver.gpu_spec(device), device.pci, id).unwrap_or(0);
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

    /// Reports whether a device can use another device's memory.
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

    /// Reports whether contexts can have a share of the SMs: never, because this is not modelled.
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
        array::element_bytes(format, channels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        width.set(1 << 28)
    }
}
