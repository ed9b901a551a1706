//! The performance monitor (GPM) of a device: means between two samples.

use std::time::{Duration, Instant};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

use super::{Device, NvmlError};

/// Two samples lie at least this far apart: closer ones are not defined.
const MIN_GAP: Duration = Duration::from_millis(100);

/// A clock that ticks late by less than this is on time.
const SLACK: Duration = Duration::from_millis(2);

const ASKED: [GpmMetricId; 7] = [
    GpmMetricId::GraphicsUtil,
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::PcieRxPerSec,
];

/// Measurements of the monitor, each as a mean since the sample before; `None` where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Graphics or compute engine in use, per cent: high for a single thread, as a utilisation is.
    pub gr_active: Option<f64>,
    /// SM activity, per cent.
    pub sm_active: Option<f64>,
    /// SM occupancy, per cent.
    pub sm_occupancy: Option<f64>,
    /// Tensor cores at work, per cent.
    pub tensor_active: Option<f64>,
    /// Bandwidth of the memory in use, per cent.
    pub dram_active: Option<f64>,
    /// Bytes per second over PCI Express from the GPU.
    pub pcie_from_gpu: Option<f64>,
    /// Bytes per second over PCI Express to the GPU.
    pub pcie_to_gpu: Option<f64>,
}

/// The monitor of one device, with its last sample.
pub struct Monitor<'n> {
    nvml: &'n nvml_wrapper::Nvml,
    before: Option<(Instant, GpmSample<'n>)>,
}

impl std::fmt::Debug for Monitor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl<'n> Monitor<'n> {
    pub(super) fn new(nvml: &'n nvml_wrapper::Nvml) -> Self {
        Self { nvml, before: None }
    }

    /// Means since the sample before; `None` if this is the first one, or too early for another.
    ///
    /// # Errors
    /// What the monitor says. The next call begins anew.
    pub fn read(&mut self, device: &Device<'n>) -> Result<Option<Metrics>, NvmlError> {
        let t = Instant::now();
        if self.before.as_ref().is_some_and(|(then, _)| t.duration_since(*then) + SLACK < MIN_GAP) {
            return Ok(None);
        }
        let before = self.before.take();
        let now = device.device.gpm_sample()?;
        let found = match &before {
            Some((_, before)) => gpm_metrics_get(self.nvml, before, &now, &ASKED)?,
            None => Vec::new(),
        };
        self.before = Some((t, now));
        let mib = f64::from(1 << 20);
        let mut metrics = Metrics::default();
        for metric in found.into_iter().flatten() {
            let value = metric.value;
            match metric.metric_id {
                GpmMetricId::GraphicsUtil => metrics.gr_active = Some(value),
                GpmMetricId::SmUtil => metrics.sm_active = Some(value),
                GpmMetricId::SmOccupancy => metrics.sm_occupancy = Some(value),
                GpmMetricId::AnyTensorUtil => metrics.tensor_active = Some(value),
                GpmMetricId::DramBwUtil => metrics.dram_active = Some(value),
                GpmMetricId::PcieTxPerSec => metrics.pcie_from_gpu = Some(value * mib),
                GpmMetricId::PcieRxPerSec => metrics.pcie_to_gpu = Some(value * mib),
                _ => {}
            }
        }
        Ok((metrics != Metrics::default()).then_some(metrics))
    }
}
