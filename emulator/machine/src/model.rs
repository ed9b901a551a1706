//! GPU models: the figures of one GPU, and the table of models that can be named.

use serde::{Deserialize, Serialize};

use crate::error::MachineError;

/// The table of models, as TOML.
pub const MODELS_TOML: &str = include_str!("../data/models.toml");

/// The model that is emulated where that of the node's GPUs is not known: it has the most memory.
pub const USUAL_MODEL: &str = "H200";

/// Figures of one GPU.
///
/// In a machine's TOML file each `[[gpu]]` either names a `model` and overrides what it likes, or
/// gives every field that has no default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// Short name in machine descriptions, such as `A100-40GB`.
    pub id: String,
    /// Further short names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Name that the driver and NVML give.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Memory that CUDA shows programs, MiB: a little less. `None` where it was not seen on a GPU of the model.
    #[serde(default)]
    pub cuda_memory_mib: Option<u64>,
    /// Compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Multiprocessors.
    pub sms: u32,
    /// Boost clock of the multiprocessors (MHz).
    pub clock_mhz: u32,
    /// Memory clock (MHz).
    pub memory_clock_mhz: u32,
    /// Width of the memory bus (bits).
    pub memory_bus_bits: u32,
    /// Memory bandwidth (10^9 bytes/s).
    pub bandwidth_gbs: f64,
    /// PCI Express generation.
    pub pcie_generation: u32,
    /// PCI Express lanes.
    pub pcie_lanes: u32,
    /// NVLink bandwidth, both directions together (10^9 bytes/s); 0 without NVLink.
    #[serde(default)]
    pub nvlink_gbs: f64,
    /// Single precision (10^12 operations/s).
    pub tflops_fp32: f64,
    /// Half precision on tensor cores, dense (10^12 operations/s).
    #[serde(default)]
    pub tflops_fp16_tensor: f64,
    /// TF32 on tensor cores, dense (10^12 operations/s); 0 where the card has none.
    #[serde(default)]
    pub tflops_tf32_tensor: f64,
    /// 8-bit floats on tensor cores, dense (10^12 operations/s); 0 where the card has none.
    #[serde(default)]
    pub tflops_fp8_tensor: f64,
    /// L2 cache (MiB).
    pub l2_mib: u32,
    /// Shared memory of a multiprocessor (KiB).
    pub shared_per_sm_kib: u32,
    /// Largest shared memory of a block that asks for it (KiB).
    pub shared_per_block_optin_kib: u32,
    /// Most threads on a multiprocessor.
    pub max_threads_per_sm: u32,
    /// Most blocks on a multiprocessor.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of a multiprocessor.
    #[serde(default = "registers_per_sm")]
    pub registers_per_sm: u32,
    /// Power limit (W).
    pub power_w: u32,
    /// Power when idle (W).
    pub idle_power_w: u32,
    /// Memory of one process's context with nothing loaded (MiB).
    pub context_mib: u64,
    /// Origin of `context_mib`.
    #[serde(default = "estimate")]
    pub context_origin: String,
    /// PCI device and vendor id as NVML gives it.
    #[serde(default)]
    pub pci_device_id: u32,
    /// True if memory has error correction.
    #[serde(default = "yes")]
    pub ecc: bool,
    /// True if the device shares the host's memory (as GB10 does).
    #[serde(default)]
    pub integrated: bool,
    /// True if pools are supported (`CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`).
    #[serde(default = "yes")]
    pub memory_pools: bool,
    /// True if MIG mode is on, as NVML reports. Instances are listed as GPUs of their own.
    #[serde(default)]
    pub mig: bool,
    /// Profile if this GPU is a MIG instance, such as `1g.10gb`; its UUID then begins with `MIG-`.
    #[serde(default)]
    pub mig_profile: Option<String>,
    /// Device attributes that override computed values: number of the attribute -> value.
    #[serde(default)]
    pub attributes: std::collections::BTreeMap<String, i32>,
}

fn registers_per_sm() -> u32 {
    65536
}

fn estimate() -> String {
    "estimate, not measured".to_owned()
}

fn yes() -> bool {
    true
}

impl GpuSpec {
    /// Memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// Memory that CUDA shows programs on a real GPU of the model, bytes. Where it was not seen: the smallest share that
    /// was seen on another, which is 98.5 %.
    pub fn cuda_memory_bytes(&self) -> u64 {
        self.cuda_memory_mib.map_or(self.memory_bytes() / 1000 * 985, |mib| mib << 20)
    }

    /// Memory of one process's context in bytes, a multiple of [`crate::HOLD_GRANULE`].
    pub fn context_bytes(&self) -> u64 {
        (self.context_mib << 20).next_multiple_of(crate::HOLD_GRANULE)
    }

    /// Compute capability as (major, minor).
    pub fn capability(&self) -> (u32, u32) {
        let mut parts = self.compute_capability.split('.').map(|p| p.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// Bandwidth of the PCI Express link in one direction (10^9 bytes/s), encoding taken off.
    pub fn pcie_gbs(&self) -> f64 {
        let per_lane = match self.pcie_generation {
            0..=1 => 0.25,
            2 => 0.5,
            3 => 0.985,
            4 => 1.969,
            5 => 3.938,
            _ => 7.563,
        };
        per_lane * f64::from(self.pcie_lanes)
    }

    /// The first thing that cannot be, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        let (major, minor) = self.capability();
        if format!("{major}.{minor}") != self.compute_capability || major == 0 {
            return Some(format!("compute_capability = \"{}\" is not a version", self.compute_capability));
        }
        let positive = [
            ("memory_mib", self.memory_mib),
            ("sms", self.sms.into()),
            ("clock_mhz", self.clock_mhz.into()),
            ("max_threads_per_sm", self.max_threads_per_sm.into()),
            ("max_blocks_per_sm", self.max_blocks_per_sm.into()),
            ("registers_per_sm", self.registers_per_sm.into()),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Some(format!("{field} is 0"));
        }
        if self.memory_mib >= 1 << 24 {
            return Some(format!("memory_mib = {} is more than 16 TiB", self.memory_mib));
        }
        if !(self.bandwidth_gbs > 0.0 && self.tflops_fp32 > 0.0) {
            return Some("bandwidth_gbs and tflops_fp32 must be more than 0".to_owned());
        }
        None
    }
}

/// A list of GPU models.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Models {
    /// The models.
    pub gpu: Vec<GpuSpec>,
}

impl Models {
    /// The models that this crate knows.
    ///
    /// # Errors
    /// Only if the committed table is malformed, which a test excludes.
    pub fn known() -> Result<Self, MachineError> {
        toml::from_str(MODELS_TOML).map_err(|e| MachineError::spec("data/models.toml", e.to_string()))
    }

    /// The model with a short name; case does not matter.
    pub fn find(&self, id: &str) -> Option<&GpuSpec> {
        let same = |other: &str| other.eq_ignore_ascii_case(id);
        self.gpu.iter().find(|g| same(&g.id) || g.aliases.iter().any(|a| same(a)))
    }

    /// The model whose GPUs have this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&GpuSpec> {
        self.gpu.iter().find(|model| model.name == name)
    }

    /// The machine that stands for `count` GPUs of this name, and what its GPUs are called. A model that is not known
    /// is replaced by [`USUAL_MODEL`].
    #[must_use]
    pub fn machine_for(count: u16, name: Option<String>) -> (String, String) {
        let models = Self::known().ok();
        let known = name.and_then(|name| Some((models.as_ref()?.named(&name)?, name)));
        match known {
            Some((model, name)) => (format!("{count}x{}", model.id), name),
            None => (
                format!("{count}x{USUAL_MODEL}"),
                format!("{USUAL_MODEL}, as this node's GPUs are not known"),
            ),
        }
    }

    /// Short names of all models, for messages.
    pub fn names(&self) -> String {
        self.gpu.iter().map(|g| g.id.as_str()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_possible_gpus() {
        let models = Models::known().unwrap();
        assert!(models.gpu.len() >= 12);
        for gpu in &models.gpu {
            assert_eq!(gpu.fault(), None, "{}", gpu.id);
            assert!(gpu.shared_per_block_optin_kib <= gpu.shared_per_sm_kib, "{}", gpu.id);
            assert!(gpu.idle_power_w < gpu.power_w, "{}", gpu.id);
            assert!(models.find(&gpu.id.to_lowercase()).is_some());
        }
        assert_eq!(models.find("A100").unwrap().id, "A100-40GB");
        assert_eq!(models.find("h200").unwrap().capability(), (9, 0));
    }
}
