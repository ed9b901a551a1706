//! Utilisation, clocks, power, temperature: formulas of [`crate::model`].

use std::ffi::c_uint;

use radrm_emulator_machine::{GpuSpec, Machine};

use crate::api::*;
use crate::model::{Busy, IDLE_MHZ, Sums, busy, energy_mj, percent, power_mw, temperature};
use crate::state::{Device, now_ns};

/// `nvmlUtilization_t`, percent.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Utilization {
    /// Time with a kernel.
    pub gpu: u32,
    /// Time with the memory at work.
    pub memory: u32,
}

/// Utilization of a device since this program's last query.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn load(machine: &Machine, device: Device) -> Answer<Busy> {
    Ok(busy(machine, device.gpu(machine)?, now_ns()))
}

/// Power (mW).
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn power(machine: &Machine, device: Device) -> Answer<u32> {
    Ok(power_mw(device.spec(machine)?, load(machine, device)?.kernels))
}

/// Energy since the machine was made (mJ).
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn energy(machine: &Machine, device: Device) -> Answer<u64> {
    let now = now_ns();
    let sums = Sums::read(machine, device.gpu(machine)?, now);
    Ok(energy_mj(device.spec(machine)?, now.saturating_sub(machine.created_ns()), sums.kernels_ns))
}

/// Highest clock of a kind (MHz): 0 graphics, 1 SM, 2 memory, 3 video.
///
/// # Errors
/// INVALID_ARGUMENT for another kind.
pub fn highest(spec: &GpuSpec, kind: c_uint) -> Answer<u32> {
    match kind {
        0 | 1 => Ok(spec.clock_mhz),
        2 => Ok(spec.memory_clock_mhz),
        3 => Ok(spec.clock_mhz * 4 / 5),
        _ => Err(ERROR_INVALID_ARGUMENT),
    }
}

fn clock(machine: &Machine, device: Device, kind: c_uint) -> Answer<u32> {
    let highest = highest(device.spec(machine)?, kind)?;
    let idle = kind != 2 && load(machine, device)?.kernels == 0.0;
    Ok(if idle { highest.min(IDLE_MHZ) } else { highest })
}

entry_points! {
    /// Utilisation.
    fn nvmlDeviceGetUtilizationRates(device: Device, out: Out<Utilization>) |machine| {
        let busy = load(machine, device)?;
        out.set(Utilization { gpu: percent(busy.kernels), memory: percent(busy.memory) })
    }

    /// Utilisation of encoder and decoder: none; sampled every 100 ms.
    also nvmlDeviceGetDecoderUtilization;
    fn nvmlDeviceGetEncoderUtilization(device: Device, out: Out<c_uint>, period_us: Out<c_uint>) |machine| {
        device.gpu(machine)?;
        out.set(0)?;
        period_us.set(100_000)
    }

    /// Power (mW).
    fn nvmlDeviceGetPowerUsage(device: Device, out: Out<c_uint>) |machine| {
        out.set(power(machine, device)?)
    }

    /// Energy since the machine was made (mJ).
    fn nvmlDeviceGetTotalEnergyConsumption(device: Device, out: Out<u64>) |machine| {
        out.set(energy(machine, device)?)
    }

    /// Power limit: the model's (mW).
    also nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit;
    fn nvmlDeviceGetPowerManagementLimit(device: Device, out: Out<c_uint>) |machine| {
        out.set(device.spec(machine)?.power_w * 1000)
    }

    /// Range of power limits (mW).
    fn nvmlDeviceGetPowerManagementLimitConstraints(device: Device, low: Out<c_uint>, high: Out<c_uint>) |machine| {
        let spec = device.spec(machine)?;
        low.set(spec.power_w.max(200) / 2 * 1000)?;
        high.set(spec.power_w * 1000)
    }

    /// Temperature of the GPU (degrees Celsius); there is no other sensor.
    fn nvmlDeviceGetTemperature(device: Device, sensor: c_uint, out: Out<c_uint>) |machine| {
        if sensor != 0 {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        out.set(temperature(load(machine, device)?.kernels))
    }

    /// Temperature of the GPU; the structure carries its version, the sensor and the result.
    fn nvmlDeviceGetTemperatureV(device: Device, out: Out<[u32; 3]>) |machine| {
        let [version, sensor, _] = out.get()?;
        if version != version_of::<[u32; 3]>(1) {
            return Err(ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        if sensor != 0 {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        out.set([version, sensor, temperature(load(machine, device)?.kernels)])
    }

    /// Temperatures at which the GPU slows down (1) and shuts down (0).
    fn nvmlDeviceGetTemperatureThreshold(device: Device, kind: c_uint, out: Out<c_uint>) |machine| {
        device.gpu(machine)?;
        out.set(match kind {
            0 => 92,
            1 => 89,
            2 => 95,
            3 => 87,
            _ => return Err(ERROR_NOT_SUPPORTED),
        })
    }

    /// Clock of a kind (MHz).
    fn nvmlDeviceGetClockInfo(device: Device, kind: c_uint, out: Out<c_uint>) |machine| {
        out.set(clock(machine, device, kind)?)
    }

    /// Highest clock of a kind (MHz).
    also nvmlDeviceGetApplicationsClock, nvmlDeviceGetDefaultApplicationsClock, nvmlDeviceGetMaxCustomerBoostClock;
    fn nvmlDeviceGetMaxClockInfo(device: Device, kind: c_uint, out: Out<c_uint>) |machine| {
        out.set(highest(device.spec(machine)?, kind)?)
    }

    /// Clock of a kind (MHz): 0 current, 1 target of applications, 2 its default, 3 highest.
    fn nvmlDeviceGetClock(device: Device, kind: c_uint, which: c_uint, out: Out<c_uint>) |machine| {
        out.set(match which {
            0 => clock(machine, device, kind)?,
            1..=3 => highest(device.spec(machine)?, kind)?,
            _ => return Err(ERROR_INVALID_ARGUMENT),
        })
    }

    /// Reasons that clocks are not higher: none, or an idle GPU.
    also nvmlDeviceGetCurrentClocksThrottleReasons;
    fn nvmlDeviceGetCurrentClocksEventReasons(device: Device, out: Out<u64>) |machine| {
        out.set(u64::from(load(machine, device)?.kernels == 0.0))
    }

    /// Bytes over PCI Express (KB/s), 0 from and 1 to the GPU: half of what copies can have moved each.
    fn nvmlDeviceGetPcieThroughput(device: Device, counter: c_uint, out: Out<c_uint>) |machine| {
        if counter > 1 {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        let share = load(machine, device)?.copies / 2.0;
        out.set((device.spec(machine)?.pcie_gbs() * 1e6 * share) as c_uint)
    }
}
