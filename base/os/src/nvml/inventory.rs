//! The node's GPUs as NVML lists them.

use nvml_wrapper::Device;

use super::{Nvml, NvmlError};

/// A GPU or a MIG instance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// NVML's number; `None` for a MIG instance below a GPU.
    pub index: Option<u32>,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The driver's uuid: the same figures as 16 bytes.
    pub bytes: [u8; 16],
    /// Model.
    pub name: String,
    /// Memory in bytes.
    pub total: u64,
    /// A GPU that is divided into MIG instances: programs see these, never the GPU.
    pub divided: bool,
}

/// All of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// GPUs in NVML's order, each followed by its instances.
    pub gpus: Vec<Gpu>,
    /// Version of the kernel driver.
    pub driver: String,
}

impl Inventory {
    /// The GPU with the driver's uuid.
    #[must_use]
    pub fn of_bytes(&self, bytes: &[u8; 16]) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.bytes == *bytes)
    }

    /// GPUs and instances that programs can use.
    pub fn usable(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| !gpu.divided)
    }
}

impl Nvml {
    /// All GPUs and instances. One that reports nothing is left out.
    ///
    /// # Errors
    /// NVML does not report how many there are.
    pub fn inventory(&self) -> Result<Inventory, NvmlError> {
        let nvml = &self.0;
        let count = nvml.device_count()?;
        let mut gpus = Vec::new();
        for index in 0..count {
            let Ok(device) = nvml.device_by_index(index) else { continue };
            let Some(mut gpu) = describe(&device, Some(index)) else { continue };
            let instances = if gpu.uuid.starts_with("MIG-") { Vec::new() } else { instances(&device) };
            gpu.divided = !instances.is_empty();
            gpus.push(gpu);
            gpus.extend(instances);
        }
        Ok(Inventory { gpus, driver: self.driver().unwrap_or_default() })
    }
}

fn instances(device: &Device<'_>) -> Vec<Gpu> {
    let on = device.mig_mode().is_ok_and(|mode| mode.current != 0);
    let most = if on { device.mig_device_count().unwrap_or(0) } else { 0 };
    // Numbers of instances may have gaps.
    (0..most)
        .filter_map(|number| device.mig_device_by_index(number).ok())
        .filter_map(|instance| describe(&instance, None))
        .collect()
}

fn describe(device: &Device<'_>, index: Option<u32>) -> Option<Gpu> {
    let uuid = device.uuid().ok()?;
    Some(Gpu {
        index,
        bytes: uuid_bytes(&uuid)?,
        name: device.name().unwrap_or_default(),
        total: device.memory_info().map(|memory| memory.total).unwrap_or(0),
        uuid,
        divided: false,
    })
}

/// The 16 bytes of `GPU-8f3a…`. Instances of old drivers, `MIG-GPU-…/1/0`, have none of their own.
#[must_use]
pub fn uuid_bytes(uuid: &str) -> Option<[u8; 16]> {
    let digits = uuid.strip_prefix("GPU-").or_else(|| uuid.strip_prefix("MIG-"))?.replace('-', "");
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The text of a uuid, `GPU-…`; whether it is an instance is not in the bytes.
#[must_use]
pub fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_the_same_as_text_and_as_bytes() {
        let uuid = "GPU-8f3a0000-1111-2222-3333-4444555566ff";
        let found = uuid_bytes(uuid).unwrap();
        assert_eq!((found[0], found[1], found[15]), (0x8f, 0x3a, 0xff));
        assert_eq!(uuid_text(&found), uuid);
        assert_eq!(uuid_bytes(&uuid.replace("GPU", "MIG")), Some(found));
        for odd in ["", "GPU-", "8f3a", "GPU-8f3a", "MIG-GPU-8f3a0000-1111-2222-3333-4444555566ff/1/0"] {
            assert_eq!(uuid_bytes(odd), None, "{odd}");
        }
    }
}
