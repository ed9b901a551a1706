//! Description of a machine: a short text or a TOML file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::MachineError;
use crate::layout::MAX_GPUS;
use crate::model::{GpuSpec, Models};

/// Version of the driver that is emulated when nothing is said.
const DEFAULT_DRIVER: u32 = 13000;

/// Description of a machine.
///
/// The short form lists GPUs: `2xH200`, `A100-40GB`, `1xT4+2xA100-80GB`; `,driver=12080` may follow.
/// Text that names a file ending in `.toml` is read as TOML:
///
/// ```toml
/// driver_version = 12080        # what cuDriverGetVersion says; default 13000
/// seed = 7                      # gives the UUIDs; default 0
///
/// [[gpu]]
/// model = "A100-40GB"           # from the table, or leave it out and give all fields
/// count = 2
/// memory_mib = 20480            # any field of GpuSpec
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MachineSpec {
    /// Driver version that `cuDriverGetVersion` returns, such as 13000.
    pub driver_version: u32,
    /// Number from which UUIDs are made: the same description and seed give the same UUIDs.
    pub seed: u64,
    /// The GPUs.
    pub gpu: Vec<GpuSpec>,
}

/// A machine file: overrides are merged into the model's table before it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpec {
    driver_version: Option<u32>,
    #[serde(default)]
    seed: u64,
    gpu: Vec<toml::Table>,
}

impl MachineSpec {
    /// Reads a short description, or the TOML file that it names.
    ///
    /// # Errors
    /// A sentence that says which part is not understood.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let text = text.trim();
        if Path::new(text).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) {
            let path = Path::new(text);
            let content = std::fs::read_to_string(path).map_err(|e| MachineError::io(path, e))?;
            return Self::from_toml(text, &content);
        }
        let models = Models::known()?;
        let mut driver_version = DEFAULT_DRIVER;
        let mut seed = 0;
        let mut parts = text.split(',').map(str::trim);
        let gpus = parts.next().unwrap_or("");
        for option in parts {
            let number = |value: &str| {
                value
                    .parse::<u64>()
                    .map_err(|_| MachineError::spec(text, format!("`{value}` is not a number")))
            };
            match option.split_once('=') {
                Some(("driver", value)) => driver_version = number(value)? as u32,
                Some(("seed", value)) => seed = number(value)?,
                _ => {
                    return Err(MachineError::spec(
                        text,
                        format!("unknown option `{option}` (driver=, seed=)"),
                    ));
                }
            }
        }
        let mut gpu = Vec::new();
        for part in gpus.split('+').map(str::trim) {
            let (count, id) = match part.split_once(['x', 'X', '*']) {
                Some((count, id)) if !count.is_empty() && count.bytes().all(|c| c.is_ascii_digit()) => (
                    count
                        .parse::<usize>()
                        .map_err(|_| MachineError::spec(text, format!("`{count}` is too large a number")))?,
                    id,
                ),
                _ => (1, part),
            };
            let model = models.find(id).ok_or_else(|| {
                MachineError::spec(
                    text,
                    format!("unknown GPU `{id}`; known are {}, or name a .toml file", models.names()),
                )
            })?;
            if count > MAX_GPUS {
                return Err(MachineError::spec(text, format!("more than {MAX_GPUS} GPUs")));
            }
            gpu.extend(std::iter::repeat_n(model.clone(), count));
        }
        Self { driver_version, seed, gpu }.checked(text)
    }

    /// Reads a machine file's content; `name` stands in messages.
    ///
    /// # Errors
    /// What the TOML reader says, or which value cannot be.
    pub fn from_toml(name: &str, content: &str) -> Result<Self, MachineError> {
        let models = Models::known()?;
        let bad = |e: toml::de::Error| MachineError::spec(name, e.to_string());
        let file: FileSpec = toml::from_str(content).map_err(bad)?;
        let mut gpu = Vec::new();
        for mut table in file.gpu {
            let count = match table.remove("count") {
                None => 1,
                Some(toml::Value::Integer(n)) if (1..=MAX_GPUS as i64).contains(&n) => n as usize,
                Some(other) => {
                    return Err(MachineError::spec(name, format!("count = {other} is not 1 to {MAX_GPUS}")));
                }
            };
            let mut merged = match table.remove("model") {
                None => toml::Table::new(),
                Some(toml::Value::String(id)) => {
                    let model = models.find(&id).ok_or_else(|| {
                        MachineError::spec(
                            name,
                            format!("unknown model `{id}`; known are {}", models.names()),
                        )
                    })?;
                    toml::Table::try_from(model).map_err(|e| MachineError::spec(name, e.to_string()))?
                }
                Some(other) => {
                    return Err(MachineError::spec(name, format!("model = {other} is not a text")));
                }
            };
            merged.extend(table);
            if !merged.contains_key("id") {
                merged.insert("id".to_owned(), merged.get("name").cloned().unwrap_or("custom".into()));
            }
            let spec: GpuSpec = merged.try_into().map_err(bad)?;
            gpu.extend(std::iter::repeat_n(spec, count));
        }
        Self { driver_version: file.driver_version.unwrap_or(DEFAULT_DRIVER), seed: file.seed, gpu }
            .checked(name)
    }

    fn checked(self, text: &str) -> Result<Self, MachineError> {
        if self.gpu.is_empty() || self.gpu.len() > MAX_GPUS {
            return Err(MachineError::spec(
                text,
                format!("{} GPUs; 1 to {MAX_GPUS} are possible", self.gpu.len()),
            ));
        }
        if !(2000..100_000).contains(&self.driver_version) {
            return Err(MachineError::spec(
                text,
                format!("driver version {} (13.0 is written 13000)", self.driver_version),
            ));
        }
        for gpu in &self.gpu {
            if let Some(fault) = gpu.fault() {
                return Err(MachineError::spec(text, format!("GPU {}: {fault}", gpu.id)));
            }
        }
        Ok(self)
    }

    /// UUID of a GPU. MIG instances and whole GPUs are told apart by how it is printed.
    pub fn uuid(&self, gpu: usize) -> [u8; 16] {
        let name = self.gpu.get(gpu).map_or("", |g| g.name.as_str());
        let mut bytes = [0; 16];
        for (half, out) in bytes.chunks_mut(8).enumerate() {
            // FNV-1a, then a finaliser so that neighbours differ in every byte.
            let mut hash = 0xcbf2_9ce4_8422_2325 ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for byte in name.bytes().chain([gpu as u8, half as u8]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            out.copy_from_slice(&(hash ^ (hash >> 31)).to_be_bytes());
        }
        bytes
    }

    /// UUID as the driver's tools print it: `GPU-8-4-4-4-12` or `MIG-...`.
    pub fn uuid_text(&self, gpu: usize) -> String {
        let hex: String = self.uuid(gpu).iter().map(|b| format!("{b:02x}")).collect();
        let kind = if self.gpu.get(gpu).is_some_and(|g| g.mig_profile.is_some()) { "MIG" } else { "GPU" };
        format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// PCI address: (domain, bus, device). GPUs stand on buses 0x17, 0x2a, 0x3d and so on.
    pub fn pci(&self, gpu: usize) -> (u32, u32, u32) {
        (0, 0x17 + 0x13 * (gpu as u32 % 12) + gpu as u32 / 12, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        MachineSpec::parse(text).unwrap().gpu.into_iter().map(|g| g.id).collect()
    }

    #[test]
    fn short_descriptions_are_read() {
        assert_eq!(names("2xH200"), ["H200", "H200"]);
        assert_eq!(names("A100-40GB"), ["A100-40GB"]);
        assert_eq!(names("1xT4+2xA100-80GB"), ["T4", "A100-80GB", "A100-80GB"]);
        assert_eq!(names("rtx4090"), ["RTX4090"], "the x of a name is not a count");
        assert_eq!(MachineSpec::parse("T4,driver=11040,seed=3").unwrap().driver_version, 11040);
    }

    #[test]
    fn a_wrong_description_is_named() {
        for (text, part) in [
            ("2xH300", "unknown GPU `H300`"),
            ("", "unknown GPU"),
            ("17xT4", "more than 16"),
            ("9xT4+8xT4", "17 GPUs"),
            ("0xT4", "0 GPUs"),
            ("T4,driver=13", "driver version 13"),
            ("T4,drive=13000", "unknown option"),
            ("/nonexistent/machine.toml", "/nonexistent/machine.toml"),
            ("99999999999999999999999xT4", "too large"),
        ] {
            let message = MachineSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_machine_file_overrides_a_model() {
        let spec = MachineSpec::from_toml(
            "m.toml",
            "driver_version = 12080\nseed = 7\n[[gpu]]\nmodel = \"A100\"\ncount = 2\nmemory_mib = 1024\n\
             attributes = { \"16\" = 4 }\n[[gpu]]\nmodel = \"T4\"",
        )
        .unwrap();
        assert_eq!((spec.driver_version, spec.gpu.len(), spec.gpu[0].memory_mib), (12080, 3, 1024));
        assert_eq!(spec.gpu[0].sms, 108);
        for (content, part) in [
            ("[[gpu]]\nmodel = \"A100\"\nmemry = 1", "memry"),
            ("[[gpu]]\nmodel = \"A101\"", "A101"),
            ("[[gpu]]\nmodel = \"A100\"\ncount = 0", "count"),
            ("[[gpu]]\nmodel = \"A100\"\ncompute_capability = \"nine\"", "nine"),
            ("[[gpu]]\nname = \"X\"", "missing field"),
        ] {
            let message = MachineSpec::from_toml("m.toml", content).unwrap_err().to_string();
            assert!(message.contains(part), "{content}: {message}");
        }
    }

    #[test]
    fn identities_are_stable_and_distinct() {
        let spec = MachineSpec::parse("16xT4").unwrap();
        let mut seen = std::collections::HashSet::new();
        let mut buses = std::collections::HashSet::new();
        for gpu in 0..16 {
            assert!(seen.insert(spec.uuid(gpu)));
            assert!(spec.pci(gpu).1 < 256 && buses.insert(spec.pci(gpu)));
        }
        assert_eq!(spec.uuid_text(0), MachineSpec::parse("T4").unwrap().uuid_text(0));
        assert_ne!(spec.uuid(0), MachineSpec::parse("T4,seed=1").unwrap().uuid(0));
        assert_eq!(spec.uuid_text(0).len(), 40);
    }
}
