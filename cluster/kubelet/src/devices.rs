//! The node's GPUs as devices of Kubernetes.

use radrm_os::nvml::{Gpu, Inventory};
use serde_json::{Value, json};

use crate::quantity;

/// The driver's name.
pub const DRIVER: &str = "radrm.dev";
/// Version of the parameters that a claim may have.
pub const API: &str = "radrm.dev/v1alpha1";
/// Their kind.
pub const LIMIT: &str = "MemoryLimit";
/// The capacity that claims consume.
pub const CAPACITY: &str = "memory";
/// Granularity of granted memory, bytes.
pub const STEP: u64 = 1 << 20;
/// Devices in one slice of a pool.
pub const PER_SLICE: usize = 64;
/// Longest name of a device.
const MAX_NAME: usize = 63;
/// Longest text of an attribute.
const MAX_TEXT: usize = 64;

/// The name of a GPU's device: its UUID, which stays when GPUs are added or fail.
#[must_use]
pub fn name(uuid: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    uuid.chars().map(plain).take(MAX_NAME).collect::<String>().trim_matches('-').to_owned()
}

/// Bytes of a GPU that claims can have.
#[must_use]
pub fn memory(gpu: &Gpu) -> u64 {
    gpu.total / STEP * STEP
}

/// A GPU as a device whose memory claims share. One that asks for no amount gets all of it.
fn device(gpu: &Gpu, driver: &str) -> Value {
    let text = |text: &str| json!({ "string": text.chars().take(MAX_TEXT).collect::<String>() });
    let mut attributes = json!({
        "uuid": text(&gpu.uuid),
        "productName": text(&gpu.name),
        "driverVersion": text(driver),
        "type": text(if gpu.uuid.starts_with("MIG-") { "mig" } else { "gpu" }),
    });
    if let (Some(index), Some(attributes)) = (gpu.index, attributes.as_object_mut()) {
        attributes.insert("index".to_owned(), json!({ "int": index }));
    }
    let all = quantity::text(memory(gpu));
    json!({
        "name": name(&gpu.uuid),
        "attributes": attributes,
        "allowMultipleAllocations": true,
        "capacity": { CAPACITY: {
            "value": all,
            "requestPolicy": { "default": all, "validRange": { "min": quantity::text(STEP), "step": quantity::text(STEP) } },
        } },
    })
}

/// The devices of a node, in slices.
#[must_use]
pub fn slices(inventory: &Inventory) -> Vec<Vec<Value>> {
    // A GPU without a whole step of memory could not state a range.
    let usable = inventory.usable().filter(|gpu| memory(gpu) >= 2 * STEP);
    let devices: Vec<Value> = usable.map(|gpu| device(gpu, &inventory.driver)).collect();
    devices.chunks(PER_SLICE).map(<[Value]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_of_kubernetes() {
        assert_eq!(
            name("GPU-4F8C0000-0d3f-4b52-9a6c-000000000000"),
            "gpu-4f8c0000-0d3f-4b52-9a6c-000000000000"
        );
        assert_eq!(name("MIG-GPU-4f8c/7/0"), "mig-gpu-4f8c-7-0");
        assert_eq!(name(&"G".repeat(99)).len(), MAX_NAME);
    }

    #[test]
    fn memory_is_a_capacity_that_claims_consume_in_steps() {
        let gpu = Gpu { uuid: "GPU-1".into(), total: (40 << 30) + 5, index: Some(3), ..Gpu::default() };
        let divided = Gpu { divided: true, ..gpu.clone() };
        let slices = slices(&Inventory { gpus: vec![gpu, divided], driver: "580.65.06".into() });
        let [devices] = slices.as_slice() else { panic!("{slices:?}") };
        let [device] = devices.as_slice() else { panic!("{devices:?}") };
        assert_eq!(device["allowMultipleAllocations"], true);
        let memory = &device["capacity"]["memory"];
        assert_eq!((&memory["value"], &memory["requestPolicy"]["default"]), (&json!("40Gi"), &json!("40Gi")));
        assert_eq!(memory["requestPolicy"]["validRange"], json!({ "min": "1Mi", "step": "1Mi" }));
        assert_eq!(device["attributes"]["index"]["int"], 3);
        assert_eq!(device["attributes"]["driverVersion"]["string"], "580.65.06");
    }

    #[test]
    fn many_gpus_go_into_several_slices() {
        let gpu = |number: usize| Gpu { uuid: format!("GPU-{number}"), total: 1 << 30, ..Gpu::default() };
        let slices = slices(&Inventory { gpus: (0..130).map(gpu).collect(), driver: String::new() });
        assert_eq!(slices.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 2]);
    }
}
