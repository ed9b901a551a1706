//! Keeps the API server's list of this node's devices equal to the node's GPUs.

use std::collections::BTreeMap;

use radrm_os::nvml::Inventory;
use radrm_text::output::say;
use serde_json::{Map, Value, json};

use crate::NAME;
use crate::api::{Api, ApiError};
use crate::devices::{self, CAPACITY, DRIVER};
use crate::quantity;

/// The pool of this node's devices.
#[derive(Debug)]
pub struct Publisher<'p> {
    api: &'p Api,
    /// Name of the node and of its pool.
    node: &'p str,
    /// The API server drops what it does not know: memory is no capacity to share there.
    is_shared_dropped: bool,
}

/// Properties of devices that decide where claims go, by name: bytes, UUID, and whether claims share the device.
type Shown = BTreeMap<String, (Option<u64>, String, bool)>;

impl<'p> Publisher<'p> {
    /// Of this node.
    #[must_use]
    pub fn new(api: &'p Api, node: &'p str) -> Self {
        Self { api, node, is_shared_dropped: false }
    }

    /// Writes what has changed. True: something had.
    ///
    /// # Errors
    /// [`ApiError`]; what was written stays, and the next call goes on.
    pub fn publish(&mut self, inventory: &Inventory) -> Result<bool, ApiError> {
        let wanted = devices::slices(inventory);
        let present = self.api.slices(self.node)?;
        if self.is_published(&wanted, &present) {
            return Ok(false);
        }
        let owner = self.api.node_uid(self.node)?;
        // Slices of one pool hold together by the generation: the scheduler takes the newest that is complete.
        let generation =
            present.iter().filter_map(|slice| slice["spec"]["pool"]["generation"].as_u64()).max();
        let generation = generation.map_or(1, |newest| newest + 1);
        let mut dropped = false;
        for (number, devices) in wanted.iter().enumerate() {
            let mut metadata = json!({ "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": owner, "controller": true,
            }] });
            let earlier = present.get(number).map(|slice| &slice["metadata"]);
            let named = earlier.and_then(|metadata| metadata["name"].as_str());
            if let Some(metadata) = metadata.as_object_mut() {
                identify(metadata, earlier, self.node);
            }
            let slice = json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": metadata,
                "spec": {
                    "driver": DRIVER,
                    "nodeName": self.node,
                    "pool": { "name": self.node, "generation": generation, "resourceSliceCount": wanted.len() },
                    "devices": devices,
                },
            });
            let written = match named {
                Some(name) => self.api.replace_slice(name, &slice)?,
                None => self.api.create_slice(&slice)?,
            };
            dropped |= shown([&written]).values().any(|(_, _, is_shared)| !is_shared);
        }
        for surplus in
            present.iter().skip(wanted.len()).filter_map(|slice| slice["metadata"]["name"].as_str())
        {
            match self.api.delete_slice(surplus) {
                Err(error) if !error.is_absent() => return Err(error),
                _ => {}
            }
        }
        if dropped && !self.is_shared_dropped {
            say(
                NAME,
                "the API server has dropped allowMultipleAllocations: without the feature gate DRAConsumableCapacity \
                 each GPU goes to one claim as a whole",
            );
        }
        self.is_shared_dropped = dropped;
        Ok(true)
    }

    fn is_published(&self, wanted: &[Vec<Value>], present: &[Value]) -> bool {
        let wanted_slices: Vec<Value> =
            wanted.iter().map(|devices| json!({ "spec": { "devices": devices } })).collect();
        let mut wanted_devices = shown(&wanted_slices);
        if self.is_shared_dropped {
            wanted_devices.values_mut().for_each(|(_, _, is_shared)| *is_shared = false);
        }
        let pools = present.iter().map(|slice| &slice["spec"]["pool"]);
        let is_whole = pools.clone().all(|pool| {
            pool["name"] == self.node
                && pool["resourceSliceCount"] == wanted.len()
                && pools.clone().all(|other| other["generation"] == pool["generation"])
        });
        present.len() == wanted.len() && is_whole && shown(present) == wanted_devices
    }
}

/// Names a slice as it was named before, or lets the server find a name.
fn identify(metadata: &mut Map<String, Value>, earlier: Option<&Value>, node: &str) {
    match earlier {
        Some(earlier) => {
            for key in ["name", "resourceVersion"] {
                metadata.insert(key.to_owned(), earlier[key].clone());
            }
        }
        None => {
            // The server appends five characters; the whole may have 253.
            let node: String = node.chars().take(200).collect();
            metadata.insert("generateName".to_owned(), format!("{node}-{DRIVER}-").into());
        }
    }
}

fn shown<'s>(slices: impl IntoIterator<Item = &'s Value>) -> Shown {
    let devices = slices.into_iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten();
    devices
        .map(|device| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let bytes = device["capacity"][CAPACITY]["value"].as_str().and_then(quantity::bytes);
            let is_shared = device["allowMultipleAllocations"] == true;
            (text(&device["name"]), (bytes, text(&device["attributes"]["uuid"]["string"]), is_shared))
        })
        .collect()
}
