//! Load, power, clocks and traffic of a GPU, as NVML tells them at one moment.

use crate::activity::{Metered, Reading};
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};
use radrm_profile::Nanos;
use radrm_profile::model::{Meter, NvmlSample};
use std::time::Duration;

/// Two samples of the performance monitor lie at least this far apart: closer ones are not defined.
const APART: Nanos = Nanos::from_millis(100);

/// A clock that ticks late by less than this is on time.
const SLACK: Nanos = Nanos::from_millis(2);

/// PCI Express takes 20 ms for each direction: it is asked for this rarely.
pub(super) const PCIE_GAP: Duration = Duration::from_secs(1);

/// What is asked of the performance monitor.
const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::PcieRxPerSec,
];

/// The performance monitor of a GPU.
pub(super) struct Monitor<'n> {
    before: Option<(Nanos, GpmSample<'n>)>,
    usable: bool,
}

impl<'n> Monitor<'n> {
    /// `Err`: why there is none.
    pub(super) fn of(device: &Device<'n>) -> Result<Monitor<'n>, String> {
        use nvml_wrapper::error::NvmlError;
        match device.gpm_support() {
            Ok(true) => Ok(Monitor { before: None, usable: true }),
            Ok(false) | Err(NvmlError::NotSupported) => {
                Err("NVML measures it on Hopper and later only".into())
            }
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
                Err("the driver's NVML is too old to measure it".into())
            }
            Err(error) => Err(format!("NVML does not measure it ({error})")),
        }
    }

    /// Means since the sample before. Nothing if it is too early for another sample. `Err`: it failed,
    /// and is not asked again.
    fn read(
        &mut self,
        nvml: &'n Nvml,
        device: &Device<'n>,
        t: Nanos,
        reading: &mut Reading,
    ) -> Result<(), String> {
        if !self.usable || self.before.as_ref().is_some_and(|(then, _)| t + SLACK < *then + APART) {
            return Ok(());
        }
        let mut ask = || {
            let now = device.gpm_sample()?;
            let metrics = match &self.before {
                Some((_, before)) => gpm_metrics_get(nvml, before, &now, &METRICS)?,
                None => Vec::new(),
            };
            self.before = Some((t, now));
            Ok(metrics)
        };
        let metrics = match ask() {
            Ok(metrics) => metrics,
            Err(error) => {
                let error: nvml_wrapper::error::NvmlError = error;
                self.usable = false;
                return Err(format!("the GPU's performance monitor failed ({error})"));
            }
        };
        let mib = f64::from(1 << 20);
        for metric in metrics.into_iter().flatten() {
            let value = Some(metric.value);
            match metric.metric_id {
                GpmMetricId::SmUtil => reading.metered.sm_active = value,
                GpmMetricId::SmOccupancy => reading.metered.sm_occupancy = value,
                GpmMetricId::AnyTensorUtil => reading.metered.tensor_active = value,
                GpmMetricId::DramBwUtil => reading.metered.dram_active = value,
                GpmMetricId::PcieTxPerSec => reading.pcie_from_gpu = Some(metric.value * mib),
                GpmMetricId::PcieRxPerSec => reading.pcie_to_gpu = Some(metric.value * mib),
                _ => {}
            }
            reading.metered.meter = Meter::Gpm;
        }
        Ok(())
    }
}

/// Reads a GPU; `sample` is what was just said of its memory. The second part tells what has failed
/// for good.
pub(super) fn read<'n>(
    nvml: &'n Nvml,
    device: &Device<'n>,
    sample: &NvmlSample,
    monitor: Option<&mut Monitor<'n>>,
) -> (Reading, Option<String>) {
    let clock = |clock| device.clock_info(clock).ok().map(f64::from);
    let mut reading = Reading {
        t: sample.t,
        gpu: sample.gpu,
        utilization: sample.utilization.map(f64::from),
        memory_utilization: sample.memory_utilization.map(f64::from),
        power_mw: sample.power_mw.map(f64::from),
        energy_mj: device.total_energy_consumption().ok(),
        temperature: sample.temperature,
        sm_clock_mhz: clock(Clock::SM),
        memory_clock_mhz: clock(Clock::Memory),
        pcie_from_gpu: None,
        pcie_to_gpu: None,
        metered: Metered::default(),
    };
    let failed = monitor.and_then(|monitor| monitor.read(nvml, device, sample.t, &mut reading).err());
    (reading, failed)
}

/// Bytes per second over PCI Express, from and to the GPU. Takes 40 ms.
pub(super) fn pcie(device: &Device<'_>) -> Option<(f64, f64)> {
    let rate = |counter| device.pcie_throughput(counter).ok().map(|kib| f64::from(kib) * 1024.0);
    Some((rate(PcieUtilCounter::Send)?, rate(PcieUtilCounter::Receive)?))
}
