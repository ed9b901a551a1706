//! Facts of a card.

use serde::Deserialize;

use radrm_estimator::Error;

use crate::Precision;

/// Facts of a card, under the names that the emulator's list of GPU models has
/// (`emulator/machine/data/models.toml`); other entries of a file are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Card {
    /// Short name, such as `A100-40GB`.
    pub id: String,
    /// Further short names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Name that the driver gives.
    #[serde(default)]
    pub name: String,
    /// Compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Multiprocessors.
    pub sms: u32,
    /// Boost clock of the multiprocessors (MHz).
    pub clock_mhz: f64,
    /// Memory bandwidth (10^9 bytes/s).
    pub bandwidth_gbs: f64,
    /// NVLink bandwidth, both directions together (10^9 bytes/s); 0 without NVLink.
    #[serde(default)]
    pub nvlink_gbs: f64,
    /// PCI Express generation; 0 where it is not in the list.
    #[serde(default)]
    pub pcie_generation: u32,
    /// PCI Express lanes.
    #[serde(default)]
    pub pcie_lanes: u32,
    /// Single precision (10^12 operations/s).
    pub tflops_fp32: f64,
    /// TF32 on tensor cores, dense (10^12 operations/s); 0 where the card has none.
    #[serde(default)]
    pub tflops_tf32_tensor: f64,
    /// Half precision on tensor cores with sums in single precision, dense (10^12 operations/s); 0 where the card has
    /// none.
    #[serde(default)]
    pub tflops_fp16_tensor: f64,
    /// 8-bit floats on tensor cores, dense (10^12 operations/s); 0 where the card has none.
    #[serde(default)]
    pub tflops_fp8_tensor: f64,
    /// L2 cache (MiB).
    pub l2_mib: f64,
    /// Default power limit (W).
    pub power_w: f64,
    /// Power when idle (W).
    pub idle_power_w: f64,
    /// Power limit that is set (W), if it is not the default one.
    #[serde(default)]
    pub power_limit_w: Option<f64>,
}

impl Card {
    /// The card with a power limit, W.
    #[must_use]
    pub fn with_power_limit(mut self, watts: f64) -> Self {
        self.power_limit_w = Some(watts);
        self
    }

    /// Memory bandwidth, bytes/s.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth_gbs * 1e9
    }

    /// Bandwidth of PCI Express in one direction, bytes/s. Returns `None` if the list does not have it.
    #[must_use]
    pub fn bus_bandwidth(&self) -> Option<f64> {
        // Rates of a lane, with the encoding taken off.
        let lane = match self.pcie_generation {
            3 => 0.985e9,
            4 => 1.969e9,
            5 => 3.938e9,
            6 => 7.563e9,
            _ => return None,
        };
        (self.pcie_lanes > 0).then(|| lane * f64::from(self.pcie_lanes))
    }

    /// L2 cache, bytes.
    #[must_use]
    pub fn l2_bytes(&self) -> f64 {
        self.l2_mib * f64::from(1 << 20)
    }

    /// Clocks of all multiprocessors in a second.
    #[must_use]
    pub fn sm_clocks(&self) -> f64 {
        f64::from(self.sms) * self.clock_mhz * 1e6
    }

    /// Compute capability as a number: 8.9 for 8.9.
    #[must_use]
    pub fn capability(&self) -> f64 {
        self.compute_capability.parse().unwrap_or(0.0)
    }

    /// Peak rate of products, FLOP/s. Returns `None` if the card lacks the type or its rate is not in the list.
    #[must_use]
    pub fn rate(&self, precision: Precision) -> Option<f64> {
        let tflops = match precision {
            Precision::F64 => 0.0,
            Precision::F32 => self.tflops_fp32,
            Precision::Tf32 => self.tflops_tf32_tensor,
            Precision::F16 => self.tflops_fp16_tensor,
            Precision::Bf16 if self.capability() < 8.0 => 0.0,
            Precision::Bf16 => self.tflops_fp16_tensor,
            Precision::F8 => self.tflops_fp8_tensor,
        };
        (tflops > 0.0).then_some(tflops * 1e12)
    }

    /// The first fact that cannot be, if any.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let positive = [
            ("sms", f64::from(self.sms)),
            ("clock_mhz", self.clock_mhz),
            ("bandwidth_gbs", self.bandwidth_gbs),
            ("tflops_fp32", self.tflops_fp32),
            ("l2_mib", self.l2_mib),
            ("power_w", self.power_w),
            ("compute_capability", self.capability()),
            ("power_limit_w", self.power_limit_w.unwrap_or(1.0)),
        ];
        let other = [
            ("nvlink_gbs", self.nvlink_gbs),
            ("tflops_tf32_tensor", self.tflops_tf32_tensor),
            ("tflops_fp16_tensor", self.tflops_fp16_tensor),
            ("tflops_fp8_tensor", self.tflops_fp8_tensor),
            ("idle_power_w", self.idle_power_w),
        ];
        let bad = |(_, value): &&(&str, f64)| !(*value > 0.0 && *value < 1e7);
        let worse = |(_, value): &&(&str, f64)| !(*value >= 0.0 && *value < 1e7);
        if let Some((field, _)) = positive.iter().find(bad).or_else(|| other.iter().find(worse)) {
            return Some(format!("{}: {field} is not a number that a card can have", self.id));
        }
        (self.idle_power_w >= self.power_w).then(|| format!("{}: idle_power_w is not below power_w", self.id))
    }
}

/// A list of cards.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Cards {
    /// The cards.
    pub gpu: Vec<Card>,
}

impl Cards {
    /// Reads cards from TOML: a `[[gpu]]` table each.
    ///
    /// # Errors
    /// The text is not TOML, a fact is missing, or one cannot be.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let cards: Self =
            toml::from_str(text).map_err(|error| Error::Malformed(error.message().to_owned()))?;
        match cards.gpu.iter().find_map(Card::fault) {
            Some(fault) => Err(Error::Malformed(fault)),
            None => Ok(cards),
        }
    }

    /// The card with a short name or a driver's name; case does not matter.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Card> {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        self.gpu
            .iter()
            .find(|card| same(&card.id) || same(&card.name) || card.aliases.iter().any(|alias| same(alias)))
    }
}
