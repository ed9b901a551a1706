//! Load, power, clocks and traffic of a GPU, as NVML reports them at one moment.

use crate::activity::{Metered, Reading};
use radrm_os::nvml::{Device, Monitor, NvmlError};
use radrm_profile::model::{Meter, NvmlSample};
use std::time::Duration;

/// PCI Express takes 20 ms for each direction: it is asked for this rarely.
pub(super) const PCIE_GAP: Duration = Duration::from_secs(1);

/// Reason that a GPU has no performance monitor.
pub(super) fn no_monitor(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "NVML measures it on Hopper and later only".into(),
        NvmlError::TooOld => "the driver's NVML is too old to measure it".into(),
        error => format!("NVML does not measure it ({error})"),
    }
}

/// Reads a GPU; `sample` is what was just said of its memory. The second part is what has failed
/// for good.
pub(super) fn read<'n>(
    device: &Device<'n>,
    sample: &NvmlSample,
    monitor: &mut Option<Monitor<'n>>,
) -> (Reading, Option<String>) {
    let mut reading = Reading {
        t: sample.t,
        gpu: sample.gpu,
        utilization: sample.utilization.map(f64::from),
        memory_utilization: sample.memory_utilization.map(f64::from),
        power_mw: sample.power_mw.map(f64::from),
        energy_mj: device.energy_mj(),
        temperature: sample.temperature,
        sm_clock_mhz: device.sm_clock_mhz().map(f64::from),
        memory_clock_mhz: device.memory_clock_mhz().map(f64::from),
        pcie_from_gpu: None,
        pcie_to_gpu: None,
        metered: Metered::default(),
    };
    let metrics = match monitor.as_mut().map(|monitor| monitor.read(device)) {
        Some(Ok(metrics)) => metrics,
        Some(Err(error)) => {
            *monitor = None;
            return (reading, Some(format!("the GPU's performance monitor failed ({error})")));
        }
        None => None,
    };
    if let Some(metrics) = metrics {
        reading.metered = Metered {
            meter: Meter::Gpm,
            sm_active: metrics.sm_active,
            sm_occupancy: metrics.sm_occupancy,
            tensor_active: metrics.tensor_active,
            dram_active: metrics.dram_active,
            gr_active: metrics.gr_active,
        };
        (reading.pcie_from_gpu, reading.pcie_to_gpu) = (metrics.pcie_from_gpu, metrics.pcie_to_gpu);
    }
    (reading, None)
}
