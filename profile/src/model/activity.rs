//! Activity of a GPU over time: load, power, clocks, traffic.

use super::GpuIndex;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// A share of a whole, in ten-thousandths: small in a file, and never not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub u16);

impl Share {
    /// All of it.
    pub const ONE: Share = Share(10_000);

    /// From a number that should lie between 0 and 1; others are cut. `None` for what is not a number.
    pub fn new(share: f64) -> Option<Share> {
        // The cast is exact: the number lies between 0 and 10,000.
        share.is_finite().then(|| Share((share.clamp(0.0, 1.0) * 10_000.0).round() as u16))
    }

    /// From per cent.
    pub fn from_percent(percent: f64) -> Option<Share> {
        Share::new(percent / 100.0)
    }

    /// Between 0 and 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// Source of SM activity and of what belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meter {
    /// No meter.
    #[default]
    None,
    /// The GPU's performance monitor, through NVML (Hopper and later).
    Gpm,
    /// DCGM.
    Dcgm,
}

impl Meter {
    /// Stable name for programs.
    pub const fn key(self) -> Option<&'static str> {
        match self {
            Meter::None => None,
            Meter::Gpm => Some("gpm"),
            Meter::Dcgm => Some("dcgm"),
        }
    }
}

/// Activity of a GPU over a span of time. Later spans are longer, as those of memory are. Shares and rates are
/// means over the span; what was not measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSpan {
    /// Start of the span.
    pub t: Nanos,
    /// Length of the span.
    pub span: Nanos,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Readings that are in it.
    pub samples: u32,
    /// Share of the time in which a kernel ran (NVML).
    pub utilization: Option<Share>,
    /// Share of the time in which memory was read or written (NVML).
    pub memory_utilization: Option<Share>,
    /// Source of `sm_active` to `dram_active`.
    pub meter: Meter,
    /// Share of the time in which an SM had a warp, mean of all SMs (SMACT).
    pub sm_active: Option<Share>,
    /// Resident warps as a share of what the SMs can hold, mean of all SMs (SMOCC).
    pub sm_occupancy: Option<Share>,
    /// Share of the time in which tensor cores were at work.
    pub tensor_active: Option<Share>,
    /// Share of the memory's bandwidth that was used (DRAMA).
    pub dram_active: Option<Share>,
    /// Mean power, milliwatt.
    pub power_mw: Option<u32>,
    /// Energy taken in the span, millijoule.
    pub energy_mj: Option<u64>,
    /// Highest temperature, degrees Celsius.
    pub temperature: Option<u32>,
    /// Mean clock of the SMs, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Mean clock of the memory, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// PCI Express from the GPU, bytes per second.
    pub pcie_from_gpu: Option<Bytes>,
    /// PCI Express to the GPU, bytes per second.
    pub pcie_to_gpu: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_cut_to_what_can_be() {
        assert_eq!(Share::new(0.25), Some(Share(2500)));
        assert_eq!(Share::from_percent(150.0), Some(Share::ONE));
        assert_eq!(Share::new(-1.0), Some(Share(0)));
        assert_eq!(Share::new(f64::NAN), None);
        assert_eq!(Share::new(f64::INFINITY), None);
        assert_eq!(Share(5000).get(), 0.5);
    }
}
