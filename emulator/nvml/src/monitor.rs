//! Further queries of monitors: affinity, clocks by performance state, pages and rows, versions, capabilities.

use std::ffi::{c_char, c_uint};

use radrm_emulator_machine::{GpuSpec, Machine};

use crate::activity::{highest, load};
use crate::api::*;
use crate::device::pci;
use crate::model::{IDLE_MHZ, percent};
use crate::state::{Device, now_ns};
use crate::system::driver_version;

/// `NVML_PSTATE_UNKNOWN`: ends a list of performance states.
const NO_STATE: c_uint = 32;
/// Distance of two clocks that can be set (MHz).
const CLOCK_STEP: usize = 15;

/// `nvmlPciInfoExt_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfoExt {
    /// [`version_of`] this structure, 1.
    pub version: u32,
    /// Domain, bus, device; device and vendor; board; base class, sub-class.
    pub numbers: [u32; 7],
    /// Address with a domain of eight digits.
    pub bus_id: [u8; 32],
}

/// `nvmlPdi_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pdi {
    /// [`version_of`] this structure, 1.
    pub version: u32,
    /// Number of the device.
    pub value: u64,
}

/// `nvmlSystemDriverBranchInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    /// [`version_of`] this structure, 1.
    pub version: u32,
    /// Its name.
    pub name: [u8; 80],
}

/// `nvmlGpuDynamicPstatesInfo_t`: of each domain whether it is there, its load (percent) and two thresholds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DynamicStates {
    /// Zero.
    pub flags: u32,
    /// The domains: graphics, memory, video, bus, four more.
    pub domains: [[u32; 4]; 8],
}

/// A structure whose first word the caller sets to its version.
fn versioned<T>(out: Out<T>) -> Answer<u32> {
    let version = out.cast::<u32>().get()?;
    if version == version_of::<T>(1) { Ok(version) } else { Err(ERROR_ARGUMENT_VERSION_MISMATCH) }
}

/// Sets as many of the lowest bits as there are things.
fn bits(machine: &Machine, device: Device, (words, out): (c_uint, Out<u64>), things: usize) -> Answer {
    device.gpu(machine)?;
    out.required()?;
    if words == 0 {
        return Err(ERROR_INVALID_ARGUMENT);
    }
    for word in 0..words as usize {
        let here = things.saturating_sub(word * 64).min(64) as u32;
        out.set_at(word, u64::MAX.checked_shr(64 - here).unwrap_or(0))?;
    }
    Ok(())
}

/// Processors of the node: every one is as close to a GPU as any other.
fn processors() -> usize {
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1)
}

/// Binds the calling thread to the processors close to a device, which are all.
fn bind(machine: &Machine, device: Device) -> Answer {
    device.gpu(machine)?;
    // SAFETY: plain bits, for which zeros are valid; the processors are within the set's size.
    let bound = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..processors().min(libc::CPU_SETSIZE as usize)).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if bound == 0 { Ok(()) } else { Err(ERROR_UNKNOWN) }
}

/// Ampere and later replace rows; before that pages were retired.
fn replaces_rows(spec: &GpuSpec) -> Answer<bool> {
    if spec.ecc { Ok(spec.capability().0 >= 8) } else { Err(ERROR_NOT_SUPPORTED) }
}

fn no_pages(machine: &Machine, device: Device, count: Out<c_uint>) -> Answer {
    if replaces_rows(device.spec(machine)?)? { Err(ERROR_NOT_SUPPORTED) } else { count.set(0) }
}

fn errors(machine: &Machine, device: Device, out: Out<u64>) -> Answer {
    if device.spec(machine)?.ecc { out.set(0) } else { Err(ERROR_NOT_SUPPORTED) }
}

entry_points! {
    /// Processors close to a device.
    fn nvmlDeviceGetCpuAffinity(device: Device, words: c_uint, out: Out<u64>) |machine| {
        bits(machine, device, (words, out), processors())
    }

    /// Processors close to a device, within its NUMA node or socket.
    fn nvmlDeviceGetCpuAffinityWithinScope(device: Device, words: c_uint, out: Out<u64>, _scope: c_uint) |machine| {
        bits(machine, device, (words, out), processors())
    }

    /// NUMA nodes close to a device: the first.
    fn nvmlDeviceGetMemoryAffinity(device: Device, words: c_uint, out: Out<u64>, _scope: c_uint) |machine| {
        bits(machine, device, (words, out), 1)
    }

    /// Binds the calling thread to the processors close to a device.
    also nvmlDeviceClearCpuAffinity;
    fn nvmlDeviceSetCpuAffinity(device: Device) |machine| {
        bind(machine, device)
    }

    /// Pages that were retired: none.
    fn nvmlDeviceGetRetiredPages(device: Device, _cause: c_uint, count: Out<c_uint>, _pages: Out<u64>) |machine| {
        no_pages(machine, device, count)
    }

    /// Pages that were retired, and when: none.
    fn nvmlDeviceGetRetiredPages_v2(
        device: Device, _cause: c_uint, count: Out<c_uint>, _pages: Out<u64>, _times: Out<u64>,
    ) |machine| {
        no_pages(machine, device, count)
    }

    /// Pages that are about to be retired: none.
    fn nvmlDeviceGetRetiredPagesPendingStatus(device: Device, out: Out<c_uint>) |machine| {
        no_pages(machine, device, out)
    }

    /// Rows that were replaced: none.
    fn nvmlDeviceGetRemappedRows(
        device: Device, corrected: Out<c_uint>, uncorrected: Out<c_uint>, pending: Out<c_uint>, failed: Out<c_uint>,
    ) |machine| {
        if !replaces_rows(device.spec(machine)?)? {
            return Err(ERROR_NOT_SUPPORTED);
        }
        [corrected, uncorrected, pending, failed].into_iter().try_for_each(|out| out.set(0))
    }

    /// Errors of one memory: none.
    fn nvmlDeviceGetMemoryErrorCounter(
        device: Device, _kind: c_uint, _counter: c_uint, _place: c_uint, out: Out<u64>,
    ) |machine| {
        errors(machine, device, out)
    }

    /// Error correction (ECC) mode of memory if nothing is set.
    fn nvmlDeviceGetDefaultEccMode(device: Device, out: Out<c_uint>) |machine| {
        out.set(u32::from(device.spec(machine)?.ecc))
    }

    /// Lowest and highest clock of a performance state (MHz); P0 is the only one.
    fn nvmlDeviceGetMinMaxClockOfPState(
        device: Device, kind: c_uint, state: c_uint, low: Out<c_uint>, high: Out<c_uint>,
    ) |machine| {
        let highest = highest(device.spec(machine)?, kind)?;
        if state != 0 {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        low.set(if kind == 2 { highest } else { highest.min(IDLE_MHZ) })?;
        high.set(highest)
    }

    /// Performance states, in as many bytes as the caller has: P0.
    fn nvmlDeviceGetSupportedPerformanceStates(device: Device, out: Out<c_uint>, bytes: c_uint) |machine| {
        device.gpu(machine)?;
        let room = bytes as usize / 4;
        if room == 0 {
            return Err(ERROR_INSUFFICIENT_SIZE);
        }
        (0..room).try_for_each(|at| out.set_at(at, if at == 0 { 0 } else { NO_STATE }))
    }

    /// Load by domain: graphics and memory.
    fn nvmlDeviceGetDynamicPstatesInfo(device: Device, out: Out<DynamicStates>) |machine| {
        let busy = load(machine, device)?;
        let mut domains = [[0; 4]; 8];
        domains[0] = [1, percent(busy.kernels), 0, 0];
        domains[1] = [1, percent(busy.memory), 0, 0];
        out.set(DynamicStates { flags: 0, domains })
    }

    /// Memory clocks that can be set (MHz).
    fn nvmlDeviceGetSupportedMemoryClocks(device: Device, count: Out<c_uint>, out: Out<c_uint>) |machine| {
        fill(count, out, &[device.spec(machine)?.memory_clock_mhz])
    }

    /// Graphics clocks that can be set with a memory clock (MHz).
    fn nvmlDeviceGetSupportedGraphicsClocks(
        device: Device, memory: c_uint, count: Out<c_uint>, out: Out<c_uint>,
    ) |machine| {
        let spec = device.spec(machine)?;
        if memory != spec.memory_clock_mhz {
            return Err(ERROR_NOT_FOUND);
        }
        let clocks: Vec<u32> = (IDLE_MHZ.min(spec.clock_mhz)..=spec.clock_mhz).rev().step_by(CLOCK_STEP).collect();
        fill(count, out, &clocks)
    }

    /// Reasons for low clocks that can be reported: an idle GPU.
    also nvmlDeviceGetSupportedClocksThrottleReasons;
    fn nvmlDeviceGetSupportedClocksEventReasons(
        device: Device, out: Out<u64>,
    ) |machine| {
        device.gpu(machine)?;
        out.set(1)
    }

    /// Time below the clocks that a policy allows (ns): none.
    fn nvmlDeviceGetViolationStatus(device: Device, _policy: c_uint, out: Out<[u64; 2]>) |machine| {
        device.gpu(machine)?;
        out.set([now_ns() / 1000, 0])
    }

    /// Highest generation of the PCI Express link that the GPU can do.
    also nvmlDeviceGetPcieLinkMaxSpeed;
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: Device, out: Out<c_uint>) |machine| {
        // The speeds are numbered as the generations are.
        out.set(device.spec(machine)?.pcie_generation)
    }

    /// Speed of a lane of the PCI Express link (Mbit/s).
    fn nvmlDeviceGetPcieSpeed(device: Device, out: Out<c_uint>) |machine| {
        let generation = device.spec(machine)?.pcie_generation as usize;
        let speeds = [2500, 5000, 8000, 16000, 32000, 64000];
        out.set(*speeds.get(generation.wrapping_sub(1)).ok_or(ERROR_NOT_SUPPORTED)?)
    }

    /// Address and classes of the PCI device.
    fn nvmlDeviceGetPciInfoExt(device: Device, out: Out<PciInfoExt>) |machine| {
        let version = versioned(out)?;
        let info = pci(machine, device)?;
        const DISPLAY: u32 = 3;
        const CONTROLLER_3D: u32 = 2;
        let (id, board) = (info.pci_device_id, info.pci_sub_system_id);
        let numbers = [info.domain, info.bus, info.device, id, board, DISPLAY, CONTROLLER_3D];
        out.set(PciInfoExt { version, numbers, bus_id: info.bus_id })
    }

    /// Number of the device that no other has.
    fn nvmlDeviceGetPdi(device: Device, out: Out<Pdi>) |machine| {
        let version = versioned(out)?;
        let uuid = machine.spec().uuid(device.gpu(machine)?);
        out.set(Pdi { version, value: uuid.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)) })
    }

    /// Capabilities beyond the ordinary: none.
    fn nvmlDeviceGetCapabilities(device: Device, out: Out<[u32; 2]>) |machine| {
        let version = versioned(out)?;
        device.gpu(machine)?;
        out.set([version, 0])
    }

    /// Firmware (GSP) mode of the GPU, now and by default: firmware runs it.
    fn nvmlDeviceGetGspFirmwareMode(device: Device, on: Out<c_uint>, default: Out<c_uint>) |machine| {
        device.gpu(machine)?;
        on.set(1)?;
        default.set(1)
    }

    /// Version of that firmware: the driver's. The caller has room for 80 bytes.
    fn nvmlDeviceGetGspFirmwareVersion(device: Device, out: Out<c_char>) |machine| {
        device.gpu(machine)?;
        set_text(out, 80, driver_version(machine.spec().driver_version))
    }

    /// Branch of the driver.
    fn nvmlSystemGetDriverBranch(out: Out<Branch>, room: c_uint) |machine| {
        let version = versioned(out)?;
        if room == 0 {
            return Err(ERROR_INSUFFICIENT_SIZE);
        }
        let major = driver_version(machine.spec().driver_version).split('.').next().unwrap_or_default();
        out.set(Branch { version, name: fixed_text(&format!("r{major}_00")) })
    }
}
